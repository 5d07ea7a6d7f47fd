//! Laws 7 and 8 on a terminal: the program has it like any other job of a shell, and the shell has it
//! back whatever happens to the program.

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use crate::jail::{children, for_both, has, kill, wait_for};
use crate::screen::Screen;

/// How long anything may take on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(30);

const CTRL_C: &str = "\x03";
const CTRL_Z: &str = "\x1a";
const CTRL_BACKSLASH: &str = "\x1c";

/// Says that it is up in a way that the echo of the typed line does not.
const UP: &str = "echo u''p";

#[test]
fn ctrl_c_ends_the_program_and_what_the_shell_had_next() {
    for_both(|world| {
        let mut screen = Screen::shell(world);
        screen.types(&format!("j sh -c \"{UP}; exec sleep 100\"; echo we''nt on"));
        screen.sees("up");
        screen.settles();
        screen.press(CTRL_C);
        let rest = screen.prompt();
        assert!(!rest.contains("went on"), "{rest:?}");
        assert_eq!(screen.code(), 130);
        // A program that ends with the same code by itself is not one that the key ended.
        screen.types(&format!(
            "j sh -c \"trap 'exit 130' INT; {UP}; while :; do sleep 0.05; done\"; echo we''nt on"
        ));
        screen.sees("up");
        screen.settles();
        screen.press(CTRL_C);
        has(&screen.prompt(), &["went on"]);
    });
}

#[test]
fn ctrl_c_stops_a_loop_of_a_script() {
    for_both(|world| {
        let script = |program: &str| {
            world.program(
                "bin/loop",
                &format!(
                    "#!/bin/bash\nfor i in 1 2 3; do j sh -c '{program}'; done\necho we''nt on\n"
                ),
            );
        };
        let mut screen = Screen::shell(world);
        script(&format!("{UP}; exec sleep 100"));
        screen.types("loop");
        screen.sees("up");
        screen.settles();
        screen.press(CTRL_C);
        let rest = screen.prompt();
        assert!(!rest.contains("up") && !rest.contains("went on"), "{rest:?}");
        assert_eq!(screen.code(), 130);
        // One that saves and ends well lets the loop go on, as it does without a jail.
        script(&format!("trap \"exit 0\" INT; {UP}; while :; do sleep 0.05; done"));
        screen.types("loop");
        for _ in 0..3 {
            screen.sees("up");
            screen.settles();
            screen.press(CTRL_C);
        }
        has(&screen.prompt(), &["went on"]);
    });
}

#[test]
fn ctrl_backslash_quits_without_a_core_of_the_launcher() {
    for_both(|world| {
        let mut screen = Screen::shell(world);
        screen.runs("ulimit -c unlimited");
        screen.types(&format!("j sh -c \"ulimit -c 0; {UP}; exec sleep 100\""));
        screen.sees("up");
        screen.settles();
        screen.press(CTRL_BACKSLASH);
        let said = screen.prompt();
        assert!(said.contains("Quit") && !said.contains("core dumped"), "{said:?}");
        assert_eq!(screen.code(), 131);
        assert_eq!(fs::read_dir(&world.workspace).unwrap().count(), 0);
    });
}

#[test]
fn ctrl_z_stops_the_job_and_fg_lets_it_go_on() {
    for_both(|world| {
        let mut screen = Screen::shell(world);
        screen.types(&format!("j sh -c \"{UP}; read x; echo got=\\$x; exit 7\""));
        screen.sees("up");
        screen.settles();
        for _ in 0..3 {
            screen.press(CTRL_Z);
            has(&screen.prompt(), &["Stopped"]);
            has(&screen.runs("jobs"), &["Stopped", "j sh -c"]);
            screen.types("read y; echo \"<$y>\"");
            screen.types("a line for the shell");
            screen.sees("<a line for the shell>");
            screen.prompt();
            // In the background it may not read.
            screen.runs("bg");
            assert!(wait_for(PATIENCE, || screen.runs("jobs").contains("Stopped")));
            screen.types("fg");
            screen.sees("fg");
            screen.sees("j sh -c");
            screen.settles();
        }
        screen.types("words");
        screen.sees("got=words");
        screen.prompt();
        assert_eq!(screen.code(), 7);
        assert!(!screen.runs("jobs").contains("j sh -c"));
    });
}

