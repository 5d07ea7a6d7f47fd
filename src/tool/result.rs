//! Results that were cut: kept whole for the run, and the tool `read_result` that pages them.
//!
//! What does not fit into a result goes on to a nameless file while it comes, so that memory stays
//! bounded whatever the length. The files end with the process. Handles carry a part that is drawn
//! for each run: one of an earlier run answers that it is gone, never with another result.

use std::{
    collections::VecDeque,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};

use super::{
    Context, Effect, Invocation, Outcome, Sink, Tool,
    arguments::Arguments,
    cut,
    pattern::Pattern,
    target::{LIMIT, blocking_within},
};
use crate::{
    authority::{Atom, Grant, Request},
    host::{cause, environment::Environment, spill::Spill},
};

/// The most bytes that are kept of one result.
pub const FILE_LIMIT: u64 = 64 << 20;
/// The most bytes that all kept results of a run take together.
pub const RUN_LIMIT: u64 = 512 << 20;
/// The most results that are kept at a time; the oldest goes first.
pub const MOST: usize = 64;
/// How many lines are shown when the call does not say.
const LINES: u64 = 400;
/// The most lines that are shown.
const MOST_LINES: u64 = 5000;
/// How many bytes of one line are shown.
const LINE: usize = 2000;
/// How many bytes of one line are looked at; what lies behind is not matched.
const LONGEST_LINE: usize = 1 << 20;

/// The kept results of a run.
#[derive(Debug)]
pub struct Results {
    run: String,
    /// Directories for the files, the best first; without any, the directory for temporary files.
    places: Vec<PathBuf>,
    shelf: Mutex<Shelf>,
}

#[derive(Debug, Default)]
struct Shelf {
    next: u64,
    kept: VecDeque<(String, Arc<Mutex<Kept>>)>,
}

/// A kept result.
#[derive(Debug)]
struct Kept {
    spill: Spill,
    /// How many bytes there were.
    total: u64,
    /// Why not all of them were kept.
    fault: Option<String>,
}

