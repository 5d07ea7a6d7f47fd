//! The last stage: process 1 of the jail. It starts the program, hands on signals, reaps orphans
//! and ends with the program's code; the kernel then kills whatever else lives inside (law 8).
//!
//! bubblewrap starts it with the forwarded signals ignored and with its own standard error in
//! place of the caller's; both are put right here. It keeps no descriptor but 0, 1 and 2.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::RawFd;

use rustix::process::{Pid, WaitOptions, getpid, wait};
use serde::{Deserialize, Serialize};

use super::limits::Resources;
use super::{handover, sys};

/// What the launcher tells the last stage, as JSON in its first word. The inside can read it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Orders {
    /// The socket to the launcher: the last stage says that it is there, and waits for the word to
    /// go on.
    pub(super) status: RawFd,
    /// The caller's standard error.
    pub(super) errors: RawFd,
    /// What bounds the program.
    pub(super) resources: Resources,
    /// The program's environment; this process has none of it.
    pub(super) environment: RawFd,
    /// The pipe with the keys for the program (law 15).
    pub(super) secrets: Option<RawFd>,
}

/// Runs `words`: the orders, the program and its arguments. Returns the code to exit with.
pub(super) fn run(words: Vec<OsString>) -> u8 {
    match start(words) {
        Ok(code) => code,
        Err(error) => {
            report(&format!("the last stage cannot work: {error}"));
            super::FAILED
        }
    }
}

fn start(words: Vec<OsString>) -> io::Result<u8> {
    // Started by hand it would run the program without any jail (law 11).
    if getpid() != Pid::INIT {
        return Err(io::Error::other(
            "it is not process 1 of a jail: use `kli-sandbox run --spec FILE -- PROGRAM`",
        ));
    }
    // It lives as long as the jail, with all that the program is given: nobody inside reads its
    // environment or its memory, as the program may have wiped its own (prctl(2), law 15).
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    let mut words = words.into_iter();
    let orders: Orders = words
        .next()
        .and_then(|word| serde_json::from_str(word.to_str()?).ok())
        .ok_or(io::ErrorKind::InvalidInput)?;
    sys::block_signals(&sys::FORWARDED)?;
    sys::default_dispositions();
    let status = sys::inherited(orders.status)?;
    rustix::stdio::dup2_stderr(sys::inherited(orders.errors)?)?;
    // A launcher that died during the set-up closed the other end: then nothing is started. Nor is
    // anything before it has put in place what watches the jail.
    rustix::io::write(&status, b"R")?;
    let mut go = [0];
    if rustix::io::read(&status, &mut go)? == 0 {
        return Ok(super::FAILED);
    }
    drop(status);
    let secrets = orders.secrets.map(sys::inherited).transpose()?;
    let mut environment = handover::receive(sys::inherited(orders.environment)?)?;
    handover::keep(secrets, &mut environment)?;
    orders.resources.take_on()?;

    let words: Vec<OsString> = words.collect();
    // A group of its own, so that what a terminal would send to all reaches all of them.
    let program = match sys::spawn(&words, &environment) {
        Ok(program) => {
            // The program has them now.
            sys::close_from(3)?;
            program
        }
        Err(error) => {
            let name = words.first().map(|word| word.to_string_lossy()).unwrap_or_default();
            let name = super::plan::printable(&name);
            if error.raw_os_error() == Some(libc::ENOENT) {
                report(&format!("`{name}` is not found inside: is it installed, and on PATH?"));
                return Ok(127);
            }
            report(&format!("`{name}` cannot be executed: {error}"));
            return Ok(126);
        }
    };
    loop {
        match sys::wait_signal()? {
            libc::SIGCHLD => {
                while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
                    if pid.as_raw_nonzero().get() == program {
                        let signal = status.terminating_signal().map(|signal| 128 + signal);
                        let code = status.exit_status().or(signal).unwrap_or(255);
                        return Ok(u8::try_from(code).unwrap_or(255));
                    }
                }
            }
            signal @ (libc::SIGINT | libc::SIGQUIT | libc::SIGWINCH) => {
                sys::kill(-program, signal);
            }
            signal => sys::kill(program, signal),
        }
    }
}

fn report(text: &str) {
    // Nobody is left to tell when this fails.
    drop(writeln!(io::stderr(), "kli-sandbox: {text}"));
}
