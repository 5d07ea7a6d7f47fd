//! What a run finds around it: directory, home, state, programs; the launcher and its bubblewrap.

use std::process::Stdio;

use rustix::process::Signal;

use super::*;
use crate::{
    harness::{processes_with, wait_for},
    jail::kill,
};

#[test]
fn a_home_that_is_no_home_is_named() {
    let with = |home: Option<&str>| {
        let env = well();
        let mut command = env.command(&["doctor", "--json"]);
        match home {
            Some(home) => command.env("HOME", home),
            None => command.env_remove("HOME"),
        };
        Report::of(&bounded(command))
    };
    with(None).has("home", "warning", &["HOME is not set", "set HOME"]);
    with(Some("relative")).has("home", "warning", &["no absolute path"]);
    with(Some("/nonexistent/home")).has("home", "warning", &["`/nonexistent/home`"]);
    with(Some("/etc/passwd")).has("home", "warning", &["is no directory"]);
    let env = well().var("XDG_STATE_HOME", "state");
    let report = doctor(&env);
    report.has("home.xdg", "warning", &["XDG_STATE_HOME is `state`", "absolute"]);
    report.has("home", "ok", &[]);
}

#[test]
fn a_directory_that_is_gone_is_a_problem() {
    let env = well();
    let gone = env.work().join("gone");
    fs::create_dir(&gone).unwrap();
    let command = env.command(&["doctor", "--json"]);
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "rmdir \"$PWD\" && exec \"$@\"", "sh"])
        .arg(command.get_program())
        .args(command.get_args())
        .current_dir(&gone)
        .env_clear();
    for (name, value) in command.get_envs() {
        shell.env(name, value.unwrap());
    }
    let report = Report::of(&bounded(shell));
    report.has("directory", "problem", &["change to a directory that exists"]);
}

#[test]
fn what_cannot_be_written_is_named_as_an_ordinary_user() {
    let world = World::new(Who::User);
    fs::copy(env!("CARGO_BIN_EXE_kli"), world.root.join("kli")).unwrap();
    let run = |directory: &str, state: &str| {
        let mut command = world.command(world.root.join("kli"));
        command.args(["doctor", "--json"]).current_dir(directory).env("XDG_STATE_HOME", state);
        Report::of(&bounded(command))
    };
    let report = run("/", "/usr");
    report.has("directory", "warning", &["`/` cannot be written by user", "`--read-only`"]);
    report.has("state", "warning", &["`/usr/kli` cannot be written", "`--no-session`"]);
    let mine = world.dir("outside/state");
    let report = run(world.workspace.to_str().unwrap(), mine.to_str().unwrap());
    report.has("directory", "ok", &["can be written"]);
    report.has("state", "ok", &["can be made"]);
    assert!(report.risks("root").is_empty(), "an ordinary user is no root");
    report.has("launcher.trial", "ok", &["a jail was made"]);
}

#[test]
fn a_full_disk_is_told_before_a_session_is_lost() {
    // The kernel's own tree has no room at all.
    let env = well().var("XDG_STATE_HOME", "/proc");
    doctor(&env).has("state.space", "warning", &["0 MiB free", "make room"]);
    doctor(&well()).has("state.space", "ok", &["MiB free"]);
}

#[test]
fn programs_that_are_missing_are_named_with_their_dead_links() {
    let env = well();
    let bin = env.home().join("bin");
    fs::create_dir(&bin).unwrap();
    symlink("/nonexistent/git", bin.join("git")).unwrap();
    let with = |path: &str| {
        let mut command = env.command(&["doctor", "--json"]);
        command.env("PATH", path);
        Report::of(&bounded(command))
    };
    let report = with(bin.to_str().unwrap());
    report.has("git", "warning", &["bin/git` is a dead link", "install git"]);
    report.has("shell", "problem", &["`bash` is not there", "`bash.shell`"]);
    report.has("launcher.bubblewrap", hindered(), &["not found on PATH", "apt install"]);
    report.has("launcher.trial", "unknown", &["without bubblewrap"]);
    env.settings("{\"bash\": {\"shell\": \"/nonexistent/shell\"}}");
    with("/usr/bin:/bin").has("shell", "problem", &["`/nonexistent/shell`"]);
    env.settings("{\"bash\": {\"shell\": \"/bin/sh\"}}");
    with("/usr/bin:/bin").has("shell", "ok", &["`/bin/sh`"]);
}

