//! A terminal with somebody at it: a pseudo-terminal, a shell with job control on it, keys that are
//! pressed and a screen that is read.

#![expect(clippy::unwrap_used, clippy::panic, reason = "test support")]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::jail::World;

/// What the shell prints when it waits for a command.
const PROMPT: &str = "<ready>";

/// How long anything may take on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// The terminal and what runs on it.
pub(crate) struct Screen {
    master: File,
    seen: Vec<u8>,
    /// Up to where it has been read by the test.
    place: usize,
    child: Child,
}

/// The other side of a new terminal, given to the world's user.
fn terminal(world: &World) -> (File, OwnedFd) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let slave = rustix::fs::open(name, flags, Mode::empty()).unwrap();
    world.own_handle(&slave);
    (File::from(master), slave)
}

impl Screen {
    /// A shell with job control. In it `j PROGRAM …` runs a program in the world's jail.
    pub(crate) fn shell(world: &World) -> Self {
        let mut command = world.command("setsid");
        command.args([
            "-c",
            "env",
            "--default-signal",
            "bash",
            "--norc",
            "--noprofile",
            "--noediting",
            "-i",
        ]);
        let mut screen = Self::start(world, command);
        screen.sees(PROMPT);
        screen
    }

    /// A command that starts with `setsid -c`, so that it has the terminal as its own.
    pub(crate) fn start(world: &World, mut command: Command) -> Self {
        let script = format!(
            "#!/bin/sh\nexec '{}' run --spec '{}' -- \"$@\"\n",
            world.launcher().display(),
            world.spec_file().display()
        );
        world.program("bin/j", &script);
        let (master, slave) = terminal(world);
        let path = format!("{}:/usr/bin:/bin:/usr/sbin:/sbin", world.root.join("bin").display());
        command.env("PATH", path).env("PS1", PROMPT).env("TERM", "xterm");
        let child = command
            .stdin(Stdio::from(slave.try_clone().unwrap()))
            .stdout(Stdio::from(slave.try_clone().unwrap()))
            .stderr(Stdio::from(slave))
            .spawn()
            .unwrap();
        drop(command);
        Self { master, seen: Vec::new(), place: 0, child }
    }

    /// Presses keys.
    pub(crate) fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    /// Types a line.
    pub(crate) fn types(&mut self, line: &str) {
        self.press(&format!("{line}\n"));
    }

    /// Waits for a text and returns what came before it.
    #[track_caller]
    pub(crate) fn sees(&mut self, text: &str) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let new = &self.seen[self.place..];
            let found = new.windows(text.len()).position(|part| part == text.as_bytes());
            if let Some(at) = found {
                let before = String::from_utf8_lossy(&new[..at]).into_owned();
                self.place += at + text.len();
                return before;
            }
            let so_far = String::from_utf8_lossy(new);
            assert!(Instant::now() < end, "`{text}` is not seen: {so_far:?}");
            self.look();
        }
    }

    /// Reads what is there, or comes soon.
    fn look(&mut self) {
        let mut polled = [PollFd::new(&self.master, PollFlags::IN)];
        let soon = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        if poll(&mut polled, Some(&soon)).unwrap() == 1 {
            let mut piece = [0; 4096];
            // Nobody has it open any more: the same as nothing.
            let length = self.master.read(&mut piece).unwrap_or(0);
            self.seen.extend_from_slice(&piece[..length]);
        }
    }

    /// Waits as long as somebody does who has read what is there and looks for the key.
    pub(crate) fn settles(&mut self) {
        std::thread::sleep(Duration::from_millis(300));
        self.look();
    }

    /// Types a command, waits for the next prompt and returns what was printed, without the echo.
    #[track_caller]
    pub(crate) fn runs(&mut self, line: &str) -> String {
        self.types(line);
        self.sees("\n");
        self.prompt()
    }

    /// Waits for the prompt and returns what came before it.
    #[track_caller]
    pub(crate) fn prompt(&mut self) -> String {
        self.sees(PROMPT)
    }

    /// The code of the last command, as the shell tells it.
    #[track_caller]
    pub(crate) fn code(&mut self) -> i32 {
        let text = self.runs("echo $?");
        text.trim().parse().unwrap_or_else(|_| panic!("{text:?}"))
    }

    /// Changes the size.
    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.master, size).unwrap();
    }

    /// The number of the process on the terminal.
    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// Waits for the end of what was started.
    pub(crate) fn ends(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}
