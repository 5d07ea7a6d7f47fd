//! What the terminal interface costs: `cargo bench --bench terminal`.
//!
//! The built program on a pseudo-terminal against a model on loopback. Times depend on the machine, so
//! the first paint stands beside the start of a process that does nothing, and the latency of a key
//! while much streams beside that of a key when nothing happens, in the same run.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a benchmark starts programs and prints figures"
)]

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpListener,
    os::fd::OwnedFd,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};

const KLI: &str = env!("CARGO_BIN_EXE_kli");

/// What a model says: this often a second, so many bytes of text at once.
#[derive(Clone, Copy)]
struct Pace {
    deltas: u32,
    bytes: usize,
}

/// kli on a terminal of 24 rows and 80 columns that is read at once.
struct Tty {
    master: File,
    _slave: OwnedFd,
    child: Child,
    bytes: Vec<u8>,
}

impl Tty {
    fn start(home: &Path, words: &[&str], settings: &str) -> Self {
        let directory = home.join(".config/kli");
        fs::create_dir_all(&directory).unwrap();
        fs::create_dir_all(home.join("work")).unwrap();
        fs::write(directory.join("settings.json"), settings).unwrap();
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = rustix::fs::open(name, flags, Mode::empty()).unwrap();
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&master, size).unwrap();
        let end = || Stdio::from(slave.try_clone().unwrap());
        let child = Command::new(KLI)
            .args(words)
            .current_dir(home.join("work"))
            .env_clear()
            .envs([("HOME", home.as_os_str()), ("PATH", "/usr/bin:/bin".as_ref())])
            .envs([("TERM", "xterm-256color"), ("LANG", "C.UTF-8")])
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        Self { master: File::from(master), _slave: slave, child, bytes: Vec::new() }
    }

    fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    /// Reads what comes within a time.
    fn look(&mut self, wait: Duration) -> bool {
        let wait = Timespec::try_from(wait).unwrap();
        if poll(&mut [PollFd::new(&self.master, PollFlags::IN)], Some(&wait)).unwrap() == 0 {
            return false;
        }
        let mut piece = [0; 16 * 1024];
        let length = self.master.read(&mut piece).unwrap_or(0);
        self.bytes.extend_from_slice(&piece[..length]);
        length > 0
    }

    /// Reads on until a text was written after a place.
    fn until(&mut self, text: &str, from: usize) {
        let end = Instant::now() + Duration::from_mins(1);
        let mut at = from;
        while !self.bytes[at..].windows(text.len()).any(|part| part == text.as_bytes()) {
            assert!(Instant::now() < end, "`{text}` is not written");
            at = self.bytes.len().saturating_sub(text.len()).max(from);
            self.look(Duration::from_millis(100));
        }
    }

    fn sees(&mut self, text: &str) {
        self.until(text, 0);
    }

    fn settles(&mut self) {
        while self.look(Duration::from_millis(300)) {}
    }

    fn reads_for(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            self.look(left);
        }
    }

    fn proc(&self, file: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).unwrap()
    }

    /// Ticks of processor time, and how often any of its threads was woken up.
    fn work(&self) -> (u64, u64) {
        let stat = self.proc("stat");
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let mut wakes = 0;
        for task in fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap() {
            let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
            let count = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"));
            wakes += count.unwrap().trim().parse::<u64>().unwrap();
        }
        (fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap(), wakes)
    }

    fn resident(&self, what: &str) -> f64 {
        let status = self.proc("status");
        let line = status.lines().find_map(|line| line.strip_prefix(what)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0
    }

    fn leave(mut self) {
        self.press("\x03\x03");
        let end = Instant::now() + Duration::from_secs(10);
        while self.child.try_wait().unwrap().is_none() && Instant::now() < end {
            self.look(Duration::from_millis(10));
        }
    }
}

