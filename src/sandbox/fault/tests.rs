#![expect(
    clippy::disallowed_methods,
    clippy::zombie_processes,
    reason = "a test starts itself anew to be at fault, and what that started is reaped by the fault"
)]

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

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
    is_monitor(inside.id().try_into().unwrap());
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
