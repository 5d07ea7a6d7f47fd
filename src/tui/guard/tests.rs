use rustix::{
    fs::{Mode, OFlags},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, Winsize, tcsetwinsize},
};

use super::*;

fn terminal() -> (OwnedFd, OwnedFd) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let slave = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&master, size).unwrap();
    (master, slave)
}

fn modes(
    terminal: &OwnedFd,
) -> (LocalModes, rustix::termios::InputModes, rustix::termios::OutputModes) {
    let modes = tcgetattr(terminal).unwrap();
    (modes.local_modes, modes.input_modes, modes.output_modes)
}

/// Reads what was written and says which private modes are on.
fn screen(master: &OwnedFd) -> vt100::Parser {
    let mut parser = vt100::Parser::new(24.try_into().unwrap(), 80.try_into().unwrap(), 0);
    let mut bytes = [0; 4096];
    let soon = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    while poll(&mut [PollFd::new(master, PollFlags::IN)], Some(&soon)).unwrap() > 0 {
        let length = rustix::io::read(master, &mut bytes).unwrap();
        parser.process(&bytes[..length]);
    }
    parser
}

fn is_sane(parser: &vt100::Parser) {
    let screen = parser.screen();
    assert!(!screen.hide_cursor() && !screen.bracketed_paste());
}

#[test]
fn every_way_out_puts_the_terminal_back() {
    type Way = fn(Guard);
    let ways: [(&str, Way); 4] = [
        ("the end", |guard| drop(guard)),
        ("a fault", |guard| {
            let fault = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
                let _held = guard;
                panic!("a fault");
            }));
            assert!(fault.is_err());
        }),
        ("an error", |guard| {
            let fails = move || -> io::Result<()> {
                let _held = guard;
                Err(io::ErrorKind::Other.into())
            };
            assert!(fails().is_err());
        }),
        ("twice", |guard| {
            Guard::leave();
            guard.enter_again().unwrap();
            Guard::leave();
            Guard::leave();
            drop(guard);
        }),
    ];
    for (name, way) in ways {
        let (master, slave) = terminal();
        let before = modes(&slave);
        let guard = Guard::enter(slave.try_clone().unwrap()).unwrap();
        let within = screen(&master);
        assert!(within.screen().hide_cursor() && within.screen().bracketed_paste(), "control");
        assert!(!modes(&slave).0.contains(LocalModes::ECHO), "control: {name}");
        // In the middle of a frame.
        write(&slave, b"\x1b[?2026h\x1b[?7lhalf \x1b[3", None).unwrap();
        way(guard);
        assert_eq!(modes(&slave), before, "{name}");
        is_sane(&screen(&master));
    }
}

#[test]
fn the_hook_puts_it_back_before_the_message() {
    let (master, slave) = terminal();
    let before = modes(&slave);
    let guard = Guard::enter(slave.try_clone().unwrap()).unwrap();
    // A thread of its own: nothing unwinds through the guard.
    let fault = std::thread::spawn(|| panic!("a fault elsewhere")).join();
    assert!(fault.is_err());
    assert_eq!(modes(&slave), before);
    // The interface that outlives it knows, and comes back.
    assert!(Guard::is_out());
    guard.enter_again().unwrap();
    assert!(!Guard::is_out());
    assert_ne!(modes(&slave), before, "control");
    drop(guard);
    is_sane(&screen(&master));
}

#[test]
fn what_is_no_terminal_is_refused() {
    let file = tempfile::tempfile().unwrap();
    assert!(Guard::enter(file.into()).is_err());
}

/// Fills a terminal that nobody reads.
fn fill(slave: &OwnedFd) {
    let none = Timespec { tv_sec: 0, tv_nsec: 0 };
    while poll(&mut [PollFd::new(slave, PollFlags::OUT)], Some(&none)).unwrap() > 0 {
        rustix::io::write(slave, &[b'x'; 512]).unwrap();
    }
}