#[test]
fn a_stop_right_after_it_was_let_go_on_stops_it_again_and_never_ends_it() {
    for_both(|world| {
        let mut screen = Screen::shell(world);
        screen.types(&format!("j sh -c \"{UP}; read x; echo got=\\$x; exit 7\""));
        screen.sees("up");
        screen.settles();
        screen.press(CTRL_Z);
        has(&screen.prompt(), &["Stopped"]);
        let group = screen.runs("jobs -p");
        let group = Pid::from_raw(group.trim().parse().unwrap()).unwrap();
        for _ in 0..10 {
            // In the background it may not read, and is stopped for that.
            screen.runs("bg");
            assert!(wait_for(PATIENCE, || screen.runs("jobs").contains("Stopped")));
            // As `fg` and ^Z, faster than anybody types: the second takes the first away (signal(7)).
            kill_process_group(group, Signal::CONT).unwrap();
            kill_process_group(group, Signal::TSTP).unwrap();
            screen.settles();
            let jobs = screen.runs("jobs");
            assert!(jobs.contains("Stopped") && !jobs.contains("Hangup"), "{jobs:?}");
        }
        screen.types("fg");
        screen.sees("j sh -c");
        screen.settles();
        screen.types("words");
        screen.sees("got=words");
        screen.prompt();
        assert_eq!(screen.code(), 7);
    });
}

#[test]
fn a_script_around_it_is_stopped_and_continued_too() {
    for_both(|world| {
        world.program(
            "bin/around",
            &format!("#!/bin/sh\nj sh -c '{UP}; read x; echo got=$x'\necho en''d\n"),
        );
        let mut screen = Screen::shell(world);
        screen.types("around");
        screen.sees("up");
        screen.settles();
        screen.press(CTRL_Z);
        has(&screen.prompt(), &["Stopped"]);
        screen.types("fg");
        screen.sees("around");
        screen.types("words");
        screen.sees("got=words");
        screen.sees("end");
        screen.prompt();
    });
}

#[test]
fn nothing_inside_goes_on_while_it_is_stopped() {
    for_both(|world| {
        let ticks = || fs::metadata(world.workspace.join("ticks")).map_or(0, |meta| meta.len());
        let grows = |limit| {
            let before = ticks();
            wait_for(limit, || ticks() > before)
        };
        let mut screen = Screen::shell(world);
        // One more is stopped by the program itself, and stays so.
        screen.types(&format!(
            "j sh -c \"setsid sh -c 'while sleep 0.02; do echo >> ticks; done' & \
             setsid sh -c 'kill -STOP \\$\\$; touch gone-on' & sleep 0.3; {UP}; read x\""
        ));
        screen.sees("up");
        screen.settles();
        assert!(grows(PATIENCE), "control");
        for _ in 0..2 {
            screen.press(CTRL_Z);
            has(&screen.prompt(), &["Stopped"]);
            assert!(!grows(Duration::from_millis(500)));
            screen.types("fg");
            screen.sees("j sh -c");
            assert!(grows(PATIENCE));
        }
        screen.types("");
        screen.prompt();
        assert!(!world.workspace.join("gone-on").exists());
    });
}

#[test]
fn the_program_sees_the_size_change() {
    for_both(|world| {
        let mut screen = Screen::shell(world);
        screen.resize(20, 60);
        screen.types(&format!(
            "j sh -c \"trap 'stty size' WINCH; {UP}; while :; do sleep 0.05; done\""
        ));
        screen.sees("up");
        screen.settles();
        for (rows, columns) in [(31, 97), (44, 161)] {
            screen.resize(rows, columns);
            screen.sees(&format!("{rows} {columns}"));
        }
        screen.press(CTRL_C);
        screen.prompt();
    });
}

