//! Law 8: exit codes and signals pass through, and nothing outlives the launcher.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::jail::{World, children, err, for_both, has, kill, ok, out, processes, wait_for};

/// A number that makes a `sleep` findable.
fn token() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("3600.{}00{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Starts a script without `timeout` in between, so that the child is the launcher, and waits
/// until it says that it is up.
fn start(world: &World, script: &str) -> Child {
    let up = world.workspace.join("up");
    drop(fs::remove_file(&up));
    let mut command = world.command(world.launcher());
    command.arg("run").arg("--spec").arg(world.spec_file());
    let child = command.args(["--", "sh", "-c", script]).stdout(Stdio::null()).spawn().unwrap();
    assert!(wait_for(Duration::from_mins(1), || up.exists()), "not started: {script}");
    child
}

/// The code as a shell sees it.
fn seen(status: ExitStatus) -> i32 {
    status.code().or(status.signal().map(|signal| 128 + signal)).unwrap()
}

fn code(mut child: Child) -> i32 {
    seen(child.wait().unwrap())
}

fn pid(child: &Child) -> i32 {
    i32::try_from(child.id()).unwrap()
}

#[test]
fn codes_and_signals_pass_through() {
    for_both(|world| {
        for (script, code) in [
            ("exit 0", 0),
            ("exit 42", 42),
            ("exit 255", 255),
            ("kill -TERM $$", 143),
            ("kill -KILL $$", 137),
            ("ulimit -c 0; kill -SEGV $$", 139),
        ] {
            assert_eq!(seen(world.inside(script).status), code, "{script}");
        }
        let absent = world.run_with(&[], &["no-such-program"]).output().unwrap();
        assert_eq!(absent.status.code(), Some(127));
        has(&err(&absent), &["`no-such-program` is not found inside"]);
        let data = world.run_with(&[], &["/etc/passwd"]).output().unwrap();
        assert_eq!(data.status.code(), Some(126));
        has(&err(&data), &["`/etc/passwd` cannot be executed"]);
    });
}

#[test]
fn the_launcher_dies_by_the_signal_that_says_stop() {
    for_both(|world| {
        let run = |script: &str| {
            let mut command = world.command(world.launcher());
            command.arg("run").arg("--spec").arg(world.spec_file()).args(["--", "sh", "-c"]);
            command.arg(script).output().unwrap().status
        };
        for (name, number) in [("INT", 2), ("QUIT", 3), ("TERM", 15), ("HUP", 1), ("PIPE", 13)] {
            let status = run(&format!("ulimit -c 0; kill -{name} $$"));
            assert_eq!((status.signal(), status.core_dumped()), (Some(number), false), "{name}");
            // The same code without the signal is none.
            assert_eq!(run(&format!("exit {}", 128 + number)).code(), Some(128 + number));
        }
        // Others say something about the program only.
        assert_eq!(run("kill -KILL $$").code(), Some(137));
        assert_eq!(run("kill -ALRM $$").code(), Some(142));
    });
}

#[test]
fn arguments_and_streams_pass_unchanged() {
    for_both(|world| {
        let words = ["printf", "%s|", "a b", "", "--", "$HOME", "new\nline", "*", "--deny"];
        assert_eq!(
            ok(&world.run_with(&[], &words).output().unwrap()),
            "a b||--|$HOME|new\nline|*|--deny|"
        );
        let mut cat = world.run_with(&[], &["sh", "-c", "cat; echo problem >&2"]);
        let mut child = cat
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"\x00\xffbytes").unwrap();
        drop(child.stdin.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.stdout, b"\x00\xffbytes");
        assert_eq!(output.stderr, b"problem\n");
    });
}

#[test]
fn the_program_starts_with_default_signals() {
    for_both(|world| {
        let look = "grep -E '^Sig(Blk|Ign)' /proc/self/status";
        // Started with everything ignored that a shell can ignore.
        let start = format!(
            "trap '' HUP INT QUIT TERM USR1 PIPE CHLD; {look}; exec '{}' run --spec '{}' -- {look}",
            world.launcher().display(),
            world.spec_file().display()
        );
        let text = ok(&world.plainly(&start));
        let sets: Vec<u64> = text
            .lines()
            .map(|line| u64::from_str_radix(line.rsplit('\t').next().unwrap(), 16).unwrap())
            // The C library keeps 32 and 33 to itself.
            .map(|set| set & !(3 << 31))
            .collect();
        assert_ne!(sets[1], 0, "{text}");
        assert_eq!(sets[2..], [0, 0], "{text}");
    });
}