impl Drop for Tty {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// A model that talks at a pace until it is told to stop; returns its address.
fn model(pace: Pace, stop: &Arc<AtomicBool>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let stop = Arc::clone(stop);
    thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let mut reader = BufReader::new(connection.try_clone().unwrap());
            let mut length = 0;
            let mut line = String::new();
            while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
                if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            reader.read_exact(&mut vec![0; length]).unwrap();
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n\
                event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"type\":\"message\",\
                \"role\":\"assistant\",\"model\":\"m\",\"content\":[],\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}}\n\n\
                event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\
                \"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n";
            let mut sent = connection.write_all(head.as_bytes());
            let start = Instant::now();
            let mut deltas = 0;
            while sent.is_ok() && !stop.load(Ordering::Relaxed) {
                let due = (start.elapsed().as_secs_f64() * f64::from(pace.deltas)) as u32;
                let mut out = String::new();
                while deltas < due {
                    deltas += 1;
                    out.push_str(&delta(deltas, pace.bytes));
                }
                sent = connection.write_all(out.as_bytes());
                thread::sleep(Duration::from_millis(1));
            }
            let end = "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n\
                event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\
                \"usage\":{\"output_tokens\":9}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
            drop(sent.and_then(|()| connection.write_all(end.as_bytes())));
        }
    });
    address
}

/// A delta; every 60th ends a paragraph.
fn delta(number: u32, bytes: usize) -> String {
    let mut text: String = "word of a model ".chars().cycle().take(bytes).collect();
    if number.is_multiple_of(60) {
        text.push_str("\\n\\n");
    }
    format!(
        "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\
         \"delta\":{{\"type\":\"text_delta\",\"text\":\"{text}\"}}}}\n\n"
    )
}

fn at(address: &str) -> String {
    format!(
        r#"{{"model": "local/m", "providers": {{"local": {{"kind": "anthropic", "baseUrl": "{address}"}}}}}}"#
    )
}

/// Returns the median, the 95th of a hundred, and the most, in milliseconds.
fn spread(mut times: Vec<Duration>) -> (f64, f64, f64) {
    times.sort();
    let ms = |index: usize| times[index.min(times.len() - 1)].as_secs_f64() * 1000.0;
    (ms(times.len() / 2), ms(times.len() * 95 / 100), ms(times.len()))
}

/// Presses keys that nothing else writes, and measures when each is on the screen.
fn keys(tty: &mut Tty, count: u32) -> Vec<Duration> {
    let mut times = Vec::new();
    for number in 0..count {
        // Between keys, some time that is no multiple of a frame.
        tty.reads_for(Duration::from_millis(37 + u64::from(number * 7 % 23)));
        let key = char::from_u32(0x4e00 + number).unwrap().to_string();
        let from = tty.bytes.len();
        let start = Instant::now();
        tty.press(&key);
        tty.until(&key, from);
        times.push(start.elapsed());
    }
    times
}

fn first_paint(home: &Path, settings: &str) {
    let mut nothing = Vec::new();
    let mut version = Vec::new();
    let mut paint = Vec::new();
    for _ in 0..30 {
        let start = Instant::now();
        assert!(Command::new("/bin/true").status().unwrap().success());
        nothing.push(start.elapsed());
        let start = Instant::now();
        assert!(
            Command::new(KLI).arg("--version").stdout(Stdio::null()).status().unwrap().success()
        );
        version.push(start.elapsed());
        let start = Instant::now();
        let mut tty = Tty::start(home, &[], settings);
        tty.sees("say what to do");
        paint.push(start.elapsed());
        tty.leave();
    }
    let (nothing, version, paint) = (spread(nothing), spread(version), spread(paint));
    println!(
        "first paint: median {:.1} ms, p95 {:.1} ms, most {:.1} ms (a process that does nothing: {:.1} ms, \
         `kli --version`: {:.1} ms)",
        paint.0, paint.1, paint.2, nothing.0, version.0
    );
}