#[test]
fn a_shell_inside_has_job_control_of_its_own() {
    for_both(|world| {
        let mut screen = Screen::shell(world);
        screen.types("PS1='<in''side>' j bash --norc --noprofile --noediting -i");
        let said = screen.sees("<inside>");
        assert!(!said.contains("no job control"), "{said:?}");
        screen.types("sleep 100");
        std::thread::sleep(Duration::from_millis(200));
        screen.press(CTRL_Z);
        has(&screen.sees("<inside>"), &["Stopped"]);
        screen.types("jobs");
        has(&screen.sees("<inside>"), &["Stopped", "sleep 100"]);
        screen.types("fg");
        screen.sees("sleep 100");
        screen.settles();
        screen.press(CTRL_C);
        screen.sees("<inside>");
        screen.types("echo code=$?");
        screen.sees("code=130");
        // The shell inside stops as a whole, and has its terminal back afterwards.
        screen.sees("<inside>");
        screen.types("suspend -f");
        has(&screen.prompt(), &["Stopped"]);
        screen.types("fg");
        screen.sees("<inside>");
        screen.types("echo aga''in; exit 5");
        screen.sees("again");
        screen.prompt();
        assert_eq!(screen.code(), 5);
    });
}

#[test]
fn a_signal_to_the_own_group_stays_inside() {
    for_both(|world| {
        world.program(
            "bin/around",
            "#!/bin/bash\ns=$1; shift; trap 'echo hit' $s\n\
             \"$@\" sh -c \"trap 'echo caught' $s; kill -$s 0; sleep 0.1\"\necho end\n",
        );
        let mut screen = Screen::shell(world);
        for signal in ["INT", "HUP", "USR1", "TERM", "QUIT"] {
            let jailed = screen.runs(&format!("around {signal} j"));
            assert!(!jailed.contains("hit"), "{signal}: {jailed:?}");
            has(&jailed, &["caught", "end"]);
            has(&screen.runs(&format!("around {signal}")), &["caught", "hit", "end"]);
        }
    });
}

#[test]
fn a_killed_full_screen_program_leaves_the_terminal_as_it_was() {
    for_both(|world| {
        let state = r#"stty -g; perl -MFcntl -e "print fcntl(STDIN, F_GETFL, 0) & O_NONBLOCK ? q(nonblocking) : q(blocking), qq(\n)""#;
        let mess = r#"printf "\033[?1049h\033[?1000h\033[?2004h"; stty raw -echo; perl -MFcntl -e "fcntl(STDIN, F_SETFL, fcntl(STDIN, F_GETFL, 0) | O_NONBLOCK)"; kill -9 $$"#;
        world.program("bin/mess", &format!("#!/bin/sh\n{mess}\n"));
        world.program(
            "bin/around",
            &format!("#!/bin/sh\n{state}\n\"$@\"\necho code=$?\n{state}\nstty sane\n"),
        );
        let mut screen = Screen::shell(world);
        let said = screen.runs("around j mess");
        for mode in ["?1049l", "?1000l", "?1006l", "?2004l", "?25h", "?1004l", "<u"] {
            has(&said, &[&format!("\x1b[{mode}")]);
        }
        has(&said, &["code=137"]);
        let states: Vec<&str> = said
            .lines()
            .map(str::trim)
            .filter(|line| line.contains(':') || line.ends_with("blocking"))
            .collect();
        assert_eq!(states.len(), 4, "{said:?}");
        assert_eq!(states[..2], states[2..], "{said:?}");
        let plain = screen.runs("around mess");
        assert!(plain.contains("nonblocking") && !plain.contains("?1049l"), "control: {plain:?}");
    });
}