#[test]
fn entries_of_the_search_path_that_lead_nowhere_or_into_the_project_are_named() {
    let env = well();
    let own = env.work().join("bin");
    fs::create_dir(&own).unwrap();
    symlink("/nonexistent", env.home().join("dead")).unwrap();
    let with = |path: &str| {
        let mut command = env.command(&["doctor", "--json"]);
        command.env("PATH", path);
        Report::of(&bounded(command))
    };
    let dead = env.home().join("dead");
    let report = with(&format!("{}::{}:/usr/bin:/bin", dead.display(), own.display()));
    report.has("path", "warning", &["home/dead` leads to no directory"]);
    report.has("path", "warning", &["the entry ``", "absolute paths"]);
    report.has("path", "warning", &["work/bin` lies in the project"]);
    with("/usr/bin:/bin").has("path", "ok", &["2 entries, all there"]);
    with("").has("path", "warning", &["PATH is not set"]);
}

#[test]
fn a_scratch_directory_and_a_locale_that_do_not_work_are_named() {
    let env = well().var("TMPDIR", "/nonexistent/tmp").var("LC_ALL", "POSIX");
    let report = doctor(&env);
    report.has("tmpdir", "warning", &["`/nonexistent/tmp`", "unset TMPDIR"]);
    report.has("locale", "warning", &["LC_ALL=POSIX is no UTF-8 locale", "C.UTF-8"]);
    let env = well().var("TMPDIR", "/var/tmp").var("LC_ALL", "en_GB.utf8");
    let report = doctor(&env);
    report.has("tmpdir", "ok", &["`/var/tmp`"]);
    report.has("locale", "ok", &["LC_ALL=en_GB.utf8"]);
    let mut command = env.command(&["doctor", "--json"]);
    command.env_remove("LC_ALL").env_remove("LANG");
    Report::of(&bounded(command)).has("locale", "warning", &["no locale is set"]);
}

/// kli in a directory of its own, with a launcher beside it or none.
struct Install(tempfile::TempDir);

impl Install {
    fn new() -> Self {
        let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        fs::hard_link(env!("CARGO_BIN_EXE_kli"), place.path().join("kli")).unwrap();
        Self(place)
    }

    fn command(&self, env: &Env, path: &str) -> Command {
        let like = env.command(&[]);
        let mut command = Command::new(self.0.path().join("kli"));
        command.args(["doctor", "--json"]).current_dir(env.work()).env_clear();
        for (name, value) in like.get_envs() {
            command.env(name, value.unwrap());
        }
        command.env("PATH", path).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, env: &Env, path: &str) -> Report {
        Report::of(&bounded(self.command(env, path)))
    }

    /// Shell words that write down where the specification lies.
    fn note(&self) -> String {
        format!("echo \"$3\" >'{}';", self.0.path().join("spec").display())
    }

    /// The trial's directory, as the launcher was told.
    fn scratch(&self) -> PathBuf {
        let text = fs::read_to_string(self.0.path().join("spec")).unwrap();
        Path::new(text.trim_end()).parent().unwrap().to_owned()
    }

    fn launcher(&self, text: &str) {
        script(&self.0.path().join("kli-sandbox"), text);
    }
}

const SYSTEM: &str = "/usr/local/bin:/usr/bin:/bin";

#[test]
fn without_a_launcher_nothing_of_it_stops_a_run() {
    let install = Install::new();
    let report = install.run(&well(), SYSTEM);
    report.has("launcher", "warning", &["no `kli-sandbox`", "cargo install"]);
    let report = install.run(&well(), "/bin/nothing");
    report.has("launcher.bubblewrap", "warning", &["not found on PATH"]);
}

#[test]
fn what_the_launcher_says_of_a_jail_that_cannot_be_made_is_told() {
    let install = Install::new();
    install.launcher("echo 'kli-sandbox: no namespaces here; do this' >&2; exit 125");
    let report = install.run(&well(), SYSTEM);
    report.has("launcher.trial", hindered(), &["no jail can be made: no namespaces here; do this"]);
    // One specification that works is told with what it needs.
    install.launcher(&format!(
        "if grep -q nestedUserns \"$3\"; then exec {} --version; fi; exit 125",
        env!("CARGO_BIN_EXE_kli-sandbox")
    ));
    let report = install.run(&well(), SYSTEM);
    report.has("launcher.trial", "warning", &["`/proc` around it", "`nestedUserns`"]);
    install.launcher("echo kli-sandbox 0.0.0");
    let report = install.run(&well(), SYSTEM);
    report.has("launcher.trial", "warning", &["another version (`kli-sandbox 0.0.0`)"]);
    install.launcher(&format!("exec {} \"$@\"", env!("CARGO_BIN_EXE_kli-sandbox")));
    install.run(&well(), SYSTEM).has("launcher.trial", "ok", &["a jail was made and entered"]);
}

