//! The terminal interface as a person has it: real programs on a pseudo-terminal, read through a
//! terminal emulator. What is asserted is the screen, what scrolled off it, and the terminal's modes.

mod approval;
mod choices;
mod editor;
mod faults;
mod forged;
mod full;
mod hostile;
mod jailed;
mod life;
mod load;
mod looks;
mod modes;
mod picking;
mod plain;
mod screens;
mod talk;
mod tmux;
mod undo;

use std::{
    fs::File,
    io::{Read as _, Write as _},
    os::fd::OwnedFd,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags},
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Termios, Winsize, tcgetattr, tcsetwinsize},
};

use crate::{harness::Env, jail::World};

use modes::Modes;

/// How long anything may take on a machine that is busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A terminal and what runs on it.
pub(crate) struct Tty {
    master: File,
    slave: OwnedFd,
    /// The terminal as it was before the program came.
    before: Termios,
    pub(crate) parser: vt100::Parser,
    /// Every byte that was written.
    pub(crate) bytes: Vec<u8>,
    child: Child,
}

/// Settings that let a recording be the model.
pub(crate) fn replay(env: &Env, recording: &str) {
    let file = env.home().join("recording.jsonl");
    std::fs::write(&file, recording).unwrap();
    env.settings(&format!(
        r#"{{"model": "replay/x", "providers": {{"replay": {{"file": "{}"}}}}}}"#,
        file.display()
    ));
}

impl Tty {
    /// Starts kli on a terminal of 24 rows and 80 columns.
    pub(crate) fn kli(env: &Env, words: &[&str]) -> Self {
        Self::sized(env, words, 24, 80)
    }

    pub(crate) fn sized(env: &Env, words: &[&str], rows: u16, columns: u16) -> Self {
        let kli = env.command(words);
        Self::start(&kli, rows, columns)
    }

    /// Starts a shell with job control; `kli` is on its path.
    pub(crate) fn shell(env: &Env) -> Self {
        let bin = env.home().join("bin");
        std::fs::create_dir_all(&bin).unwrap();
        let link = bin.join("kli");
        if !link.exists() {
            std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_kli"), link).unwrap();
        }
        let mut shell = env.command(&[]);
        shell.env("PATH", format!("{}:/usr/bin:/bin", bin.display())).env("PS1", "<ready>");
        let mut bash = Command::new("bash");
        bash.args(["--norc", "--noprofile", "--noediting", "-i"]);
        copy(&shell, &mut bash);
        let mut tty = Self::start(&bash, 24, 80);
        tty.sees("<ready>");
        tty.before = tcgetattr(&tty.slave).unwrap();
        tty
    }

    /// Starts a shell with job control in a world; there `j PROGRAM …` runs a program in its jail.
    pub(crate) fn shell_in(world: &World) -> Self {
        let script = format!(
            "#!/bin/sh\nexec '{}' run --spec '{}' -- \"$@\"\n",
            world.launcher().display(),
            world.spec_file().display()
        );
        world.program("bin/j", &script);
        let path = format!("{}:/usr/bin:/bin:/usr/sbin:/sbin", world.root.join("bin").display());
        let mut command = world.command("setsid");
        command.args(["-c", "env", "--default-signal", "bash", "--norc", "--noprofile"]);
        command.args(["--noediting", "-i"]);
        command.env("PATH", path).env("PS1", "<ready>").env("TERM", "xterm-256color");
        let mut tty = Self::attach(command, 24, 80, |slave| world.own_handle(slave));
        tty.sees("<ready>");
        tty.before = tcgetattr(&tty.slave).unwrap();
        tty
    }

    /// Starts kli on a terminal that does not control it, so that no signal says when it goes away.
    pub(crate) fn uncontrolled(env: &Env, words: &[&str]) -> Self {
        let mut command = Command::new("setsid");
        command.arg("env").arg("--default-signal");
        let kli = env.command(words);
        command.arg(kli.get_program()).args(kli.get_args());
        copy(&kli, &mut command);
        command.env("TERM", "xterm-256color");
        Self::attach(command, 24, 80, |_| {})
    }

    fn start(program: &Command, rows: u16, columns: u16) -> Self {
        let mut command = Command::new("setsid");
        command.arg("-c").arg("env").arg("--default-signal").arg(program.get_program());
        command.args(program.get_args());
        copy(program, &mut command);
        if !command.get_envs().any(|(name, _)| name == "TERM") {
            command.env("TERM", "xterm-256color");
        }
        Self::attach(command, rows, columns, |_| {})
    }