impl Default for Results {
    fn default() -> Self {
        Self::in_places(Vec::new())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Results {
    /// Returns an empty store whose files lie on the file system of the first of these directories
    /// that takes one, else on that for temporary files.
    pub fn in_places(places: Vec<PathBuf>) -> Self {
        let run = format!("{:04x}", fastrand::u16(..));
        Self { run, places, shelf: Mutex::default() }
    }

    /// Returns a text within the budget of one result; a longer one is cut, and kept whole. `repair`
    /// says how else to get the rest, as an order: "narrow the command".
    pub fn cut(self: &Arc<Self>, text: &str, repair: &str) -> String {
        if text.len() <= cut::BUDGET {
            return text.to_owned();
        }
        let mut recorder = Recorder::new(self, 0);
        recorder.push(text.as_bytes());
        cut::text(text, &recorder.repair(repair))
    }

    fn open(&self) -> Opened {
        let temporary = Environment::read()
            .var_os("TMPDIR")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
            .unwrap_or_else(|| "/tmp".into());
        let mut refused = String::new();
        let spill = self.places.iter().chain([&temporary]).find_map(|place| {
            let made = Spill::new(&Grant::own_state(place), place);
            made.map_err(|error| refused = error.sentence()).ok()
        });
        let spill = spill.ok_or(refused)?;
        let kept = Arc::new(Mutex::new(Kept { spill, total: 0, fault: None }));
        let mut store = lock(&self.shelf);
        store.next += 1;
        let handle = format!("r{}-{}", store.next, self.run);
        store.kept.push_back((handle.clone(), Arc::clone(&kept)));
        if store.kept.len() > MOST {
            store.kept.pop_front();
        }
        Ok((handle, kept))
    }

    /// Makes room for so many bytes: the oldest results go.
    fn make_room(&self, wanted: u64, own: &str) {
        let mut store = lock(&self.shelf);
        loop {
            let others: u64 = store
                .kept
                .iter()
                .filter(|(handle, _)| handle != own)
                .map(|(_, kept)| lock(kept).spill.length())
                .sum();
            let Some(oldest) = store.kept.iter().position(|(handle, _)| handle != own) else {
                return;
            };
            if others.saturating_add(wanted) <= RUN_LIMIT {
                return;
            }
            store.kept.remove(oldest);
        }
    }

    fn find(&self, handle: &str) -> Result<Arc<Mutex<Kept>>, String> {
        let store = lock(&self.shelf);
        let found = store.kept.iter().find(|(known, _)| known == handle);
        found.map(|(_, kept)| Arc::clone(kept)).ok_or_else(|| {
            let known: Vec<String> =
                store.kept.iter().map(|(handle, _)| format!("`{handle}`")).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            format!(
                "there is no result `{handle}` any more: results are kept while the run that made \
                 them lasts, and the oldest go first; kept now: {known}; run the command again"
            )
        })
    }
}

/// A handle and what is kept under it, or why nothing can be.
type Opened = Result<(String, Arc<Mutex<Kept>>), String>;

/// Takes a result while it comes, and keeps it once it is longer than what is shown.
#[derive(Debug)]
pub struct Recorder {
    results: Arc<Results>,
    threshold: usize,
    /// What came before it was clear that it has to be kept.
    first: Vec<u8>,
    opened: Option<Opened>,
    /// For how many bytes room was made.
    room: u64,
}

impl Recorder {
    /// Returns a recorder that keeps what is longer than `threshold` bytes.
    pub fn new(results: &Arc<Results>, threshold: usize) -> Self {
        let results = Arc::clone(results);
        Self { results, threshold, first: Vec::new(), opened: None, room: 0 }
    }

    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.opened.is_none() {
            self.first.extend_from_slice(bytes);
            if self.first.len() <= self.threshold {
                return;
            }
            self.opened = Some(self.results.open());
            let first = std::mem::take(&mut self.first);
            self.write(&first);
        } else {
            self.write(bytes);
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        let Some(Ok((handle, kept))) = &self.opened else { return };
        let mut kept = lock(kept);
        kept.total = kept.total.saturating_add(bytes.len() as u64);
        let left = FILE_LIMIT.saturating_sub(kept.spill.length());
        let part = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        let part = bytes.get(..part).unwrap_or_default();
        if kept.fault.is_some() || part.is_empty() {
            return;
        }
        let length = kept.spill.length().saturating_add(part.len() as u64);
        if length > self.room {
            // Asked for in big steps: it looks at every other result.
            self.room = length.saturating_add(4 << 20);
            drop(kept);
            self.results.make_room(self.room, handle);
            let Some(Ok((_, again))) = &self.opened else { return };
            kept = lock(again);
        }
        if let Err(error) = kept.spill.append(part) {
            kept.fault = Some(cause(&error));
        }
    }

    /// Returns the handle under which it is kept; `None` when it was short, or cannot be kept.
    pub fn handle(&self) -> Option<&str> {
        match &self.opened {
            Some(Ok((handle, _))) => Some(handle),
            Some(Err(_)) | None => None,
        }
    }

    /// Says how to get what is not shown, as an order; `otherwise` is the way without a file.
    pub fn repair(&self, otherwise: &str) -> String {
        match &self.opened {
            Some(Ok((handle, kept))) => {
                let kept = lock(kept);
                let limits =
                    kept.limits().map_or_else(String::new, |limits| format!(" ({limits})"));
                format!("read_result with handle `{handle}` pages or filters the whole{limits}")
            }
            Some(Err(refused)) => {
                format!("{otherwise}; the whole could not be kept: {refused}")
            }
            None => otherwise.to_owned(),
        }
    }
}

impl Kept {
    /// Says what was not kept, when there is such.
    fn limits(&self) -> Option<String> {
        let (kept, total) = (self.spill.length(), self.total);
        if kept >= total {
            return None;
        }
        let why = self.fault.as_ref().map_or_else(
            || format!("{FILE_LIMIT} is the most for one result"),
            |fault| format!("keeping more failed: {fault}"),
        );
        Some(format!("only the first {kept} of {total} bytes were kept; {why}"))
    }
}

/// The tool `read_result`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReadResult;

impl Tool for ReadResult {
    fn name(&self) -> &'static str {
        "read_result"
    }

    fn description(&self) -> &'static str {
        "Shows lines of a result that was cut, by its handle."
    }

    fn schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "handle": { "type": "string" },
                "start": { "type": "integer", "description": "first line" },
                "lines": { "type": "integer" },
                "pattern": { "type": "string", "description": "regex filter" },
            },
            "required": ["handle"],
            "additionalProperties": false,
        })
    }

    fn atom(&self) -> Atom {
        Atom::ResultRead
    }

    fn prepare(
        &self,
        arguments: &Map<String, Value>,
        context: &Arc<Context>,
    ) -> Result<Box<dyn Invocation>, String> {
        let arguments = Arguments::new(arguments);
        arguments.known(&["handle", "start", "lines", "pattern"])?;
        let pattern = match arguments.optional_text("pattern")?.filter(|text| !text.is_empty()) {
            None => None,
            Some(wanted) => Some(Pattern::new(&wanted, false)?),
        };
        Ok(Box::new(Page {
            handle: arguments.text("handle")?.trim().trim_matches('`').to_owned(),
            start: arguments.optional_number("start", 1)?.unwrap_or(1),
            lines: arguments.optional_number("lines", 1)?.unwrap_or(LINES).min(MOST_LINES),
            pattern,
            results: Arc::clone(&context.state.results),
        }))
    }
}

#[derive(Debug)]
struct Page {
    handle: String,
    start: u64,
    lines: u64,
    pattern: Option<Pattern>,
    results: Arc<Results>,
}

