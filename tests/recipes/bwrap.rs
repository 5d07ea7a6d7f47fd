//! The script for bubblewrap, carried out.

use std::{
    fs,
    io::Write as _,
    net::TcpListener,
    os::unix::process::ExitStatusExt as _,
    path::PathBuf,
    process::{Command, Output, Stdio},
    time::Duration,
};

use rustix::process::Signal;

use super::{ASSERTIONS, INSIDE, RUN, done, recipe, with_kli};
use crate::jail::{World, err, for_both, has, kill, ok, out, processes, wait_for};

/// Puts the script for a specification into the world.
fn script(world: &World, spec: &str) -> PathBuf {
    let text = ok(&recipe("bwrap", spec));
    let place = world.root.join("kli-bwrap.sh");
    fs::write(&place, text).unwrap();
    place
}

/// A command that runs the script, with another program in the place of kli.
fn run(world: &World, shell: &str, spec: &str, program: &[&str]) -> Command {
    let script = script(world, spec);
    let mut command = world.command("timeout");
    command.args(["-k", "1", "30"]).args(shell.split(' ')).arg(script).args(&program[1..]);
    command.env("KLI_PROGRAM", program[0]);
    command
}

fn inside(world: &World, spec: &str, text: &str) -> Output {
    run(world, "sh", spec, &["sh", "-c", text]).output().unwrap()
}

/// Asserts that the script started nothing and said why.
#[track_caller]
fn refused(output: &Output, parts: &[&str]) {
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert_eq!(out(output), "", "{output:?}");
    has(&err(output), parts);
}

#[test]
fn the_five_assertions_hold_with_the_network_and_without_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // A reader that went away has seen enough.
            drop(stream.unwrap().write_all(b"hello\n"));
        }
    });
    for_both(|world| {
        world.file("home/project/.env", "SECRET");
        world.file("home/project/secret/key", "SECRET");
        world.file("home/project/plain", "plain\n");
        world.file("home/.aws/credentials", "SECRET");
        for (network, value) in [("on", "true"), ("off", "false")] {
            for shell in ["sh", "bash", "bash --posix"] {
                let spec = include_str!("../vm/spec.json").replace("@NETWORK@", value);
                let words = ["bash", "-c", INSIDE, "inside", network, "127.0.0.1", &port, "yes"];
                let output = run(world, shell, &spec, &words)
                    .env("TOKEN", "DENIED-VALUE-1")
                    .env("AWS_SECRET_ACCESS_KEY", "DENIED-VALUE-2")
                    .output()
                    .unwrap();
                let text = ok(&output);
                assert_eq!(text.matches("ok ").count(), ASSERTIONS, "{text}");
                assert!(!text.contains("FAILED"), "{text}");
                let made = world.workspace.join("made-inside");
                assert_eq!(fs::read_to_string(&made).unwrap(), "written\n");
                fs::remove_file(made).unwrap();
            }
        }
        let secret = fs::read_to_string(world.workspace.join("secret/key")).unwrap();
        assert_eq!(secret, "SECRET", "the host's file is untouched");
        assert!(world.home.join(".cache/tool").is_dir(), "a writable directory is made");
        assert!(!world.home.join("absent").exists(), "a hidden one is not");
    });
}

#[test]
fn the_assertions_can_fail() {
    for_both(|world| {
        world.file("home/project/.env", "SECRET");
        world.file("home/project/secret/key", "SECRET");
        let output = world
            .command("bash")
            .args(["-c", INSIDE, "inside", "off", "127.0.0.1", "1", "yes"])
            .env("TOKEN", "DENIED-VALUE-1")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        let failed = out(&output).matches("FAILED ").count();
        assert!(failed >= 8, "{}", out(&output));
        drop(fs::remove_file("/etc/made-inside"));
        drop(fs::remove_file("/usr/made-inside"));
    });
}

#[test]
fn kli_does_a_whole_turn_and_keeps_its_session() {
    for_both(|world| {
        let kli = with_kli(world);
        let words: Vec<&str> =
            std::iter::once(kli.to_str().unwrap()).chain(RUN.iter().copied()).collect();
        let output = run(world, "sh", "{}", &words).output().unwrap();
        done(world, &output);
        let sessions = world.home.join(".local/state/kli/sessions");
        assert_eq!(fs::read_dir(sessions).unwrap().count(), 1);
    });
}

