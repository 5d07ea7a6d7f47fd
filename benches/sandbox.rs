//! What a start of the launcher costs over plain bubblewrap with the same mounts, as a ratio of
//! medians taken in turns in one run; its size, and its memory while it waits.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a benchmark starts programs and prints figures"
)]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LAUNCHER: &str = env!("CARGO_BIN_EXE_kli-sandbox");
const ROUNDS: usize = 200;

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// bubblewrap's arguments for the mounts that `explain` lists.
fn plain(plan: &serde_json::Value, empty: &str) -> Vec<String> {
    let mut words: Vec<String> = "--unshare-user --unshare-pid --unshare-ipc --unshare-uts \
        --unshare-cgroup-try --cap-drop ALL --die-with-parent --disable-userns --new-session \
        --as-pid-1"
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    words.extend(["--chdir".into(), plan["workspace"].as_str().unwrap().into()]);
    let names = plan["overlays"].as_array().unwrap().iter().flat_map(|overlay| {
        overlay["names"].as_array().unwrap().iter().filter(|name| {
            ["hidden file", "hidden directory"].contains(&name["kind"].as_str().unwrap())
        })
    });
    for mount in plan["mounts"].as_array().unwrap().iter().chain(names) {
        let to = mount["destination"].as_str().unwrap();
        let pieces: Vec<&str> = match mount["kind"].as_str().unwrap() {
            "read-only" if to == "/run/kli/inner" => vec!["--ro-bind", LAUNCHER, to],
            "read-only" | "protected" => vec!["--ro-bind", to, to],
            "writable" | "pinned" => vec!["--bind", to, to],
            "memory" => vec!["--tmpfs", to],
            "dev" => vec!["--dev", to],
            "proc" => vec!["--proc", to],
            "directory" => vec!["--dir", to],
            "file" | "hidden file" => vec!["--ro-bind", empty, to],
            "sealed" => vec!["--remount-ro", to],
            "hidden directory" => vec!["--tmpfs", to, "--remount-ro", to],
            other => panic!("unknown kind {other}"),
        };
        words.extend(pieces.into_iter().map(str::to_owned));
    }
    words
}

fn timed(command: &mut Command) -> Duration {
    let start = Instant::now();
    let status = command.stdout(Stdio::null()).status().unwrap();
    assert!(status.success(), "{command:?}");
    start.elapsed()
}

fn compare(name: &str, home: &Path, spec: &str) {
    let workspace = home.join("project");
    let file = home.join("spec.json");
    std::fs::write(&file, spec).unwrap();
    let base = |program: &str| {
        let mut command = Command::new(program);
        command.env("HOME", home).current_dir(&workspace).stdin(Stdio::null());
        command
    };
    let run = || {
        let mut command = base(LAUNCHER);
        command.arg("run").arg("--spec").arg(&file).args(["--", "/bin/true"]);
        command
    };
    timed(&mut run());
    let told = base(LAUNCHER).arg("explain").arg(&file).args(["--format", "json"]).output();
    let plan: serde_json::Value = serde_json::from_slice(&told.unwrap().stdout).unwrap();
    let empty = home.join("empty");
    std::fs::write(&empty, "").unwrap();
    let words = plain(&plan, empty.to_str().unwrap());
    let bwrap = || {
        let mut command = base("bwrap");
        command.args(&words).arg("/bin/true");
        command
    };
    timed(&mut bwrap());
    let rounds = if words.len() > 500 { 5 } else { ROUNDS };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        theirs.push(timed(&mut bwrap()));
        ours.push(timed(&mut run()));
    }
    let (ours, theirs) = (median(ours), median(theirs));
    println!(
        "{name}: kli-sandbox {:.2} ms, bwrap with the same mounts {:.2} ms, ratio {:.2}",
        ours.as_secs_f64() * 1e3,
        theirs.as_secs_f64() * 1e3,
        ours.as_secs_f64() / theirs.as_secs_f64()
    );
}