impl Invocation for Page {
    fn requests(&self) -> Vec<Request> {
        vec![Request::bare(Atom::ResultRead)]
    }

    fn effect(&self) -> Effect {
        Effect::Read
    }

    fn run(self: Box<Self>, _grants: Vec<Grant>, _sink: Sink) -> BoxFuture<'static, Outcome> {
        blocking_within(LIMIT, move |stop| match self.results.find(&self.handle) {
            Ok(kept) => self.show(&kept, stop),
            Err(sentence) => Outcome::error(sentence),
        })
    }
}

impl Page {
    fn show(&self, kept: &Mutex<Kept>, stop: &AtomicBool) -> Outcome {
        let mut rows =
            Rows { page: self, stop, text: String::new(), last: None, shown: 0, full: false };
        let total = match each_line(kept, |number, line, length| rows.take(number, line, length)) {
            Ok(total) => total,
            Err(error) => return Outcome::error(format!("the result cannot be read: {error}")),
        };
        if stop.load(Ordering::Relaxed) {
            return Outcome::error(
                "the lines could not be looked through within 60 s; give a `start` further on, or a \
                 simpler `pattern`",
            );
        }
        let Rows { mut text, last, shown, full, .. } = rows;
        let limits = lock(kept).limits().map_or_else(String::new, |limits| format!("; {limits}"));
        let footer = match last {
            None if self.pattern.is_some() => {
                format!("[no line from {} on matches; there are {total}{limits}]", self.start)
            }
            None => format!("[there is no line {}; there are {total}{limits}]", self.start),
            Some(last) => {
                let what = if self.pattern.is_some() { " that match" } else { "" };
                let more = if full {
                    format!("; start={} goes on", last.saturating_add(1))
                } else {
                    String::new()
                };
                format!("[{shown} lines{what}, up to line {last} of {total}{more}{limits}]")
            }
        };
        text.push_str(&footer);
        Outcome {
            record: json!({ "handle": self.handle, "lines": shown, "totalLines": total }),
            ..Outcome::ok(text)
        }
    }
}

/// The rows of a page, as they are found.
struct Rows<'a> {
    page: &'a Page,
    stop: &'a AtomicBool,
    text: String,
    last: Option<u64>,
    shown: u64,
    /// Whether there is more than fits.
    full: bool,
}

impl Rows<'_> {
    fn take(&mut self, number: u64, line: &[u8], length: u64) {
        if number < self.page.start || self.full || self.stop.load(Ordering::Relaxed) {
            return;
        }
        if !self.page.pattern.as_ref().is_none_or(|pattern| pattern.is_in(line)) {
            return;
        }
        let line = String::from_utf8_lossy(line.get(..LINE.min(line.len())).unwrap_or_default());
        let row = match length.saturating_sub(LINE as u64) {
            0 => format!("{number}|{line}\n"),
            more => format!("{number}|{line}[… {more} bytes more in this line]\n"),
        };
        if self.shown >= self.page.lines || self.text.len() + row.len() > cut::BUDGET {
            self.full = true;
            return;
        }
        self.text.push_str(&row);
        self.last = Some(number);
        self.shown += 1;
    }
}

/// Calls `each` for every line with its number, its bytes as far as they are looked at, and its
/// length; returns how many lines there are. The result may grow meanwhile; what comes later is not
/// seen.
fn each_line(kept: &Mutex<Kept>, mut each: impl FnMut(u64, &[u8], u64)) -> std::io::Result<u64> {
    let end = lock(kept).spill.length();
    let (mut offset, mut number) = (0_u64, 0_u64);
    let mut buffer = vec![0; 65_536];
    // The start of a line that goes on in the next piece, and its length.
    let (mut open, mut length) = (Vec::new(), 0_u64);
    while offset < end {
        let read = lock(kept).spill.read_at(&mut buffer, offset)?;
        if read == 0 {
            break;
        }
        offset += read as u64;
        let mut rest = buffer.get(..read).unwrap_or_default();
        while let Some(at) = memchr::memchr(b'\n', rest) {
            let (line, after) = rest.split_at(at);
            rest = after.get(1..).unwrap_or_default();
            number += 1;
            if length == 0 {
                each(number, line, line.len() as u64);
            } else {
                length += line.len() as u64;
                extend(&mut open, line);
                each(number, &open, length);
                open.clear();
                length = 0;
            }
        }
        length += rest.len() as u64;
        extend(&mut open, rest);
    }
    if length > 0 {
        number += 1;
        each(number, &open, length);
    }
    Ok(number)
}

fn extend(open: &mut Vec<u8>, bytes: &[u8]) {
    let room = LONGEST_LINE.saturating_sub(open.len()).min(bytes.len());
    open.extend_from_slice(bytes.get(..room).unwrap_or_default());
}

#[cfg(test)]
mod tests;