#[test]
fn nothing_is_written_after_a_run_that_left_the_screen_itself() {
    for_both(|world| {
        let mut screen = Screen::shell(world);
        for (program, code) in [
            ("printf 'a\\nb'", 0),
            ("printf x; exit 9", 9),
            ("printf x; kill -TERM $$", 143),
            ("s=$(stty -g); stty raw -echo; printf '\\033[?1049h\\033[?1049l'; stty $s; exit 1", 1),
            ("stty -echo; printf x", 0),
        ] {
            world.program("bin/it", &format!("#!/bin/sh\n{program}\n"));
            world.program("bin/around", "#!/bin/bash\n\"$@\" 2>&1; echo \"[$?]\"; stty echo\n");
            let jailed = screen.runs("around j it");
            let plain = screen.runs("around it");
            has(&plain, &[&format!("[{code}]")]);
            let words =
                |text: &str| text.lines().filter(|it| !it.contains("line ")).collect::<String>();
            assert_eq!(words(&jailed), words(&plain), "{program}");
        }
    });
}

#[test]
fn the_inside_cannot_keep_the_terminal_for_itself() {
    for_both(|world| {
        let mut screen = Screen::shell(world);
        // TIOCEXCL and TIOCSETD (to the same discipline), and what takes the first one back.
        let asks = |ioctl: &str, words: &str| {
            format!(
                "perl -e 'print ioctl(STDIN, {ioctl}) ? q(do).q(ne) : q(\"Err\") . ($!+0), qq(\\n)' {words}"
            )
        };
        let exclusive = asks("0x540c, 0", "");
        let discipline = asks("0x5423, my $x = pack(q(i), 0)", "");
        for ask in [&exclusive, &discipline] {
            let told = screen.runs(&format!("j {ask}"));
            has(&told, &["Err\"1"]);
            assert!(!told.contains("done"), "{told}");
        }
        let opens = "(: < $(tty)) 2>&1 && echo op''ens";
        has(&screen.runs(opens), &["opens"]);
        for ask in [&exclusive, &discipline, &asks("0x540d, 0", "")] {
            has(&screen.runs(ask), &["done"]);
        }
        // Flags of the open file, which all have in common: `O_ASYNC`.
        let flags = |change: &str| {
            format!(
                "perl -MFcntl -e '$f = fcntl(STDIN, F_GETFL, 0); {change}; print q(as).q(ync=), 0 + !!(fcntl(STDIN, F_GETFL, 0) & 0x2000), qq(\\n)'"
            )
        };
        let set = "fcntl(STDIN, F_SETFL, $f | 0x2000)";
        has(&screen.runs(&format!("j {}", flags(set))), &["async=1"]);
        has(&screen.runs(&flags("0")), &["async=0"]);
        has(&screen.runs(&flags(set)), &["async=1"]);
        has(&screen.runs(&flags("0")), &["async=1"]);
    });
}

#[test]
fn the_next_command_may_read_the_terminal() {
    for_both(|world| {
        // Without job control in between nobody but the launcher gives the terminal back.
        world.program("bin/around", "#!/bin/sh\nj \"$@\"\necho code=$?\nread x\necho got=$x\n");
        let mut screen = Screen::shell(world);
        for program in
            ["true", "sh -c 'kill -9 $$'", "sh -c '(trap \"\" HUP; exec sleep 100) & exit 3'"]
        {
            screen.types(&format!("around {program}"));
            screen.sees("code=");
            screen.types("words");
            screen.sees("got=words");
            screen.prompt();
        }
    });
}