#[test]
fn nobody_inside_lifts_a_mask_or_has_a_capability() {
    for_both(|world| {
        let token = world.file("home/token", "SECRET");
        let spec = r#"{"denyRead":["~/token"]}"#;
        let script = "umount \"$HOME/token\"; mount -o remount,rw,bind /; rm \"$HOME/token\"; \
                      mv \"$HOME/token\" \"$HOME/y\"; unshare -Ur true; cat \"$HOME/token\"; \
                      echo x >/proc/sys/kernel/core_pattern; echo end";
        let output = inside(world, spec, script);
        assert_eq!(ok(&output), "end\n");
        let said = err(&output);
        has(&said, &["umount: ", "mount: ", "rm: ", "mv: ", "unshare: ", "core_pattern"]);
        assert_eq!(fs::read_to_string(token).unwrap(), "SECRET");
        let control = world.plainly("cat \"$HOME/token\"");
        assert_eq!(ok(&control), "SECRET");
    });
}

#[test]
fn names_of_any_characters_are_names_and_never_code() {
    let names = [
        "a b",
        "it's",
        "x\"y",
        "$(touch pwned)",
        "`touch pwned`",
        "line\nfeed",
        "end\n",
        "[a]*",
        "-n",
        "\\",
        "@ENVIRONMENT@",
        "~",
        ";touch pwned;",
    ];
    for_both(|world| {
        for name in names {
            world.file(format!("home/keys/{name}"), "SECRET");
            world.file(format!("home/project/{name}"), "SECRET");
        }
        let list: Vec<String> =
            names.iter().flat_map(|name| [format!("~/keys/{name}"), format!("./{name}")]).collect();
        let spec = serde_json::json!({ "denyRead": list, "env": { "SET": names.concat() } });
        let text =
            "cat \"$HOME\"/keys/* ./*; find \"$HOME/keys\" . -type f | wc -l; printf %s \"$SET\"";
        let said = ok(&inside(world, &spec.to_string(), text));
        let (count, set) = said.split_once('\n').unwrap();
        assert!(!said.contains("SECRET"), "{said}");
        assert!(count.trim().parse::<usize>().unwrap() >= 2 * names.len(), "{said}");
        assert_eq!(set, names.concat());
        assert!(!world.workspace.join("pwned").exists());
        let plain = ok(&world.plainly("cat \"$HOME\"/keys/* ./* | grep -o SECRET | wc -l"));
        assert_eq!(plain.trim(), (2 * names.len()).to_string(), "control");
    });
}

#[test]
fn patterns_hide_what_they_name_at_the_start() {
    for_both(|world| {
        for name in ["a.pem", ".b.pem", "c.txt"] {
            world.file(format!("home/keys/{name}"), name);
        }
        let spec = r#"{"denyReadGlobs":["~/keys/*.pem","~/none/*"]}"#;
        let said = ok(&inside(
            world,
            spec,
            "cat \"$HOME\"/keys/a.pem \"$HOME\"/keys/.b.pem \"$HOME\"/keys/c.txt",
        ));
        assert_eq!(said, "c.txt");
    });
}

#[test]
fn places_that_cannot_be_the_workspace_are_refused_and_nothing_is_started() {
    for_both(|world| {
        world.dir("home/.ssh/deep");
        world.dir("home/.config/kli");
        world.dir("home/.local/state/kli/x");
        world.dir("home/.cache/worktree");
        let here = world.root.to_str().unwrap().to_owned();
        let in_place = |place: &str, spec: &str| {
            run(world, "sh", spec, &["echo", "started"]).current_dir(place).output().unwrap()
        };
        let home = world.home.to_str().unwrap();
        for place in ["/", "/etc", "/usr/bin", "/var/tmp", &here] {
            refused(&in_place(place, "{}"), &["cannot be the workspace"]);
        }
        for below in ["", "/.ssh", "/.ssh/deep", "/.config", "/.config/kli", "/.local/state/kli/x"]
        {
            refused(&in_place(&format!("{home}{below}"), "{}"), &["cannot be the workspace"]);
        }
        let spec = r#"{"denyRead":["~/project"]}"#;
        refused(&in_place(&format!("{home}/project"), spec), &["lies in the hidden"]);
        assert_eq!(ok(&in_place(&format!("{home}/.cache/worktree"), "{}")), "started\n", "control");
        let spec = r#"{"allowHomeWorkspace":true}"#;
        assert_eq!(ok(&in_place(home, spec)), "started\n", "control");
    });
}