#[test]
fn term_lets_the_program_save_and_leaves_nothing() {
    for_both(|world| {
        for (signal, name) in [
            (Signal::TERM, "TERM"),
            (Signal::HUP, "HUP"),
            (Signal::INT, "INT"),
            (Signal::QUIT, "QUIT"),
        ] {
            let token = token();
            let child = start(
                world,
                &format!(
                    "trap 'echo saved > saved; exit 7' {name}; sleep {token} & touch up; wait"
                ),
            );
            assert!(!processes(&token).is_empty());
            kill(pid(&child), signal);
            assert_eq!(code(child), 7, "{name}");
            assert_eq!(fs::read_to_string(world.workspace.join("saved")).unwrap(), "saved\n");
            fs::remove_file(world.workspace.join("saved")).unwrap();
            assert_eq!(processes(&token), [0; 0]);
        }
    });
}

#[test]
fn term_ends_a_program_that_does_not_care() {
    for_both(|world| {
        let token = token();
        let child = start(world, &format!("touch up; exec sleep {token}"));
        kill(pid(&child), Signal::TERM);
        assert_eq!(code(child), 143);
        assert_eq!(processes(&token), [0; 0]);
    });
}

#[test]
fn a_second_term_kills() {
    for_both(|world| {
        let token = token();
        let child =
            start(world, &format!("trap '' TERM; touch up; sleep {token} & wait; sleep {token}"));
        kill(pid(&child), Signal::TERM);
        std::thread::sleep(Duration::from_millis(300));
        assert!(!processes(&token).is_empty(), "the first one lets it live");
        let then = Instant::now();
        kill(pid(&child), Signal::TERM);
        assert_eq!(code(child), 137);
        assert!(then.elapsed() < Duration::from_secs(2));
        assert_eq!(processes(&token), [0; 0]);
    });
}

#[test]
fn ten_seconds_after_term_it_is_killed() {
    let world = World::new(crate::jail::Who::User);
    let token = token();
    let child =
        start(&world, &format!("trap '' TERM; touch up; sleep {token} & wait; sleep {token}"));
    let then = Instant::now();
    kill(pid(&child), Signal::TERM);
    assert_eq!(code(child), 137);
    assert!((9..13).contains(&then.elapsed().as_secs()), "{:?}", then.elapsed());
    assert_eq!(processes(&token), [0; 0]);
}

#[test]
fn a_daemon_left_behind_ends_with_the_program() {
    for_both(|world| {
        let token = token();
        let left = world.inside(&format!("setsid sh -c 'trap \"\" HUP TERM; sleep {token}; sleep {token}' >/dev/null 2>&1 & sleep 0.2; exit 3"));
        assert_eq!(left.status.code(), Some(3));
        assert!(wait_for(Duration::from_secs(2), || processes(&token).is_empty()));
        // Without a jail it lives on.
        let plain =
            world.plainly(&format!("setsid sleep {token} >/dev/null 2>&1 & sleep 0.2; exit 3"));
        assert_eq!(plain.status.code(), Some(3));
        let alive = processes(&token);
        assert!(!alive.is_empty());
        for pid in alive {
            kill(pid, Signal::KILL);
        }
    });
}