#[test]
fn a_terminal_that_nobody_reads_is_put_back_all_the_same() {
    let (master, slave) = terminal();
    let before = modes(&slave);
    let guard = Guard::enter(slave.try_clone().unwrap()).unwrap();
    fill(&slave);
    let start = Instant::now();
    drop(guard);
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert_eq!(modes(&slave), before);
    // It can be entered as well.
    let guard = Guard::enter(slave.try_clone().unwrap()).unwrap();
    assert_ne!(modes(&slave), before, "control");
    drop(guard);
    assert_eq!(modes(&slave), before);
    drop(master);
}

#[test]
fn a_frame_waits_while_the_terminal_is_somebody_elses() {
    let (master, slave) = terminal();
    let guard = Guard::enter(slave.try_clone().unwrap()).unwrap();
    drop(screen(&master));
    fill(&slave);
    let rows: Vec<String> = (0..20_000).map(|n| format!("row {n}")).collect();
    let frame = format!("\r\n{}", rows.join("\r\n"));
    let writer = {
        let slave = slave.try_clone().unwrap();
        std::thread::spawn(move || write_frame(&slave, &frame))
    };
    let mut bytes = Vec::new();
    // A part of it is read, and then the terminal is taken back.
    read_some(&master, &mut bytes, |bytes| bytes.windows(8).any(|part| part == b"row 1000"));
    let reader = {
        let master = master.try_clone().unwrap();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            read_some(&master, &mut bytes, |bytes| bytes.ends_with(b"\x1b[0m"));
            bytes
        })
    };
    Guard::leave();
    bytes.extend(reader.join().unwrap());
    std::thread::sleep(Duration::from_millis(50));
    assert!(!writer.is_finished(), "control");
    rustix::io::write(&slave, b"the shell says\n").unwrap();
    read_some(&master, &mut bytes, |bytes| bytes.ends_with(b"says\r\n"));
    let until = bytes.len();
    guard.enter_again().unwrap();
    read_some(&master, &mut bytes, |bytes| bytes.ends_with(b"row 19999"));
    writer.join().unwrap().unwrap();
    drop(guard);
    // Every row is there once, whole, and the shell's between two of them.
    let mut parser = vt100::Parser::new(24.try_into().unwrap(), 80.try_into().unwrap(), 30_000);
    parser.process(b"\r\n");
    parser.process(&bytes);
    let said = String::from_utf8_lossy(&bytes[..until]).into_owned();
    assert!(said.contains("the shell says"), "control");
    let screen = parser.screen_mut();
    screen.set_scrollback(usize::MAX);
    let above = screen.scrollback();
    let mut all = Vec::new();
    for offset in (1..=above).rev() {
        screen.set_scrollback(offset);
        all.extend(screen.rows(0, 80).next());
    }
    screen.set_scrollback(0);
    all.extend(screen.rows(0, 80));
    let found: Vec<&str> =
        all.iter().map(|row| row.trim_end()).filter(|row| row.starts_with("row ")).collect();
    assert_eq!(found, rows);
    let shell = all.iter().position(|row| row.trim_end() == "the shell says").unwrap();
    assert!(all[..shell].iter().any(|row| row.starts_with("row 1000")));
}

/// Reads until something is so.
fn read_some(master: &OwnedFd, bytes: &mut Vec<u8>, is: impl Fn(&[u8]) -> bool) {
    let mut piece = [0; 4096];
    let soon = Timespec { tv_sec: 20, tv_nsec: 0 };
    while !is(bytes) {
        let ready = poll(&mut [PollFd::new(master, PollFlags::IN)], Some(&soon)).unwrap();
        assert!(
            ready > 0,
            "{}",
            String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(300)..])
        );
        let length = rustix::io::read(master, &mut piece).unwrap();
        bytes.extend_from_slice(&piece[..length]);
    }
}