#[test]
fn the_workspace_is_the_physical_directory() {
    for_both(|world| {
        let link = world.link("home/way", "project");
        let output = run(world, "sh", "{}", &["sh", "-c", "pwd; echo \"$PWD\"; touch made"])
            .current_dir(&link)
            .env("PWD", &link)
            .output()
            .unwrap();
        let place = world.workspace.display();
        assert_eq!(ok(&output), format!("{place}\n{place}\n"));
        assert!(world.workspace.join("made").exists());
    });
}

#[test]
fn what_the_host_runs_in_the_workspace_is_read_only_and_commits_work() {
    for_both(|world| {
        world.file("home/project/.envrc", "echo");
        world.file("home/project/.kli/settings.json", "{}");
        ok(&world.plainly("git init -q . && rm -r .git/hooks"));
        let text = "touch .git/hooks/pre-commit; git config core.fsmonitor x; echo x >>.git/config; \
                    mv .git g; echo x >>.envrc; mv .kli k; rm .kli/settings.json; \
                    touch f && git add f && git -c user.name=a -c user.email=a@b commit -qm m && echo committed";
        let output = inside(world, "{}", text);
        assert_eq!(ok(&output), "committed\n", "{output:?}");
        let said = err(&output);
        assert!(said.matches("Read-only file system").count() >= 3, "{said}");
        assert!(said.matches("Device or resource busy").count() >= 3, "{said}");
        assert_eq!(fs::read_dir(world.workspace.join(".git/hooks")).unwrap().count(), 0);
        let spec = r#"{"git":"unprotected","protect":[]}"#;
        ok(&inside(world, spec, "touch .git/hooks/x && git config a.b c && echo x >>.envrc"));
        let spec = r#"{"git":"read-only"}"#;
        let output = inside(world, spec, "touch .git/x");
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        has(&err(&output), &["Read-only file system"]);
    });
}

#[test]
fn a_link_below_the_home_makes_no_other_place_writable() {
    for_both(|world| {
        world.dir("home/.cache");
        world.dir("home/keys");
        world.link("home/.cache/tool", world.home.join("keys"));
        let spec = r#"{"writablePaths":["~/.cache/tool"]}"#;
        refused(&inside(world, spec, "echo started"), &["goes through a symbolic link"]);
        let spec = r#"{"writablePaths":["/nowhere/at/all"]}"#;
        refused(&inside(world, spec, "echo started"), &["/nowhere/at/all", "does not exist"]);
        let spec = r#"{"writablePaths":["~/keys"]}"#;
        ok(&inside(world, spec, "touch \"$HOME/keys/x\""));
    });
}

#[test]
fn variables_are_kept_set_and_taken_away_as_the_specification_says() {
    for_both(|world| {
        world.file("home/key", "from a file\n");
        let spec = r#"{"passEnv":["SHOWN","P_*"],"denyEnv":["P_B"],"env":{"SET":"it's"},"envFiles":{"FILED":"~/key"}}"#;
        let output = run(world, "sh", spec, &["env"])
            .env("SHOWN", "1")
            .env("P_A", "2")
            .env("P_B", "3")
            .env("OTHER", "4")
            .env("SSH_AUTH_SOCK", "/run/agent")
            .env("odd-name", "5")
            .output()
            .unwrap();
        let text = ok(&output);
        has(
            &text,
            &[
                "SHOWN=1\n",
                "P_A=2\n",
                "SET=it's\n",
                "FILED=from a file\n",
                "TMPDIR=/tmp\n",
                "HOME=",
            ],
        );
        for gone in ["P_B", "OTHER", "SSH_AUTH_SOCK", "odd-name", "KLI_PROGRAM"] {
            assert!(!text.contains(gone), "{gone}: {text}");
        }
        let spec = r#"{"envFiles":{"FILED":"~/absent"}}"#;
        refused(&inside(world, spec, "echo started"), &["the file of `FILED` cannot be read"]);
    });
}