    fn attach(mut command: Command, rows: u16, columns: u16, own: impl Fn(&OwnedFd)) -> Self {
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = rustix::fs::open(name, flags, Mode::empty()).unwrap();
        own(&slave);
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&master, size).unwrap();
        let before = tcgetattr(&slave).unwrap();
        let child = command
            .stdin(Stdio::from(slave.try_clone().unwrap()))
            .stdout(Stdio::from(slave.try_clone().unwrap()))
            .stderr(Stdio::from(slave.try_clone().unwrap()))
            .spawn()
            .unwrap();
        let parser =
            vt100::Parser::new(rows.try_into().unwrap(), columns.try_into().unwrap(), 100_000);
        Self { master: File::from(master), slave, before, parser, bytes: Vec::new(), child }
    }

    /// Presses keys.
    pub(crate) fn press(&mut self, keys: &str) {
        self.send(keys.as_bytes());
    }

    /// Sends bytes, and reads meanwhile: a terminal has room for few.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(512) {
            self.look(Duration::ZERO);
            self.master.write_all(piece).unwrap();
        }
    }

    /// Reads what is there, or comes within a time; says whether there was something.
    pub(crate) fn look(&mut self, wait: Duration) -> bool {
        let mut polled = [PollFd::new(&self.master, PollFlags::IN)];
        let wait = Timespec::try_from(wait).unwrap();
        if poll(&mut polled, Some(&wait)).unwrap() == 0 {
            return false;
        }
        let mut piece = [0; 8192];
        let length = self.master.read(&mut piece).unwrap_or(0);
        self.parser.process(&piece[..length]);
        self.bytes.extend_from_slice(&piece[..length]);
        length > 0
    }

    /// What the screen shows.
    pub(crate) fn screen(&self) -> String {
        self.parser.screen().contents()
    }

    /// Waits until a text is on the screen.
    #[track_caller]
    pub(crate) fn sees(&mut self, text: &str) {
        self.until(text, |screen| screen.contains(text));
    }

    /// Waits until the screen is as it should be.
    #[track_caller]
    pub(crate) fn until(&mut self, what: &str, is: impl Fn(&str) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is(&self.screen()) {
            assert!(Instant::now() < end, "`{what}` is not seen:\n{}", self.screen());
            self.look(Duration::from_millis(20));
        }
    }

    /// Reads until nothing comes for a while; a clock that runs on the screen is given two seconds.
    pub(crate) fn settles(&mut self) {
        let end = Instant::now() + Duration::from_secs(2);
        while Instant::now() < end && self.look(Duration::from_millis(250)) {}
    }

    /// Everything: what scrolled off, and the screen.
    pub(crate) fn all(&mut self) -> Vec<String> {
        let screen = self.parser.screen_mut();
        let columns = screen.size().1.get();
        screen.set_scrollback(usize::MAX);
        let above = screen.scrollback();
        let mut rows = Vec::new();
        for offset in (1..=above).rev() {
            screen.set_scrollback(offset);
            rows.extend(screen.rows(0, columns).next());
        }
        screen.set_scrollback(0);
        rows.extend(screen.rows(0, columns));
        rows.iter().map(|row| row.trim_end().to_owned()).collect()
    }

    /// Changes the size.
    pub(crate) fn resize(&mut self, rows: u16, columns: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        self.parser.set_size(rows.try_into().unwrap(), columns.try_into().unwrap());
        tcsetwinsize(&self.master, size).unwrap();
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Waits for the end without reading anything, and returns the exit code.
    #[track_caller]
    pub(crate) fn ends_unread(&mut self) -> Option<i32> {
        let end = Instant::now() + 2 * PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < end, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for the end and returns the exit code.
    #[track_caller]
    pub(crate) fn ends(&mut self) -> Option<i32> {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                self.settles();
                return status.code();
            }
            assert!(Instant::now() < end, "it does not end:\n{}", self.screen());
            self.look(Duration::from_millis(20));
        }
    }

    /// What of the terminal is not as it was before the program came: its settings in the kernel, and
    /// every mode that was switched by what was written.
    pub(crate) fn left(&self) -> Vec<String> {
        let modes = Modes::of(&self.bytes);
        let mut left = modes.left();
        if let Some(change) = self.changed() {
            left.push(change);
        }
        if self.parser.screen().alternate_screen() {
            left.push("the alternate screen".to_owned());
        }
        left
    }

    /// What the kernel keeps of the terminal and was not there before.
    pub(crate) fn changed(&self) -> Option<String> {
        let now = tcgetattr(&self.slave).unwrap();
        let flags = |of: &Termios| {
            let Termios { input_modes, output_modes, control_modes, local_modes, .. } = of;
            format!("{input_modes:?} {output_modes:?} {control_modes:?} {local_modes:?}")
        };
        let keys = format!("{:?}", now.special_codes) == format!("{:?}", self.before.special_codes);
        let same = flags(&now) == flags(&self.before) && keys;
        (!same).then(|| format!("{} instead of {}", flags(&now), flags(&self.before)))
    }

    /// Whether nothing that kli sets is left, whatever an editor may have left besides.
    pub(crate) fn is_sane(&self) -> bool {
        let modes = Modes::of(&self.bytes);
        self.changed().is_none() && !modes.is_on(2004) && modes.is_on(25) && modes.keyboard == 0
    }

    /// Whether the terminal is in the interface's modes: keys come raw, pastes are bracketed, the
    /// keyboard's flags are pushed, and the cursor is hidden since it is drawn.
    pub(crate) fn is_taken(&self) -> bool {
        let modes = Modes::of(&self.bytes);
        self.changed().is_some() && modes.is_on(2004) && !modes.is_on(25) && modes.keyboard == 1
    }

    /// The most memory that the process ever had, in bytes (`VmHWM`, `proc_pid_status(5)`).
    pub(crate) fn peak(&self) -> u64 {
        let status = format!("/proc/{}/status", self.pid().as_raw_nonzero());
        let status = std::fs::read_to_string(status).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }
}

impl Drop for Tty {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Copies the environment and the directory of a command.
fn copy(from: &Command, to: &mut Command) {
    to.env_clear();
    for (name, value) in from.get_envs() {
        if let Some(value) = value {
            to.env(name, value);
        }
    }
    if let Some(directory) = from.get_current_dir() {
        to.current_dir(directory);
    }
}
