#![expect(
    clippy::disallowed_methods,
    clippy::zombie_processes,
    reason = "a test starts itself anew to be at fault, and what that started is reaped by the fault"
)]

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::process::test_kill_process;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use super::*;

/// Tells the test below that it is the process at fault.
const AT_FAULT: &str = "KLI_TEST_AT_FAULT";

/// Not a test of its own: started by the other one.
#[test]
fn a_process_at_fault() {
    if std::env::var_os(AT_FAULT).is_none() {
        return;
    }
    prepare();
    let _terminal = terminal::Terminal::now();
    let mut modes = tcgetattr(io::stdin()).unwrap();
    modes.make_raw();
    tcsetattr(io::stdin(), OptionalActions::Now, &modes).unwrap();
    let inside = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
    is_monitor(inside.id().try_into().unwrap(), false);
    // On the terminal, which takes it as it is now.
    eprintln!("inside {}", inside.id());
    let none: [u8; 0] = [];
    let _fault = none[inside.id() as usize];
}

#[test]
fn a_fault_of_its_own_ends_the_inside_puts_the_terminal_back_and_is_told() {
    let master = rustix::pty::openpt(rustix::pty::OpenptFlags::RDWR).unwrap();
    rustix::pty::grantpt(&master).unwrap();
    rustix::pty::unlockpt(&master).unwrap();
    let name = rustix::pty::ptsname(&master, Vec::new()).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY;
    let terminal = rustix::fs::open(name, flags, Mode::empty()).unwrap();
    let before = tcgetattr(&terminal).unwrap();
    assert!(before.local_modes.contains(LocalModes::ICANON));
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "sandbox::fault::tests::a_process_at_fault", "--nocapture"])
        .args(["--test-threads", "1"])
        .env(AT_FAULT, "1")
        .stdin(terminal.try_clone().unwrap())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    let inside: i32 = line.trim().strip_prefix("inside ").unwrap().parse().unwrap();
    let mut words = String::new();
    said.read_to_string(&mut words).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(FAILED.into()), "{words}");
    assert!(words.starts_with("kli-sandbox: a fault of its own at "), "{words}");
    assert!(words.contains("index out of bounds") && words.ends_with("please report it\n"));
    assert_eq!(words.lines().count(), 1, "{words}");
    assert!(test_kill_process(Pid::from_raw(inside).unwrap()).is_err());
    let after = tcgetattr(&terminal).unwrap();
    assert_eq!(after.local_modes, before.local_modes);
    assert_eq!(after.input_modes, before.input_modes);
}

/// The same for process 1 of a jail.
const AT_FAULT_IN_THE_JAIL: &str = "KLI_TEST_AT_FAULT_IN_THE_JAIL";

/// Not a test of its own: started by the next one, as process 1 of a namespace.
#[test]
fn a_last_stage_at_fault() {
    let Some(token) = std::env::var_os(AT_FAULT_IN_THE_JAIL) else { return };
    assert_eq!(rustix::process::getpid(), Pid::INIT);
    prepare();
    let inside = Command::new("sleep").arg(token).stdin(Stdio::null()).spawn().unwrap();
    is_last_stage();
    println!("inside");
    let _told = io::stdin().read(&mut [0]).unwrap();
    let none: [u8; 0] = [];
    let _fault = none[inside.id() as usize];
}

/// Waits until a `sleep` for this long is there, or is gone.
fn comes_to(token: &str, there: bool) -> bool {
    let words = format!("sleep\0{token}\0").into_bytes();
    let lives = || {
        let mut all = std::fs::read_dir("/proc").unwrap().flatten();
        all.any(|entry| std::fs::read(entry.path().join("cmdline")).is_ok_and(|it| it == words))
    };
    let end = Instant::now() + Duration::from_secs(20);
    while lives() != there && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
    lives() == there
}

#[test]
fn a_fault_of_process_1_ends_the_inside_also_when_nobody_reads_what_it_says() {
    let token = format!("600.{}", std::process::id());
    let (reader, errors) = std::io::pipe().unwrap();
    // Until nothing more goes in.
    let flags = rustix::fs::fcntl_getfl(&errors).unwrap();
    rustix::fs::fcntl_setfl(&errors, flags | OFlags::NONBLOCK).unwrap();
    while rustix::io::write(&errors, &[b'x'; 4096]).is_ok() {}
    while rustix::io::write(&errors, b"x").is_ok() {}
    rustix::fs::fcntl_setfl(&errors, flags).unwrap();
    let mut child = Command::new("bwrap")
        .args(["--unshare-user", "--unshare-pid", "--as-pid-1", "--die-with-parent"])
        .args(["--dev-bind", "/", "/", "--proc", "/proc"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "sandbox::fault::tests::a_last_stage_at_fault", "--nocapture"])
        .args(["--test-threads", "1"])
        .env(AT_FAULT_IN_THE_JAIL, &token)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(errors)
        .spawn()
        .unwrap();
    let said = BufReader::new(child.stdout.take().unwrap());
    assert!(said.lines().map_while(Result::ok).any(|line| line.contains("inside")));
    assert!(comes_to(&token, true), "control");
    drop(child.stdin.take());
    let ended = comes_to(&token, false);
    let waits = child.try_wait().unwrap().is_none();
    let mut words = Vec::new();
    (&reader).read_to_end(&mut words).unwrap();
    assert!(ended && waits, "{ended} {waits}");
    assert_eq!(child.wait().unwrap().code(), Some(FAILED.into()));
    let words = String::from_utf8(words).unwrap();
    let words = words.trim_start_matches('x');
    assert!(words.starts_with("kli-sandbox: a fault of its own at "), "{words}");
    assert_eq!(words.lines().count(), 1, "{words}");
}