fn latency(home: &Path) {
    let pace = Pace { deltas: 32_768, bytes: 32 };
    let stop = Arc::new(AtomicBool::new(false));
    let mut tty = Tty::start(home, &[], &at(&model(pace, &stop)));
    tty.sees("say what to do");
    let quiet = spread(keys(&mut tty, 100));
    tty.press("\x15go\r");
    tty.sees("word of a model");
    let from = tty.bytes.len();
    let start = Instant::now();
    let busy = spread(keys(&mut tty, 100));
    let rate = (tty.bytes.len() - from) as f64 / start.elapsed().as_secs_f64() / 1e6;
    stop.store(true, Ordering::Relaxed);
    println!(
        "key to screen while 1 MB/s streams ({rate:.2} MB/s on the terminal): median {:.1} ms, p95 {:.1} ms, \
         most {:.1} ms ({:.1} times that of a quiet terminal: {:.1}, {:.1}, {:.1} ms)",
        busy.0,
        busy.1,
        busy.2,
        busy.0 / quiet.0,
        quiet.0,
        quiet.1,
        quiet.2
    );
    println!("peak memory then: {:.1} MiB", tty.resident("VmHWM:"));
    tty.leave();
}

fn bytes_per_token(home: &Path) {
    let pace = Pace { deltas: 50, bytes: 5 };
    let stop = Arc::new(AtomicBool::new(false));
    let mut tty = Tty::start(home, &[], &at(&model(pace, &stop)));
    tty.sees("say what to do");
    tty.press("go\r");
    tty.sees("word");
    tty.reads_for(Duration::from_secs(1));
    let from = tty.bytes.len();
    tty.reads_for(Duration::from_secs(8));
    let written = tty.bytes.len() - from;
    stop.store(true, Ordering::Relaxed);
    println!(
        "bytes written per token of 5 bytes, 50 tokens a second: {:.0} (clock and spinner included)",
        written as f64 / 400.0
    );
    tty.leave();
}

fn idle(home: &Path, settings: &str) {
    let mut tty = Tty::start(home, &[], settings);
    tty.sees("say what to do");
    tty.settles();
    let (before, from) = (tty.work(), tty.bytes.len());
    thread::sleep(Duration::from_secs(10));
    let after = tty.work();
    tty.look(Duration::ZERO);
    println!(
        "idle for 10 s: {} ticks of processor time, woken {} times, {} bytes written",
        after.0 - before.0,
        after.1 - before.1,
        tty.bytes.len() - from
    );
    tty.leave();
}

fn memory(home: &Path) {
    let file = home.join("recording.jsonl");
    let text = "A sentence that a model may say, with `code` and **weight**. ".repeat(16);
    let lines: Vec<String> =
        (0..1000).map(|n| format!("{{\"text\": \"{text}\\n\\nanswer {n} ends\"}}\n")).collect();
    fs::write(&file, lines.concat()).unwrap();
    let settings = format!(
        r#"{{"model": "replay/x", "providers": {{"replay": {{"file": "{}"}}}}}}"#,
        file.display()
    );
    let mut tty = Tty::start(home, &[], &settings);
    tty.sees("say what to do");
    let before = tty.resident("VmRSS:");
    let start = Instant::now();
    for number in 0..1000 {
        let from = tty.bytes.len();
        tty.press(&format!("prompt number {number}\r"));
        tty.until(&format!("answer {number} ends"), from);
        tty.bytes.clear();
    }
    let took = start.elapsed();
    tty.settles();
    println!(
        "after a session of 2,000 messages ({:.1} s): {:.1} MiB resident, peak {:.1} MiB (at the start {before:.1} MiB)",
        took.as_secs_f64(),
        tty.resident("VmRSS:"),
        tty.resident("VmHWM:")
    );
    tty.leave();
}

fn main() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path().canonicalize().unwrap();
    fs::write(home.join("none.jsonl"), "{\"text\": \"x\"}\n").unwrap();
    let replay = format!(
        r#"{{"model": "replay/x", "providers": {{"replay": {{"file": "{}"}}}}}}"#,
        home.join("none.jsonl").display()
    );
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|word| word == name);
    if is_wanted("paint") {
        first_paint(&home, &replay);
    }
    if is_wanted("keys") {
        latency(&home);
    }
    if is_wanted("tokens") {
        bytes_per_token(&home);
    }
    if is_wanted("idle") {
        idle(&home, &replay);
    }
    if is_wanted("memory") {
        memory(&home);
    }
}