/// How a jail that cannot be had counts here: in a container a run does not need one.
fn hindered() -> &'static str {
    let report = doctor(&well());
    let outer = report.check("confinement")["message"].as_str().unwrap().starts_with("outer");
    if outer { "warning" } else { "problem" }
}

#[test]
fn a_launcher_that_hangs_is_ended_with_all_that_it_started() {
    let install = Install::new();
    let mark = format!("97.{}", std::process::id());
    install.launcher(&format!("{} sleep {mark} & sleep {mark}", install.note()));
    let start = Instant::now();
    let report = install.run(&well(), SYSTEM);
    assert!(start.elapsed() < Duration::from_secs(9), "{:?}", start.elapsed());
    let check = report.check("launcher.trial");
    assert!(holds(check, &["within 5 s"]), "{check}");
    assert!(processes_with(&format!("sleep\0{mark}")).is_empty());
    assert!(!install.scratch().exists());
}

#[test]
fn an_interrupted_trial_leaves_nothing_behind() {
    for (signal, code, nth) in [(Signal::INT, 130, 1), (Signal::TERM, 143, 2)] {
        let install = Install::new();
        let mark = format!("98.{nth}{}", std::process::id());
        install.launcher(&format!("{} sleep {mark}", install.note()));
        let env = well();
        let child = install.command(&env, SYSTEM).spawn().unwrap();
        let word = format!("sleep\0{mark}");
        wait_for("the launcher", || processes_with(&word).first().copied());
        assert!(install.scratch().exists(), "control");
        kill(i32::try_from(child.id()).unwrap(), signal);
        let ran = Ran::from(child.wait_with_output().unwrap());
        ran.exits(code);
        assert_eq!(ran.out, "", "no report that looks whole");
        assert!(!install.scratch().exists(), "{ran:#?}");
        wait_for("its end", || processes_with(&word).is_empty().then_some(()));
    }
}

#[test]
fn a_trial_leaves_nothing_behind() {
    let install = Install::new();
    for end in [format!("exec {} \"$@\"", env!("CARGO_BIN_EXE_kli-sandbox")), "exit 125".into()] {
        install.launcher(&format!("{} {end}", install.note()));
        install.run(&well(), SYSTEM);
        assert!(!install.scratch().exists());
    }
}

#[test]
fn a_bubblewrap_that_is_setuid_or_the_project_s_is_not_used() {
    let env = well();
    let canary = env.home().join("ran");
    for place in [env.home().join("bin"), env.work().join("bin")] {
        script(&place.join("bwrap"), &format!("touch '{}'; exit 1", canary.display()));
    }
    let setuid = fs::Permissions::from_mode(0o4755);
    fs::set_permissions(env.home().join("bin/bwrap"), setuid).unwrap();
    let with = |first: PathBuf| {
        let mut command = env.command(&["doctor", "--json"]);
        command.env("PATH", format!("{}:{SYSTEM}", first.display()));
        Report::of(&bounded(command))
    };
    let report = with(env.home().join("bin"));
    assert!(holds(report.check("launcher.bubblewrap"), &["is setuid", "chmod u-s"]));
    let report = with(env.work().join("bin"));
    assert!(holds(report.check("launcher.bubblewrap"), &["lies in the project"]));
    report.has("launcher.trial", "unknown", &["no jail was tried"]);
    assert!(!canary.exists(), "it was started");
}

#[test]
fn with_no_user_namespaces_the_switch_is_named() {
    for_both(|world| {
        fs::copy(env!("CARGO_BIN_EXE_kli"), world.root.join("kli")).unwrap();
        let run = |count: &str| {
            let start = format!("{count} cd \"$W/home/project\"; exec \"$W/kli\" doctor --json");
            Report::of(&Ran::from(world.in_namespace(&start)))
        };
        let report = run("echo 0 > /proc/sys/user/max_user_namespaces;");
        let check = report.check("launcher.namespaces");
        assert!(holds(check, &["`user.max_user_namespaces` is 0", "sysctl -w"]), "{check}");
        let trial = report.check("launcher.trial");
        assert!(holds(trial, &["no jail can be made"]), "{trial}");
        run("").has("launcher.trial", "ok", &[]);
        let report = run("mount --bind /dev/null /proc/keys;");
        report.has("launcher.proc", "warning", &["`/proc/keys`", "`nestedUserns`"]);
        report.has("launcher.trial", "warning", &["`/proc` around it"]);
    });
}