#[test]
fn whoever_of_the_chain_is_killed_nothing_is_left() {
    for_both(|world| {
        for (spec, link) in ["{}", r#"{"nestedUserns":true}"#]
            .into_iter()
            .flat_map(|spec| ["launcher", "monitor", "process 1"].map(|link| (spec, link)))
        {
            world.spec(spec);
            let token = token();
            let mut child =
                start(world, &format!("setsid sleep {token} & touch up; sleep {token}"));
            let monitor = *children(pid(&child)).first().unwrap();
            let first = *children(monitor).first().unwrap();
            assert!(processes(&token).len() >= 2);
            kill(
                match link {
                    "launcher" => pid(&child),
                    "monitor" => monitor,
                    _ => first,
                },
                Signal::KILL,
            );
            let gone = wait_for(Duration::from_secs(2), || processes(&token).is_empty());
            assert!(gone, "{link}: {:?}", processes(&token));
            let status = child.wait().unwrap();
            if link != "launcher" {
                assert_eq!(seen(status), 137, "{link}");
            }
            assert!(!fs::exists(format!("/proc/{first}/exe")).unwrap());
        }
    });
}

#[test]
fn signals_before_the_program_is_up_are_not_lost() {
    for_both(|world| {
        for wait in [0, 1, 2, 4, 8] {
            let token = token();
            let mut command = world.command(world.launcher());
            command.arg("run").arg("--spec").arg(world.spec_file()).args(["--", "sleep", &token]);
            let mut child = command.stderr(Stdio::null()).spawn().unwrap();
            std::thread::sleep(Duration::from_millis(wait));
            kill(pid(&child), Signal::TERM);
            let ended = wait_for(Duration::from_secs(3), || child.try_wait().unwrap().is_some());
            assert!(ended, "after {wait} ms");
            assert_eq!(processes(&token), [0; 0]);
        }
    });
}

#[test]
fn a_kill_during_the_start_leaves_nothing_either() {
    for_both(|world| {
        for monitor in [false, true] {
            for (spec, wait) in ["{}", r#"{"nestedUserns":true}"#]
                .into_iter()
                .flat_map(|spec| (0..16).map(move |wait| (spec, wait)))
            {
                world.spec(spec);
                let token = token();
                let mut command = world.command(world.launcher());
                command.arg("run").arg("--spec").arg(world.spec_file());
                command.args(["--", "sleep", &token]).stderr(Stdio::null());
                let mut child = command.spawn().unwrap();
                std::thread::sleep(Duration::from_millis(wait));
                let of_launcher = children(pid(&child));
                let target = of_launcher.first().filter(|_| monitor).copied();
                if monitor && target.is_none() {
                    kill(pid(&child), Signal::TERM);
                } else {
                    kill(target.unwrap_or(pid(&child)), Signal::KILL);
                }
                let gone = wait_for(Duration::from_secs(2), || {
                    child.try_wait().unwrap().is_some() && processes(&token).is_empty()
                });
                assert!(gone, "{spec} after {wait} ms: {:?}", processes(&token));
            }
        }
    });
}

#[test]
fn the_launcher_sleeps_while_it_waits() {
    let world = World::new(crate::jail::Who::User);
    let child = start(&world, "touch up; sleep 1");
    let ticks = |pid: i32| -> u64 {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    let before = ticks(pid(&child));
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(ticks(pid(&child)), before);
    assert_eq!(code(child), 0);
}

#[test]
fn a_hundred_orphans_are_reaped() {
    for_both(|world| {
        let script = "for i in $(seq 100); do (sleep 0.01 &) ; done; sleep 0.4; grep -l 'State:.Z' /proc/[0-9]*/status | wc -l";
        assert_eq!(ok(&world.inside(script)), "0\n");
    });
}

#[test]
fn the_inside_cannot_push_input_into_the_terminal() {
    // `script` gives the launcher a terminal of its own.
    let tool = Command::new("script").arg("--version").output();
    assert!(tool.is_ok_and(|it| it.status.success()), "`script` (bsdutils) is needed");
    for_both(|world| {
        let push = r#"perl -e "print ioctl(STDIN, 0x5412, my \$c = q(x)) ? q(pushed) : q(refused: ) . \$!, qq(\n)""#;
        let start = format!(
            "'{}' run --spec '{}' -- {push}",
            world.launcher().display(),
            world.spec_file().display()
        );
        let output = world.command("script").args(["-qec", &start, "/dev/null"]).output().unwrap();
        has(&ok(&output), &["refused: Operation not permitted"]);
        // The control, where the kernel itself refuses nothing.
        let kernel = fs::read_to_string("/proc/sys/dev/tty/legacy_tiocsti").unwrap_or_default();
        if kernel.trim() != "0" {
            let output =
                world.command("script").args(["-qec", push, "/dev/null"]).output().unwrap();
            has(&ok(&output), &["pushed"]);
        }
    });
}

#[test]
fn the_terminal_is_as_before_when_the_inside_is_killed_in_raw_mode() {
    for_both(|world| {
        // Raw, without echo, non-blocking, and killed before it can undo any of it.
        let mess = r#"stty raw -echo; perl -MFcntl -e "fcntl(STDIN, F_SETFL, fcntl(STDIN, F_GETFL, 0) | O_NONBLOCK)"; kill -9 $$"#;
        let state = r#"stty -g; perl -MFcntl -e "print fcntl(STDIN, F_GETFL, 0) & O_NONBLOCK ? q(nonblocking) : q(blocking), qq(\n)""#;
        let jailed = format!(
            "'{}' run --spec '{}' -- sh -c '{mess}'",
            world.launcher().display(),
            world.spec_file().display()
        );
        let around = |middle: &str| {
            // What is printed while the modes are raw has no carriage returns; only the words count.
            let line = format!("{state}; {middle}; echo code $?; {state}");
            let output =
                world.command("script").args(["-qec", &line, "/dev/null"]).output().unwrap();
            let words = out(&output).replace("Killed", "");
            let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
            assert_eq!(words.len(), 6, "{words:?} {}", err(&output));
            words
        };
        let plain = around(&format!("sh -c '{mess}'"));
        assert_eq!(plain[3], "137", "control");
        assert!(plain[0] != plain[4] && plain[5] == "nonblocking", "control: {plain:?}");
        let jailed = around(&jailed);
        assert_eq!(jailed[3], "137");
        assert_eq!((&jailed[0], &jailed[1]), (&jailed[4], &jailed[5]));
    });
}

#[test]
fn a_signal_that_the_caller_ignored_reaches_neither_launcher_nor_program() {
    for_both(|world| {
        for (ignored, signal) in [("HUP", Signal::HUP), ("INT", Signal::INT)] {
            let up = world.workspace.join("up");
            drop(fs::remove_file(&up));
            let start = format!(
                "trap '' {ignored}; exec '{}' run --spec '{}' -- \
                 sh -c 'trap \"exit 9\" {ignored}; touch up; sleep 0.5; exit 3'",
                world.launcher().display(),
                world.spec_file().display()
            );
            let child = world.command("sh").args(["-c", &start]).spawn().unwrap();
            assert!(wait_for(Duration::from_secs(10), || up.exists()));
            kill(pid(&child), signal);
            assert_eq!(code(child), 3, "{ignored}");
        }
    });
}

#[test]
fn a_stopped_launcher_can_be_killed_and_continued() {
    for_both(|world| {
        for end in [Signal::KILL, Signal::CONT] {
            let token = token();
            let script =
                "setsid sleep TOKEN & touch up; while [ ! -e go ]; do sleep 0.02; done; exit 6";
            let child = start(world, &script.replace("TOKEN", &token));
            kill(pid(&child), Signal::STOP);
            std::thread::sleep(Duration::from_millis(50));
            assert!(!processes(&token).is_empty());
            fs::write(world.workspace.join("go"), "").unwrap();
            kill(pid(&child), end);
            assert_eq!(code(child), if end == Signal::KILL { 137 } else { 6 });
            assert!(wait_for(Duration::from_secs(2), || processes(&token).is_empty()));
            fs::remove_file(world.workspace.join("go")).unwrap();
        }
    });
}

#[test]
fn odd_beginnings_do_not_matter() {
    for_both(|world| {
        let run = format!(
            "'{}' run --spec '{}' -- sh -c 'sleep 0.1; echo fine; exit 5'",
            world.launcher().display(),
            world.spec_file().display()
        );
        let quoted = run.replace('\'', "'\\''");
        for (start, shown) in [
            (format!("exec {run}"), "fine\n"),
            (format!("trap '' CHLD TSTP TTIN TTOU CONT; exec {run}"), "fine\n"),
            (format!("exec {run} <&-"), "fine\n"),
            (format!("exec {run} >&-"), ""),
            (format!("exec {run} <&- >&- 2>&-"), ""),
            (format!("setsid -w {run}"), "fine\n"),
            (
                format!(
                    "perl -MPOSIX -e 'my $s = POSIX::SigSet->new; $s->fillset; \
                     sigprocmask(SIG_SETMASK, $s); exec q(sh), q(-c), $ARGV[0]' '{quoted}'"
                ),
                "fine\n",
            ),
        ] {
            let output = world.plainly(&start);
            assert_eq!((output.status.code(), out(&output).as_str()), (Some(5), shown), "{start}");
        }
    });
}

#[test]
fn neither_launcher_nor_process_1_works_while_it_waits() {
    for_both(|world| {
        let ticks = |pid: i32| -> u64 {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
            fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
        };
        // Ten thousand orphans are left to process 1 first.
        let script = "for i in $(seq 100); do (for j in $(seq 100); do (: &) ; done); done; \
                      touch up; exec sleep 3";
        let child = start(world, script);
        let monitor = *children(pid(&child)).first().unwrap();
        let first = *children(monitor).first().unwrap();
        let all = [pid(&child), monitor, first];
        assert!(
            wait_for(Duration::from_secs(30), || children(first).len() == 1),
            "{:?}",
            children(first)
        );
        let before = all.map(ticks);
        std::thread::sleep(Duration::from_secs(2));
        assert_eq!(all.map(ticks), before);
        for pid in [all[0], all[2]] {
            let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap().count();
            assert_eq!(threads, 1);
        }
        assert_eq!(code(child), 0);
    });
}

#[test]
fn a_flood_of_signals_does_not_hold_up_the_end() {
    for_both(|world| {
        let mut child = start(world, "trap '' WINCH; touch up; sleep 0.5; exit 3");
        let ended = wait_for(Duration::from_secs(20), || {
            for _ in 0..1000 {
                kill(pid(&child), Signal::WINCH);
            }
            child.try_wait().unwrap().is_some()
        });
        assert!(ended);
        assert_eq!(code(child), 3);
    });
}

#[test]
fn a_launcher_that_can_watch_no_more_ends_everything_and_says_so() {
    for_both(|world| {
        for spec in ["{}", r#"{"nestedUserns":true}"#] {
            world.spec(spec);
            let (up, token) = (world.workspace.join("up"), token());
            drop(fs::remove_file(&up));
            let script = format!(
                "trap '' TERM HUP; echo x > .envrc; setsid sleep {token} & touch up; sleep {token}"
            );
            let mut command = world.command(world.launcher());
            command.arg("run").arg("--spec").arg(world.spec_file()).args(["--", "sh", "-c"]);
            let mut child = command.arg(&script).stderr(Stdio::piped()).spawn().unwrap();
            assert!(wait_for(Duration::from_mins(1), || up.exists()), "not started");
            kill(pid(&child), Signal::WINCH);
            std::thread::sleep(Duration::from_millis(200));
            assert!(child.try_wait().unwrap().is_none(), "control: a signal alone ends nothing");
            assert!(processes(&token).len() >= 2);
            // poll(2) takes no more descriptors than the process may open.
            let number = child.id().to_string();
            ok(&world.command("prlimit").args(["--pid", &number, "--nofile=1:"]).output().unwrap());
            kill(pid(&child), Signal::WINCH);
            let ended = wait_for(Duration::from_secs(10), || child.try_wait().unwrap().is_some());
            let left = processes(&token);
            if !ended {
                kill(pid(&child), Signal::KILL);
            }
            let output = child.wait_with_output().unwrap();
            assert!(ended, "{spec}: it waits for ever");
            assert_eq!(left, [0; 0], "{spec}: at its end nothing inside lives");
            assert_eq!(output.status.code(), Some(125), "{spec}: {output:?}");
            has(
                &err(&output),
                &[
                    "kli-sandbox: the jail cannot be watched any more (Invalid argument",
                    "so everything inside was ended",
                    // No more descriptors, no report; it says so.
                    "it cannot be looked into: Too many open files",
                ],
            );
        }
    });
}

#[test]
fn what_the_caller_had_started_before_lives_on() {
    for_both(|world| {
        for spec in ["{}", r#"{"nestedUserns":true}"#] {
            world.spec(spec);
            let (before, inside) = (token(), token());
            let run = world.plainly(&format!(
                "sleep {before} > /dev/null 2>&1 & exec '{}' run --spec '{}' -- \
                 sh -c 'setsid sleep {inside} > /dev/null 2>&1 & sleep 0.2; exit 4'",
                world.launcher().display(),
                world.spec_file().display()
            ));
            assert_eq!(run.status.code(), Some(4), "{spec}: {run:?}");
            let (left, alive) = (processes(&inside), processes(&before));
            for pid in &alive {
                kill(*pid, Signal::KILL);
            }
            assert_eq!((left.len(), alive.len()), (0, 1), "{spec}");
        }
    });
}