#[test]
fn keys_come_through_a_pipe_and_are_in_no_environment_and_no_file() {
    for_both(|world| {
        world.file("home/key", "KEY-ONE-\"\\\n");
        let spec = r#"{"secrets":{"ONE_KEY":"~/key"},"secretEnv":["TWO_KEY","ABSENT_KEY"]}"#;
        let text = "cat <&\"$KLI_SECRETS_FD\"; echo; cat \"$HOME/key\"; \
                    cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep KEY-; true";
        let output =
            run(world, "sh", spec, &["sh", "-c", text]).env("TWO_KEY", "KEY-TWO").output().unwrap();
        assert_eq!(ok(&output), "{\"ONE_KEY\":\"KEY-ONE-\\\"\\\\\",\"TWO_KEY\":\"KEY-TWO\"}\n");
        let plain =
            world.command("sh").args(["-c", "env"]).env("TWO_KEY", "KEY-TWO").output().unwrap();
        has(&ok(&plain), &["TWO_KEY=KEY-TWO"]);
    });
}

#[test]
fn sockets_in_run_are_cut_and_an_allowed_one_stays() {
    for_both(|world| {
        let text = "ls -A /run; touch /run/x";
        let output = inside(world, r#"{"network":false}"#, text);
        assert!(!out(&output).contains("lock"), "{output:?}");
        has(&err(&output), &["Read-only file system"]);
    });
}

#[test]
fn codes_and_signals_pass_and_nothing_outlives_the_script() {
    for_both(|world| {
        for code in [0, 7, 42] {
            let output = inside(world, "{}", &format!("exit {code}"));
            assert_eq!(output.status.code(), Some(code));
        }
        assert_eq!(inside(world, "{}", "kill -TERM $$").status.code(), Some(143));
        // TERM reaches the program, which may end as it likes.
        let mark = format!("77{}", std::process::id());
        let text = format!(
            ": {mark}; trap 'echo saved; exit 3' TERM; echo up; while :; do sleep 0.1; done"
        );
        let script = script(world, "{}");
        let mut command = world.command("sh");
        command.arg(script).args(["-c", &text]).env("KLI_PROGRAM", "sh");
        let start = |command: &mut Command| command.stdout(Stdio::piped()).spawn().unwrap();
        let first_line = |child: &mut std::process::Child| {
            let mut byte = [0; 3];
            std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut byte).unwrap();
        };
        if world.who == crate::jail::Who::Root && rustix::process::geteuid().as_raw() != 0 {
            return;
        }
        let mut child = start(&mut command);
        first_line(&mut child);
        kill(i32::try_from(child.id()).unwrap(), Signal::TERM);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        assert_eq!(out(&output), "saved\n");
        // A KILL of the script leaves nothing running.
        let mut child = start(&mut command);
        first_line(&mut child);
        assert!(!processes(&mark).is_empty(), "control");
        kill(i32::try_from(child.id()).unwrap(), Signal::KILL);
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        assert!(wait_for(Duration::from_secs(2), || processes(&mark).is_empty()));
    });
}

#[test]
fn nothing_is_left_behind_after_a_run() {
    for_both(|world| {
        let spec = r#"{"tmp":"host-subdir"}"#;
        let text =
            "touch /tmp/x && grep -o 'kli-recipe[.][A-Za-z0-9]*' /proc/self/mountinfo | head -n 1";
        let place = ok(&inside(world, spec, text));
        assert!(place.starts_with("kli-recipe."), "control: {place}");
        let place = std::path::Path::new("/var/tmp").join(place.trim());
        assert!(wait_for(Duration::from_secs(2), || !place.exists()), "{}", place.display());
    });
}

#[test]
fn limits_that_a_process_can_have_are_set() {
    for_both(|world| {
        let spec = r#"{"limits":{"fileSize":1024,"memory":"1G"}}"#;
        let text = "ulimit -a | grep -E 'data|file size'; head -c 4096 /dev/zero >big; wc -c <big";
        let output = run(world, "sh", spec, &["bash", "-c", text]).output().unwrap();
        let said = out(&output);
        has(&said, &["1024\n", "1048576"]);
    });
}
