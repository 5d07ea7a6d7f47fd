//! Law 15, the launcher's half: keys go from files, variables and the caller's pipe to the program
//! that is named first, through one pipe, and are nowhere else.

use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::jail::{Who, World, end, err, for_both, has, ok, out, processes, refused};

/// Prints the keys as the program finds them, and tries a second time.
const TAKE: &str = "echo \"fd $KLI_SECRETS_FD\"; cat <&3; echo; cat <&3; echo end";

fn taken(output: &Output) -> String {
    let text = ok(output);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines[0], lines[2]), ("fd 3", "end"), "it is there once: {text}");
    lines[1].to_owned()
}

#[test]
fn a_key_in_a_file_reaches_the_program_and_no_file_shows_it() {
    for_both(|world| {
        world.file("home/keys/key", "SECRET-FILE\n");
        world.file("home/project/other", "SECRET-OTHER");
        world.spec(r#"{"secrets":{"A_KEY":"~/keys/key","B_KEY":"./other"}}"#);
        let keys = taken(&world.inside(TAKE));
        assert_eq!(keys, r#"{"A_KEY":"SECRET-FILE","B_KEY":"SECRET-OTHER"}"#);
        for file in ["../keys/key", "other"] {
            assert_eq!(
                ok(&world.inside(&format!("stat -c '%s %A' {file}; cat {file}"))),
                "0 -r--r--r--\n"
            );
            let tried = world.inside(&format!("echo x > {file}; mv {file} x; rm -f {file}"));
            assert!(!tried.status.success());
            has(&ok(&world.plainly(&format!("cat {file}"))), &["SECRET-"]);
        }
        let told = ok(&world
            .command(world.launcher())
            .arg("explain")
            .arg(world.spec_file())
            .output()
            .unwrap());
        has(&told, &["key handed to the program: A_KEY -- from the file `", "hidden file"]);
        assert!(!told.contains("SECRET"), "{told}");
    });
}

#[test]
fn a_key_in_a_variable_is_moved_out_of_every_environment() {
    for_both(|world| {
        world.spec(r#"{"secretEnv":["A_KEY","B_KEY","EMPTY","ABSENT"]}"#);
        let script = format!("cat /proc/[0-9]*/environ | tr '\\0' '\\n'; echo; {TAKE}");
        let output = world
            .run_with(&[], &["sh", "-c", &script])
            .env("A_KEY", "SECRET-A")
            .env("B_KEY", "SECRET-B")
            .env("EMPTY", " ")
            .env("OTHER", "other-value")
            .output()
            .unwrap();
        let text = ok(&output);
        let (environments, keys) = text.split_once("fd 3\n").unwrap();
        assert_eq!(keys, "{\"A_KEY\":\"SECRET-A\",\"B_KEY\":\"SECRET-B\"}\nend\n");
        assert!(
            !environments.contains("SECRET-") && !environments.contains("EMPTY"),
            "{environments}"
        );
        assert!(environments.matches("other-value").count() >= 2, "control: {environments}");

        // Nothing to hand over: no variable, no descriptor.
        let none = ok(&world.inside("echo \"fd ${KLI_SECRETS_FD-none}\"; ls /proc/self/fd"));
        assert_eq!(none, "fd none\n0\n1\n2\n3\n");
        // A denied one is not handed over either, by whichever of the two ways it is denied.
        let run = |options: &[&str]| {
            let mut command = world.run_with(options, &["sh", "-c", TAKE]);
            command.env("A_KEY", "SECRET-A").env("B_KEY", "SECRET-B").output().unwrap()
        };
        assert_eq!(taken(&run(&["--deny-env", "B_*"])), r#"{"A_KEY":"SECRET-A"}"#);
        world.spec(r#"{"secretEnv":["A_KEY","B_KEY"],"denyEnv":["A_KEY"]}"#);
        assert_eq!(taken(&run(&[])), r#"{"B_KEY":"SECRET-B"}"#);
        let odd = std::os::unix::ffi::OsStrExt::from_bytes(b"sk-\xff");
        let odd: &std::ffi::OsStr = odd;
        let tried = world.run_with(&[], &["touch", "effect"]).env("B_KEY", odd).output().unwrap();
        let told = refused(&tried);
        has(&told, &["`secretEnv`: the value of `B_KEY` is not UTF-8"]);
        assert!(!told.contains("sk-") && !world.workspace.join("effect").exists());
    });
}

fn with_pipe(world: &World, bytes: &[u8], script: &str) -> Output {
    let hand_over = "exec 9<&0 </dev/null; KLI_SECRETS_FD=9 exec \"$0\" \"$@\"";
    let mut command: Command = world.command("sh");
    command.args(["-c", hand_over, "timeout", "-k", "1", "30"]).arg(world.launcher());
    command.args(["run", "--spec"]).arg(world.spec_file()).args(["--", "sh", "-c", script]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn what_the_caller_hands_over_goes_on_and_the_specification_wins() {
    for_both(|world| {
        let pipe = br#"{"A_KEY":"SECRET-PIPE","B_KEY":"SECRET-PIPE"}"#;
        assert_eq!(
            taken(&with_pipe(world, pipe, TAKE)),
            r#"{"A_KEY":"SECRET-PIPE","B_KEY":"SECRET-PIPE"}"#
        );
        world.file("home/key", "SECRET-FILE\n");
        world.spec(r#"{"secrets":{"A_KEY":"~/key"}}"#);
        assert_eq!(
            taken(&with_pipe(world, pipe, TAKE)),
            r#"{"A_KEY":"SECRET-FILE","B_KEY":"SECRET-PIPE"}"#
        );
        for (bytes, part) in [
            (b"{\"A\":1}".as_slice(), "carries no JSON object of strings (line 1, column 6)"),
            (b"", "carries no JSON object of strings"),
            (b"{\"A\":\" \"}", "carries an empty value for `A`"),
            (b"{\"SECRET-A B\":\"x\"}", "carries a name that is none of a variable"),
            (&vec![b'x'; 70_000], "carries more than 65536 bytes"),
        ] {
            let told = refused(&with_pipe(world, bytes, "touch effect"));
            has(&told, &["the descriptor that `KLI_SECRETS_FD` names ", part]);
            assert!(!told.contains("SECRET-"), "{told}");
        }
        // A file, and a number that is none or no descriptor above 2.
        for (number, redirect) in [("9", "9<../key"), ("9", ""), ("1", ""), ("x", ""), ("", "")] {
            let start = format!(
                "KLI_SECRETS_FD='{number}' '{}' run --spec '{}' -- touch effect {redirect}",
                world.launcher().display(),
                world.spec_file().display()
            );
            has(&refused(&world.plainly(&start)), &["the descriptor that `KLI_SECRETS_FD` names "]);
        }
        assert!(!world.workspace.join("effect").exists());
        ok(&with_pipe(world, pipe, "touch effect"));
        assert!(world.workspace.join("effect").exists(), "control");
    });
}

#[test]
fn a_file_of_a_key_that_cannot_be_had_stops_the_start() {
    for_both(|world| {
        world.dir("home/directory");
        world.file("home/empty", "\n");
        world.file("home/good", "SECRET");
        world.file("home/large", &"x".repeat(70_000));
        let pipe = world.plainly("mkfifo ../pipe; ln -s good ../link; ln -s ../good planted");
        ok(&pipe);
        for key in ["secrets", "envFiles"] {
            for (path, part) in [
                ("~/absent", "it does not exist: create it, or take the entry out"),
                ("~/directory", "it is a directory: name a file"),
                ("~/pipe", "it is a socket or a pipe, not a file"),
                ("~/large", "is larger than 65536 bytes: name another file"),
                ("./planted", "project/planted` is a symbolic link inside `"),
            ] {
                world.spec(&format!(r#"{{"{key}":{{"A_KEY":"{path}"}}}}"#));
                let told = refused(&world.inside("touch effect"));
                has(&told, &[&format!("`{key}`: `A_KEY`: `"), part]);
                assert!(!told.contains("SECRET"), "{told}");
                assert!(!world.workspace.join("effect").exists(), "{path}");
            }
            world.spec(&format!(r#"{{"{key}":{{"A_KEY":"/dev/zero"}}}}"#));
            let told = refused(&world.inside("touch effect"));
            let part = if key == "secrets" {
                "take the entry out"
            } else {
                "is a device: name a regular file"
            };
            has(&told, &[&format!("`{key}`: "), "/dev/zero`", part]);
            // A link where the inside cannot write is a name like any other.
            for path in ["~/good", "~/link"] {
                world.spec(&format!(r#"{{"{key}":{{"A_KEY":"{path}"}}}}"#));
                has(&ok(&world.inside("printenv A_KEY; cat <&3 2>/dev/null; true")), &["SECRET"]);
            }
        }
        world.spec(r#"{"secrets":{"A_KEY":"~/empty"}}"#);
        has(
            &refused(&world.inside("touch effect")),
            &["`secrets`: `A_KEY`: `", "is empty: write the key"],
        );
        world.spec(r#"{"envFiles":{"A_KEY":"~/empty"}}"#);
        assert_eq!(
            ok(&world.inside("echo \"[${A_KEY-unset}]\"")),
            "[]\n",
            "a variable may be empty"
        );
    });
}

/// Looks at all processes of a run, none of which may have a key in its environment: how many
/// environments could be read, and who inside holds which further descriptor, and whether it is a pipe.
fn holders(token: &str) -> (usize, Vec<(String, String, bool)>) {
    let mut held = Vec::new();
    let mut seen = 0;
    for pid in processes(token) {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let first = line.split(' ').next().unwrap_or_default().to_owned();
        let started = ["timeout", "unshare"].contains(&first.as_str());
        // The launcher itself was given the variable; it lets only root look.
        let stage = line.split(' ').nth(1) == Some("inner");
        let launcher = first.ends_with("kli-sandbox") && !stage;
        if let Ok(block) = fs::read(format!("/proc/{pid}/environ")) {
            let block = String::from_utf8_lossy(&block).into_owned();
            assert!(started || launcher || !block.contains("SECRET-"), "{line}");
            seen += 1;
        }
        for entry in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
            let target = fs::read_link(entry.path()).unwrap_or_default();
            let number = entry.file_name().to_string_lossy().into_owned();
            let inside = first == "perl" || stage;
            let pipe = target.display().to_string().contains("pipe:");
            // The last stage's own two are sockets and the like, closed to all (law 5).
            if inside && !["0", "1", "2"].contains(&&*number) && (pipe || first == "perl") {
                held.push((first.clone(), number, pipe));
            }
        }
    }
    (seen, held)
}

#[test]
fn a_key_is_in_no_process_of_the_launcher_s_and_no_descriptor_but_the_program_s() {
    for_both(|world| {
        world.file("home/key", "SECRET-FILE");
        world.spec(r#"{"secrets":{"A_KEY":"~/key"},"secretEnv":["B_KEY"]}"#);
        let token = world.workspace.display().to_string();
        let wait = "print qq(up\\n); close STDOUT; sleep 30";
        let mut run = world.run_with(&[], &["perl", "-e", wait, &token]);
        let mut child = run.env("B_KEY", "SECRET-ENV").stdout(Stdio::piped()).spawn().unwrap();
        let mut up = [0; 3];
        child.stdout.as_mut().unwrap().read_exact(&mut up).unwrap();
        assert_eq!(&up, b"up\n");
        let mut looked = holders(&token);
        // Process 1 goes on, and closes its own end, only after the program's start.
        for _ in 0..100 {
            if looked.1.len() <= 1 {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
            looked = holders(&token);
        }
        let (seen, held) = looked;
        end(child);
        assert!(seen >= 3, "control: {seen}");
        assert_eq!(held, [("perl".to_owned(), "3".to_owned(), true)]);
    });
}

#[test]
fn the_last_stage_holds_no_key_for_those_who_look() {
    for_both(|world| {
        world.spec(r#"{"secretEnv":["A_KEY"]}"#);
        // The program closes its own descriptor first, as kli does.
        let script = "exec 3<&-; for f in environ mem fd/3 maps; do head -c 1 /proc/1/$f; done; \
                      cat /proc/1/fd/* 2>&1 | head -c 100; ls /proc/[0-9]*/fd 2>/dev/null | grep -c pipe; \
                      head -c 1 /proc/self/environ";
        let output =
            world.run_with(&[], &["sh", "-c", script]).env("A_KEY", "SECRET-A").output().unwrap();
        assert!(!out(&output).contains("SECRET"), "{output:?}");
        assert!(err(&output).matches("Permission denied").count() >= 3, "{output:?}");
        if world.who == Who::Root {
            // Process 1 closes its own end only after the program's start, so the look is repeated.
            let script = "for i in $(seq 100); do n=$(ls /proc/1/fd | wc -l); [ $n -gt 5 ] || break; \
                          sleep 0.02; done; echo $n";
            let count = |key: bool| {
                let mut run = world.run_with(&[], &["sh", "-c", script]);
                if key {
                    run.env("A_KEY", "SECRET-A");
                }
                ok(&run.output().unwrap())
            };
            assert_eq!(count(true), count(false), "no more than without a key");
        }
    });
}
