//! The specification on the command line: `check` and `run` agree, `explain` tells the truth.

use std::fs;

use crate::jail::{World, for_both, has, ok, refused};

fn check(world: &World) -> std::process::Output {
    world.command(world.launcher()).arg("check").arg(world.spec_file()).output().unwrap()
}

#[test]
fn check_and_run_give_the_same_verdict_with_key_and_position() {
    for_both(|world| {
        for (text, parts) in [
            ("", vec!["it is empty: write `{}`"]),
            ("// what is denied\n{}", vec!["line 1 column 1: a specification has no comments"]),
            ("[]", vec!["one JSON object", "line 1"]),
            ("{\"network\":true,}", vec!["line 1 column 17"]),
            (
                "{\n \"denyread\": []}",
                vec!["unknown key `denyread`, did you mean `denyRead`?", "line 2"],
            ),
            (r#"{"colour":1}"#, vec!["unknown key `colour`, the keys are version, network"]),
            (r#"{"version":2}"#, vec!["`version` is 2", "knows only 1"]),
            (r#"{"version":"1"}"#, vec!["`version`:", "string \"1\""]),
            (
                r#"{"denyRead":null}"#,
                vec!["`denyRead`:", "null", "a list of strings", "line 1 column 16"],
            ),
            (r#"{"writablePaths":"/x"}"#, vec!["`writablePaths`:", "a list of strings"]),
            (r#"{"network":"yes"}"#, vec!["`network`:", "a boolean"]),
            (r#"{"denyRead":[1]}"#, vec!["`denyRead`:", "integer `1`"]),
            (r#"{"denyRead":["../x"]}"#, vec!["`../x` starts at no known place"]),
            (r#"{"denyRead":["~/a/../b"]}"#, vec!["`~/a/../b` contains `..`"]),
            (r#"{"denyRead":["$FOO/x"]}"#, vec!["`$FOO/x` starts at no known place"]),
            (r#"{"denyRead":[""]}"#, vec!["an empty path"]),
            ("{\"denyRead\":[\"/a\\u0000\"]}", vec!["NUL"]),
            (r#"{"denyRead":["/"]}"#, vec!["`/` cannot be in this list", "hide the whole machine"]),
            (r#"{"writablePaths":["/"]}"#, vec!["the whole machine writable"]),
            (r#"{"denyEnv":["A=B"]}"#, vec!["`A=B` is no variable name"]),
            (r#"{"denyEnv":["*"]}"#, vec!["would name every variable"]),
            (r#"{"network":true,"network":false}"#, vec!["`network` is there twice"]),
            ("{} {}", vec!["trailing"]),
        ] {
            world.spec(text);
            let checked = refused(&check(world));
            has(&checked, &parts);
            assert_eq!(refused(&world.inside("touch effect")), checked, "{text}");
        }
        assert!(!world.workspace.join("effect").exists());
        for text in [
            "{}",
            r#"{"version":1,"network":true,"nestedUserns":false,"writablePaths":["~/.cache/kli"],"denyRead":["$XDG_CONFIG_HOME/x","./y"],"denyEnv":["A","B_*"],"stateDir":true,"allowHomeWorkspace":false}"#,
        ] {
            world.spec(text);
            ok(&check(world));
            ok(&world.inside("touch effect"));
        }
    });
}

#[test]
fn a_specification_that_is_too_large_is_refused_unread() {
    for_both(|world| {
        world.spec(&format!("{{{}}}", " ".repeat(1 << 20)));
        has(&refused(&check(world)), &["larger than 1048576 bytes"]);
        world.spec(&format!("{{{}}}", " ".repeat((1 << 20) - 2)));
        ok(&check(world));
        let endless =
            world.command(world.launcher()).args(["check", "/dev/zero"]).output().unwrap();
        has(&refused(&endless), &["it is a device: a specification must be a regular file"]);
    });
}

#[test]
fn a_specification_that_is_no_regular_file_is_refused_at_once() {
    for_both(|world| {
        let fifo = world.root.join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::from_raw_mode(0o644))
            .unwrap();
        let socket = world.root.join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for (path, what) in [
            (&fifo, "it is a pipe: a specification must be a regular file"),
            (&socket, "it is a socket: a specification must be a regular file"),
            (&world.home, "it is a directory: a specification must be a regular file"),
        ] {
            let path = path.to_str().unwrap();
            for words in [vec!["check", path], vec!["run", "--spec", path, "--", "touch", "effect"]]
            {
                let mut command = world.command("timeout");
                let output =
                    command.args(["-k", "1", "5"]).arg(world.launcher()).args(&words).output();
                has(&refused(&output.unwrap()), &[what]);
            }
        }
        // What a shell makes of `<(…)`, by either of its names.
        for way in ["<(echo {})", "/dev/stdin"] {
            let line = format!(
                "echo {{}} | '{}' run --spec {way} -- touch effect",
                world.launcher().display()
            );
            let output = world.command("bash").args(["-c", &line]).output().unwrap();
            has(&refused(&output), &["a specification must be a regular file"]);
        }
        assert!(!world.workspace.join("effect").exists());
        let line = format!("'{}' check /dev/stdin < ../../spec.json", world.launcher().display());
        ok(&world.command("bash").args(["-c", &line]).output().unwrap());
        ok(&world.inside("touch effect"));
        assert!(world.workspace.join("effect").exists());
    });
}

#[test]
fn a_specification_behind_a_symbolic_link_works() {
    for_both(|world| {
        let link = world.link("link.json", "spec.json");
        let mut command = world.command(world.launcher());
        ok(&command.arg("run").arg("--spec").arg(link).args(["--", "true"]).output().unwrap());
    });
}

#[test]
fn explain_gives_each_mount_with_its_reason_and_creates_nothing() {
    for_both(|world| {
        world.file("home/.aws/credentials", "SECRET");
        world.spec(r#"{"network":false,"denyRead":["~/.aws","~/.absent"],"denyEnv":["TOKEN"],"writablePaths":["~/.cache/kli"]}"#);
        let explain = |format: &str| {
            let mut command = world.command(world.launcher());
            command
                .arg("explain")
                .arg(world.spec_file())
                .args(["--format", format])
                .env("TOKEN", "VALUE");
            ok(&command.output().unwrap())
        };
        let words = explain("words");
        let home = world.home.display();
        has(
            &words,
            &[
                "network: loopback only",
                &format!("hidden directory {home}/.aws  -- denied: ~/.aws"),
                &format!("writable         {home}/project  -- the workspace"),
                &format!("created before the start: {home}/.cache/kli"),
                "variable removed: TOKEN -- denied",
                ".absent` is absent",
            ],
        );
        assert!(!words.contains("VALUE"));
        let told: serde_json::Value = serde_json::from_str(&explain("json")).unwrap();
        assert_eq!(told["network"], false);
        let mounts = told["mounts"].as_array().unwrap();
        assert!(
            mounts.iter().all(|mount| mount["reason"].as_str().is_some_and(|it| !it.is_empty()))
        );
        let overlays = told["overlays"].as_array().unwrap();
        let mut names = overlays.iter().flat_map(|it| it["names"].as_array().unwrap());
        assert!(names.any(|name| name["destination"] == format!("{home}/.aws")));
        assert!(!world.home.join(".cache").exists(), "explaining creates nothing");
    });
}

#[test]
fn the_shell_line_of_explain_runs_and_hides() {
    for_both(|world| {
        world.file("home/.aws/credentials", "SECRET-A");
        world.file("home/it's a \"file\"", "SECRET-B");
        world.file("home/.plain", "plain");
        world.spec(r#"{"denyRead":["~/.aws","~/it's a \"file\""],"denyEnv":["TOKEN"],"writablePaths":["~/.cache/kli"]}"#);
        let mut command = world.command(world.launcher());
        let line = command
            .arg("explain")
            .arg(world.spec_file())
            .args(["--format", "shell"])
            .env("TOKEN", "VALUE");
        let line = ok(&line.output().unwrap());
        let shell = world.file("shell", "#!/bin/sh\ncat ~/.plain ~/.aws/* ~/it* 2>/dev/null; cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep TOKEN; echo x > ~/.aws/new; echo x > effect; echo x > ~/.cache/kli/effect; exit 9\n");
        fs::set_permissions(&shell, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let mut command = world.command("timeout");
        let output = command
            .args(["-k", "1", "30", "sh", "-c", &line])
            .env("TOKEN", "VALUE")
            .env("SHELL", &shell)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(9), "{output:?}");
        assert_eq!(crate::jail::out(&output), "plain");
        has(&crate::jail::err(&output), &["Read-only file system"]);
        assert!(world.workspace.join("effect").exists());
        assert!(world.home.join(".cache/kli/effect").exists());
    });
}

#[test]
fn what_people_read_has_its_quotes_and_no_control_characters() {
    for_both(|world| {
        world.spec("{\"denyRead\":[\"~/it's\\n\\u001b[31m\"]}");
        let explain =
            world.command(world.launcher()).arg("explain").arg(world.spec_file()).output();
        let text = ok(&explain.unwrap());
        assert!(text.contains("the inside's own") && text.contains("it's\\n\\u{1b}[31m"), "{text}");
        assert!(!text.contains('\u{1b}') && !text.contains("\\'"), "{text}");
    });
}

#[test]
fn the_shell_line_of_explain_holds_no_key_of_a_line_editor() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    for_both(|world| {
        let name = b"w\x15\x03touch pwned\x1b[201~\r\xc2\x9b\xff\x7f\n)\nKLI\n touch pwned #'\"`touch pwned`$(touch pwned)";
        let workspace = world.workspace.join(OsStr::from_bytes(name));
        world.dir(workspace.strip_prefix(&world.root).unwrap());
        let line = world
            .command(world.launcher())
            .arg("explain")
            .arg(world.spec_file())
            .args(["--format", "shell"])
            .current_dir(&workspace)
            .output()
            .unwrap();
        let text = ok(&line);
        let keys: Vec<char> = text.chars().filter(|key| key.is_control() && *key != '\n').collect();
        assert!(keys.is_empty(), "{keys:?} in {text:?}");
        let shell = world.file("shell", "#!/bin/sh\npwd; touch effect; exit 9\n");
        fs::set_permissions(&shell, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let pasted = world
            .command("sh")
            .arg("-c")
            .arg(&text)
            .env("SHELL", &shell)
            .current_dir(&workspace)
            .output()
            .unwrap();
        assert_eq!(pasted.status.code(), Some(9), "{pasted:?}");
        assert_eq!(pasted.stdout, [workspace.as_os_str().as_bytes(), b"\n"].concat());
        let made: Vec<_> =
            fs::read_dir(&workspace).unwrap().map(|it| it.unwrap().file_name()).collect();
        assert_eq!(made, ["effect"]);
    });
}

#[test]
fn the_shell_line_of_explain_shows_what_a_run_shows() {
    for_both(|world| {
        world.file("home/.aws/credentials", "SECRET");
        world.file("home/.netrc", "SECRET");
        world.file("home/project/.env", "SECRET");
        world.file("home/fixed/file", "x");
        world.dir("home/wide/fixed");
        let look = world.program(
            "look",
            "#!/bin/sh\nid; pwd; ls -A / /run /tmp /dev /dev/shm ~ .\n\
             for d in / /usr /etc /run /tmp /dev /dev/shm ~ . ~/.aws ~/fixed ~/wide ~/wide/fixed ../../outside \
             /proc/sys/kernel ~/.local/state/kli; do (touch $d/try && rm $d/try && echo \"writable: $d\") \
             2>/dev/null; done\n\
             stat -c '%n %F %s' ~/.aws ~/.netrc .env; env | grep -v '^_=' | sort; tail -n +3 /proc/net/dev | \
             cut -d: -f1; grep -E 'Cap|NoNewPrivs' /proc/self/status; ulimit -a | grep core\n",
        );
        for network in ["true", "false"] {
            world.spec(&format!(
                r#"{{"denyRead":["~/.aws","~/.netrc","./.env"],"denyEnv":["TOKEN"],"network":{network},
                "writablePaths":["~/wide"],"readOnlyPaths":["~/wide/fixed"],"env":{{"SET":"it's"}}}}"#
            ));
            let mut explained = world.command(world.launcher());
            explained.arg("explain").arg(world.spec_file()).args(["--format", "shell"]);
            let line = ok(&explained.env("TOKEN", "VALUE").env("SHELL", &look).output().unwrap());
            let mut pasted = world.command("sh");
            pasted.args(["-c", &line]).env("TOKEN", "VALUE").env("SHELL", &look);
            let mut run = world.run_with(&[], &[look.to_str().unwrap()]);
            run.env("TOKEN", "VALUE").env("SHELL", &look);
            let shown = ok(&run.output().unwrap());
            assert_eq!(ok(&pasted.output().unwrap()), shown, "network {network}");
            // Control: the look sees what there is to see.
            has(&shown, &["writable: .\n", "wide\n", "SET=it's", "CapEff:\t0000000000000000"]);
            assert!(!shown.contains("outside") && !shown.contains("TOKEN"), "{shown}");
            let plain = ok(&world.command(&look).env("TOKEN", "VALUE").output().unwrap());
            has(&plain, &["writable: ../../outside", "TOKEN=VALUE"]);
        }
    });
}