/// What the launcher's own namespaces cost by themselves: bubblewrap alone, and inside a user, a mount
/// and a PID namespace that util-linux makes.
fn own_namespaces(home: &Path) {
    const PLAIN: [&str; 10] = [
        "bwrap",
        "--unshare-user",
        "--unshare-pid",
        "--ro-bind",
        "/",
        "/",
        "--proc",
        "/proc",
        "--",
        "/bin/true",
    ];
    let run = |words: &[&str]| {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(home).stdin(Stdio::null());
        command
    };
    let around: Vec<&str> = ["unshare", "--user", "--map-current-user", "--mount", "--pid"]
        .into_iter()
        .chain(["--fork", "--mount-proc", "--propagation", "private"])
        .chain(PLAIN)
        .collect();
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        without.push(timed(&mut run(&PLAIN)));
        with.push(timed(&mut run(&around)));
    }
    let (without, with) = (median(without), median(with));
    println!(
        "namespaces of its own, with the program that makes them: {:.2} ms, without {:.2} ms, ratio {:.2}",
        with.as_secs_f64() * 1e3,
        without.as_secs_f64() * 1e3,
        with.as_secs_f64() / without.as_secs_f64()
    );
}

fn denied(paths: &[String]) -> String {
    serde_json::json!({ "denyRead": paths }).to_string()
}

fn main() {
    let directory = tempfile::Builder::new().tempdir_in("/var/tmp").unwrap();
    let home = &directory.path().join("home");
    std::fs::create_dir_all(home.join("project")).unwrap();
    std::fs::create_dir_all(home.join(".aws")).unwrap();
    std::fs::create_dir_all(home.join("many")).unwrap();
    std::fs::write(home.join(".netrc"), "x").unwrap();
    own_namespaces(home);
    compare("no denials", home, "{}");
    compare(
        "one file, one directory, one writable path",
        home,
        r#"{"denyRead":["~/.aws","~/.netrc"],"writablePaths":["~/.cache/kli"]}"#,
    );
    let many: Vec<String> = (0..1000)
        .map(|number| {
            std::fs::write(home.join(format!("many/{number}")), "x").unwrap();
            format!("~/many/{number}")
        })
        .collect();
    compare("10 denied files in a directory of the home", home, &denied(&many[..10]));
    compare("1000 denied files in a directory of the home", home, &denied(&many));
    let writable: Vec<String> = (0..1000)
        .map(|number| {
            std::fs::create_dir_all(home.join("project/many")).unwrap();
            std::fs::write(home.join(format!("project/many/{number}")), "x").unwrap();
            format!("./many/{number}")
        })
        .collect();
    compare("1000 denied files in the workspace", home, &denied(&writable));
    let anchors: Vec<String> = (0..50)
        .map(|number| {
            let place = directory.path().join(format!("outside/{number}"));
            std::fs::create_dir_all(&place).unwrap();
            std::fs::write(place.join("key"), "x").unwrap();
            place.join("key").to_str().unwrap().to_owned()
        })
        .collect();
    compare("50 denied files in directories of their own", home, &denied(&anchors));
    let both: Vec<String> = many.into_iter().chain(anchors).collect();
    compare("both", home, &denied(&both));

    let size = std::fs::metadata(LAUNCHER).unwrap().len();
    println!("launcher: {size} bytes");
    std::fs::write(home.join("spec.json"), "{}").unwrap();
    let mut waiting = Command::new(LAUNCHER)
        .args(["run", "--spec", "../spec.json", "--", "sleep", "0.5"])
        .env("HOME", home)
        .current_dir(home.join("project"))
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(250));
    let rollup = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", waiting.id())).unwrap();
    let pss = rollup.lines().find(|line| line.starts_with("Pss:")).unwrap();
    println!("launcher while it waits: {pss}");
    waiting.wait().unwrap();
}
