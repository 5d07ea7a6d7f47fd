//! What a start of the launcher costs over plain bubblewrap with the same mounts, as a ratio of
//! medians taken in turns in one run; its size, and its memory while it waits. As it is shipped:
//! `cargo bench --profile launcher --no-default-features --bench sandbox`.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a benchmark starts programs and prints figures"
)]

use std::path::{Path, PathBuf};
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

/// `place` is a directory of this user's own home: below another `$HOME` each name would count twice.
fn compare(name: &str, place: &Path, spec: &serde_json::Value) {
    let workspace = place.join("project");
    let file = place.join("spec.json");
    std::fs::write(&file, spec.to_string()).unwrap();
    let base = |program: &str| {
        let mut command = Command::new(program);
        command.current_dir(&workspace).stdin(Stdio::null());
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
    let empty = place.join("empty");
    std::fs::write(&empty, "").unwrap();
    let words = plain(&plan, empty.to_str().unwrap());
    let bwrap = || {
        let mut command = base("bwrap");
        command.args(&words).arg("/bin/true");
        command
    };
    timed(&mut bwrap());
    // bubblewrap takes a second for a thousand masks.
    let every = if words.len() > 500 { ROUNDS / 5 } else { 1 };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        if round % every == 0 {
            theirs.push(timed(&mut bwrap()));
        }
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

/// A program that does nothing. Linked with glibc it executes some seventy `CPUID` before `main`, each
/// of which a hypervisor answers: on a virtual machine most of this figure, and the launcher is
/// started twice.
fn nothing() {
    let times = (0..ROUNDS).map(|_| timed(&mut Command::new("/bin/true"))).collect();
    println!("/bin/true alone: {:.2} ms", median(times).as_secs_f64() * 1e3);
}

fn denied(paths: &[PathBuf]) -> serde_json::Value {
    serde_json::json!({ "denyRead": paths })
}

/// `count` files below `directory`, by `name`.
fn files(count: usize, directory: &Path, name: impl Fn(usize) -> String) -> Vec<PathBuf> {
    let paths: Vec<PathBuf> = (0..count).map(|number| directory.join(name(number))).collect();
    for path in &paths {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "x").unwrap();
    }
    paths
}

fn main() {
    let home = std::env::home_dir().unwrap();
    let directory = tempfile::Builder::new().prefix(".kli-bench").tempdir_in(home).unwrap();
    let place = directory.path();
    std::fs::create_dir_all(place.join("project")).unwrap();
    std::fs::create_dir_all(place.join("directory")).unwrap();
    std::fs::write(place.join("file"), "x").unwrap();
    nothing();
    own_namespaces(place);
    compare("no denials", place, &serde_json::json!({}));
    compare(
        "one file, one directory, one writable path",
        place,
        &serde_json::json!({
            "denyRead": [place.join("directory"), place.join("file")],
            "writablePaths": [place.join("cache")],
        }),
    );
    let many = files(1000, &place.join("many"), |number| number.to_string());
    compare("10 denied files in a directory of the home", place, &denied(&many[..10]));
    compare("1000 denied files in a directory of the home", place, &denied(&many));
    let writable = files(1000, &place.join("project/many"), |number| number.to_string());
    compare("1000 denied files in the workspace", place, &denied(&writable));
    let outside = tempfile::Builder::new().tempdir_in("/var/tmp").unwrap();
    let anchors = files(50, outside.path(), |number| format!("{number}/key"));
    compare("50 denied files in directories of their own", place, &denied(&anchors));
    let both: Vec<PathBuf> = many.into_iter().chain(anchors).collect();
    compare("both", place, &denied(&both));

    let size = std::fs::metadata(LAUNCHER).unwrap().len();
    println!("launcher: {size} bytes");
    std::fs::write(place.join("spec.json"), "{}").unwrap();
    let mut waiting = Command::new(LAUNCHER)
        .args(["run", "--spec", "../spec.json", "--", "sleep", "0.5"])
        .current_dir(place.join("project"))
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(250));
    let rollup = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", waiting.id())).unwrap();
    let pss = rollup.lines().find(|line| line.starts_with("Pss:")).unwrap();
    println!("launcher while it waits: {pss}");
    waiting.wait().unwrap();
}