#[test]
fn a_pipeline_and_the_background_work_like_those_of_any_program() {
    for_both(|world| {
        let mut screen = Screen::shell(world);
        assert_eq!(screen.runs("j printf 'a\\nb\\n' | cat").trim_end(), "a\r\nb");
        // Its standard input is the terminal, and cat has the foreground as well.
        screen.types("j sh -c 'read x; echo got=$x' | cat");
        screen.types("words");
        screen.sees("got=words");
        screen.prompt();
        screen.types(&format!("j sh -c \"{UP}; exec sleep 100\" | cat"));
        screen.sees("up");
        screen.settles();
        screen.press(CTRL_Z);
        has(&screen.prompt(), &["Stopped"]);
        screen.types("fg");
        screen.sees("cat");
        screen.settles();
        screen.press(CTRL_C);
        screen.prompt();
        screen.runs("j sh -c 'touch done; exit 3' &");
        assert!(wait_for(PATIENCE, || world.workspace.join("done").exists()));
        screen.runs("wait %1");
        assert_eq!(screen.code(), 3);
        // A background read stops it; in the foreground it goes on.
        screen.runs("j sh -c 'read x; echo got=$x' &");
        assert!(wait_for(PATIENCE, || screen.runs("jobs").contains("Stopped")));
        screen.types("fg");
        screen.sees("read x");
        screen.types("words");
        screen.sees("got=words");
        screen.prompt();
        // A job that runs in the background is brought to the front without a word to it.
        screen.runs("j sh -c 'while [ ! -e front ]; do sleep 0.05; done; read x; echo got=$x' &");
        screen.types("fg");
        screen.sees("read x");
        fs::write(world.workspace.join("front"), "").unwrap();
        screen.types("words");
        screen.sees("got=words");
        screen.prompt();
        let said = screen.runs("nohup j sh -c 'kill -HUP $PPID; echo fi''ne'; cat nohup.out");
        has(&said, &["fine"]);
    });
}

#[test]
fn a_stopped_or_killed_launcher_leaves_the_shell_its_terminal() {
    for_both(|world| {
        let mut screen = Screen::shell(world);
        let launcher = |screen: &Screen| *children(screen.pid()).first().unwrap();
        // What reads already when only the launcher is stopped goes on with that.
        let wait = "while [ ! -e front ]; do sleep 0.05; done";
        screen.types(&format!("j sh -c \"{UP}; {wait}; read x; echo got=\\$x\""));
        screen.sees("up");
        screen.settles();
        let pid = launcher(&screen);
        kill(pid, Signal::STOP);
        has(&screen.prompt(), &["Stopped"]);
        has(&screen.runs("echo fi''ne"), &["fine"]);
        screen.types("fg");
        screen.sees("read x");
        fs::write(world.workspace.join("front"), "").unwrap();
        screen.types("words");
        screen.sees("got=words");
        screen.prompt();
        screen.types(&format!("j sh -c \"{UP}; stty raw -echo; exec sleep 100\""));
        screen.sees("up");
        screen.settles();
        kill(launcher(&screen), Signal::KILL);
        screen.prompt();
        assert_eq!(screen.code(), 137);
    });
}

#[test]
fn it_works_where_no_shell_could_continue_it() {
    for_both(|world| {
        // The launcher leads the session itself, as under `ssh -t HOST PROGRAM`.
        let mut command = world.command("setsid");
        command.args([
            "-c",
            "j",
            "sh",
            "-c",
            &format!("{UP}; while read x; do echo got=$x; done; exit 4"),
        ]);
        let mut screen = Screen::start(world, command);
        screen.sees("up");
        screen.settles();
        screen.press(CTRL_Z);
        screen.types("words");
        screen.sees("got=words");
        screen.press("\x04");
        assert_eq!(screen.ends(), Some(4));
    });
}

#[test]
fn a_hung_up_terminal_ends_it() {
    for_both(|world| {
        let token = format!("3600.7{}", std::process::id());
        let mut screen = Screen::shell(world);
        screen.types(&format!("j sh -c \"{UP}; sleep {token}; sleep {token}\""));
        screen.sees("up");
        screen.settles();
        drop(screen);
        let gone = wait_for(PATIENCE, || crate::jail::processes(&token).is_empty());
        assert!(gone);
    });
}
