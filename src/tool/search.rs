//! The tool search: a regular expression over the files of a directory, on ripgrep's own crates.
//!
//! Rows carry anchors that the run remembers, so a hit can be edited without a read. The order is
//! by path and line, whatever the threads do. What was left out is said.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use grep_matcher::{LineTerminator, Matcher as _};
use grep_searcher::{
    BinaryDetection, Searcher, SearcherBuilder, Sink as Hits, SinkContext, SinkMatch,
};
use rustix::fs::FileType;
use serde_json::{Map, Value, json};

use super::{
    Context, Invocation, Outcome, Tool,
    anchor::Row,
    arguments::Arguments,
    cut,
    glob::Glob,
    pattern::{Pattern, Until},
    scope::{Scope, Walked, names},
    target::{Look, Stoppable, Target},
};
use crate::{
    authority::Atom,
    host::{
        HostError,
        beneath::Beneath,
        files::Opened,
        walk::{LeftOut, Visit, Visitor},
    },
};

/// The most hits that are shown.
const MAX_HITS: usize = 200;
/// The most rows of context on each side.
const MAX_CONTEXT: u64 = 20;
/// The most bytes of a line that a row shows.
const MAX_LINE: usize = 400;

/// What is said of a search that did not come to its end.
pub(super) const UNFINISHED: &str =
    "\n[stopped after 60 s: not everything was looked at; narrow `path`, `glob` or `pattern`]";

/// The tool search.
#[derive(Clone, Copy, Debug, Default)]
pub struct Search;

impl Tool for Search {
    fn name(&self) -> &'static str {
        "search"
    }

    fn description(&self) -> &'static str {
        "Search file contents, also of hidden files; of ignored ones only below a `path` that names \
         them. Rows are `path:LINE:HH|text`."
    }

    fn schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "pattern": { "type": "string", "description": "regex (Rust), within one line" },
                "path": { "type": "string" },
                "glob": { "type": "string", "description": "only such files; `!…`: all others" },
                "context": { "type": "integer", "description": "rows around a hit" },
                "ignore_case": { "type": "boolean" },
            },
            "required": ["pattern"],
            "additionalProperties": false,
        })
    }

    fn atom(&self) -> Atom {
        Atom::FileRead
    }

    fn prepare(
        &self,
        arguments: &Map<String, Value>,
        context: &Arc<Context>,
    ) -> Result<Box<dyn Invocation>, String> {
        let arguments = Arguments::new(arguments);
        arguments.known(&["pattern", "path", "glob", "context", "ignore_case"])?;
        let wanted = arguments.text("pattern")?;
        if wanted.is_empty() {
            return Err("`pattern` is empty and would match every line; read shows files".into());
        }
        let pattern = Pattern::new(&wanted, arguments.flag("ignore_case")?)
            .map_err(|refused| with_way_out(&wanted, &refused))?;
        let glob = match arguments.optional_text("glob")?.filter(|glob| !glob.is_empty()) {
            None => None,
            Some(glob) => Some(Glob::of_files(&glob, "glob")?),
        };
        let rows_around = arguments.optional_number("context", 0)?.unwrap_or(0).min(MAX_CONTEXT);
        Ok(Box::new(Call {
            pattern,
            glob,
            rows_around: usize::try_from(rows_around).unwrap_or_default(),
            scope: Scope::of(arguments, context)?,
        }))
    }
}

/// Adds a way out to the sentence for a pattern that cannot be used.
fn with_way_out(wanted: &str, refused: &str) -> String {
    let mut escaped = String::new();
    for c in wanted.chars() {
        if r"\.+*?()|[]{}^$#&-~".contains(c) && c != '-' && c != '&' && c != '~' && c != '#' {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    format!("{refused}\nto look for that very text, give `{escaped}`")
}

struct Call {
    pattern: Pattern,
    glob: Option<Glob>,
    rows_around: usize,
    scope: Scope,
}

impl Look for Call {
    fn target(&self) -> &Target {
        &self.scope.target
    }

    fn look(&self, stop: &AtomicBool) -> Result<Outcome, HostError> {
        self.search(stop)
    }
}

/// What was found in one file.
#[derive(Debug, Default)]
struct Found {
    rows: Vec<Shown>,
    hits: usize,
    binary: bool,
}

/// A line to show.
#[derive(Debug)]
struct Shown {
    line: u64,
    /// The line, or as much of a very long one as can be shown.
    text: Vec<u8>,
    /// The whole line's length in bytes.
    length: usize,
    is_hit: bool,
    /// Where in the text the first match begins.
    at: usize,
    row: Row,
}

/// What was found so far: the first files by path, as far as they are needed to show the most hits.
#[derive(Debug, Default)]
struct Collection {
    files: BTreeMap<PathBuf, Found>,
    kept: usize,
    hits: usize,
    files_with_hits: usize,
    /// Files that hold a hit and a NUL.
    binary: Vec<PathBuf>,
    /// Files with a NUL and no hit before it.
    passed_over: Vec<PathBuf>,
    /// Files whose reading broke off, or that have a line that is too long for the pattern.
    failed: Vec<PathBuf>,
}

impl Collection {
    fn add(&mut self, path: &Path, found: Found) {
        match (found.hits, found.binary) {
            (0, true) => self.passed_over.push(path.to_owned()),
            (_, true) => self.binary.push(path.to_owned()),
            (0, false) => {}
            (_, false) => self.keep(path, found),
        }
    }

    fn keep(&mut self, path: &Path, found: Found) {
        self.hits = self.hits.saturating_add(found.hits);
        self.files_with_hits = self.files_with_hits.saturating_add(1);
        self.kept = self.kept.saturating_add(found.hits.min(MAX_HITS));
        self.files.insert(path.to_owned(), found);
        while let Some((last, hits)) = self.files.last_key_value().map(|(p, f)| (p.clone(), f.hits))
        {
            let without = self.kept.saturating_sub(hits.min(MAX_HITS));
            if without < MAX_HITS {
                break;
            }
            self.files.remove(&last);
            self.kept = without;
        }
    }
}

impl Call {
    fn search(&self, stop: &AtomicBool) -> Result<Outcome, HostError> {
        let found = Mutex::new(Collection::default());
        let path = &self.scope.target.path;
        let walked = match self.scope.open()? {
            Opened::File(file, _) => {
                let file = Stoppable { file, stop };
                self.look_into(&mut self.searcher(true), path, file, &found);
                Walked { left_out: LeftOut { visited: 1, ..LeftOut::default() }, is_unruled: false }
            }
            Opened::Directory(handle) => {
                let root = Arc::new(Beneath::new(handle, path));
                self.walk(&root, stop, &found)
            }
        };
        let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut outcome = self.outcome(found, &walked);
        if stop.load(Ordering::Relaxed) {
            outcome.is_error = true;
            outcome.text.push_str(UNFINISHED);
        }
        Ok(outcome)
    }

    fn walk(&self, root: &Arc<Beneath>, stop: &AtomicBool, found: &Mutex<Collection>) -> Walked {
        let visitor = || -> Visitor<'_> {
            let mut searcher = self.searcher(false);
            Box::new(move |relative, kind| {
                let is_wanted = kind == FileType::RegularFile
                    && self.glob.as_ref().is_none_or(|glob| glob.takes(relative));
                if !is_wanted {
                    return Visit::Passed;
                }
                let Ok(file) = root.open_file(relative) else { return Visit::Unreadable };
                let path = root.path().join(relative);
                self.look_into(&mut searcher, &path, Stoppable { file, stop }, found);
                Visit::Taken
            })
        };
        // A second walk follows only where the first met no file, so nothing is to forget.
        self.scope.walk(root, stop, &visitor, || {})
    }

    fn searcher(&self, named: bool) -> Searcher {
        // As ripgrep does: a file that was named is searched through, one that was met only up to
        // the first NUL.
        let binary =
            if named { BinaryDetection::convert(b'\0') } else { BinaryDetection::quit(b'\0') };
        SearcherBuilder::new()
            .binary_detection(binary)
            .line_terminator(LineTerminator::crlf())
            .line_number(true)
            .bom_sniffing(false)
            .heap_limit(Some(self.pattern.longest_line()))
            .before_context(self.rows_around)
            .after_context(self.rows_around)
            .build()
    }

    fn look_into(
        &self,
        searcher: &mut Searcher,
        path: &Path,
        reader: Stoppable<'_>,
        collection: &Mutex<Collection>,
    ) {
        let mut found = Found::default();
        let matcher = self.pattern.until(reader.stop);
        let hits = Collect { matcher, found: &mut found };
        let result = searcher.search_reader(matcher, reader, hits);
        if result.is_ok() && found.hits == 0 && !found.binary {
            return;
        }
        let mut collection = collection.lock().unwrap_or_else(PoisonError::into_inner);
        if result.is_err() {
            collection.failed.push(path.to_owned());
        }
        collection.add(path, found);
    }

    fn outcome(&self, mut collection: Collection, walked: &Walked) -> Outcome {
        let left_out = &walked.left_out;
        let mut lines = Vec::new();
        let mut shown_hits = 0_usize;
        for (path, found) in &collection.files {
            let name = self.scope.name(path);
            let mut last = None;
            let mut rows = Vec::new();
            for shown in &found.rows {
                if shown.is_hit {
                    if shown_hits == MAX_HITS {
                        break;
                    }
                    shown_hits = shown_hits.saturating_add(1);
                }
                if self.rows_around > 0 && last.is_some_and(|last: u64| last + 1 != shown.line) {
                    lines.push("--".to_owned());
                }
                last = Some(shown.line);
                lines.push(shown.line_for(&name));
                rows.push(shown.row);
            }
            if self.rows_around > 0 {
                lines.push("--".to_owned());
            }
            self.scope.target.context.state.files.saw(path, &rows);
        }
        lines.pop_if(|line| line == "--");
        let results = &self.scope.target.context.state.results;
        let body = results.cut(&lines.join("\n"), "narrow `pattern`, `path` or `glob`");

        let mut notes = Vec::new();
        if collection.hits == 0 && collection.binary.is_empty() {
            notes.push(format!("no hits in {}", files_counted(left_out.visited)));
        } else if collection.hits > shown_hits {
            notes.push(format!(
                "{} more hits are not shown ({} in all, in {}): narrow `pattern`, `path` or `glob`",
                collection.hits - shown_hits,
                collection.hits,
                files_counted(collection.files_with_hits)
            ));
        }
        self.say_left_out(&mut collection, walked, &mut notes);
        let notes: Vec<String> = notes.into_iter().map(|note| format!("[{note}]")).collect();
        let body = if body.is_empty() { None } else { Some(body) };
        let text: Vec<String> = body.into_iter().chain(notes).collect();
        let mut text = text.join("\n");
        if collection.hits == 0 {
            text.push_str(self.scope.target.note_when_masked());
        }
        Outcome {
            text,
            is_error: false,
            record: json!({
                "hits": collection.hits,
                "files": collection.files_with_hits,
                "shown": shown_hits,
                "ignoredDirectories": left_out.ignored_directories.len(),
                "ignoredFiles": left_out.ignored_files,
                "binary": collection.binary.len() + collection.passed_over.len(),
            }),
            changed: Vec::new(),
        }
    }

    fn say_left_out(&self, collection: &mut Collection, walked: &Walked, notes: &mut Vec<String>) {
        notes.extend(walked.notes("searched", "search"));
        for (what, list) in [
            ("hits in binary files, not shown", &mut collection.binary),
            ("binary, searched up to the first NUL only", &mut collection.passed_over),
            (
                "not searched to the end, for an error or a line that is too long",
                &mut collection.failed,
            ),
        ] {
            list.sort();
            if !list.is_empty() {
                let workspace = &self.scope.target.context.workspace;
                let below =
                    |path: &PathBuf| path.strip_prefix(workspace).unwrap_or(path).to_owned();
                let shown: Vec<PathBuf> = list.iter().map(below).collect();
                notes.push(format!(
                    "{what}: {} ({})",
                    files_counted(shown.len()),
                    names(shown.iter().map(PathBuf::as_path))
                ));
            }
        }
        let left_out = &walked.left_out;
        if left_out.links > 0 && collection.hits == 0 {
            notes.push(format!("symbolic links not followed: {}", left_out.links));
        }
        if left_out.unreadable > 0 {
            notes.push(format!("could not be read: {}", left_out.unreadable));
        }
    }
}

fn files_counted(count: usize) -> String {
    if count == 1 { "1 file".to_owned() } else { format!("{count} files") }
}

impl Shown {
    fn line_for(&self, name: &str) -> String {
        let mark = if self.is_hit { ':' } else { '-' };
        let text = String::from_utf8_lossy(&self.text);
        let anchor = self.row.anchor;
        if text.len() <= MAX_LINE {
            return format!("{name}{mark}{anchor}|{text}");
        }
        // The match must be in what is shown.
        let from = self.at.saturating_sub(MAX_LINE / 4).min(text.len());
        let before = if self.at < MAX_LINE / 2 { "" } else { cut::start_of(&text, from) };
        let rest = text.get(before.len()..).unwrap_or_default();
        let window = cut::start_of(rest, MAX_LINE);
        let lead = if before.is_empty() { "" } else { "…" };
        format!(
            "{name}{mark}{anchor}|{lead}{window}… [{} of {} bytes; the anchor stands for the \
             whole line]",
            window.len(),
            self.length
        )
    }
}

/// Collects the hits of one file.
struct Collect<'a> {
    matcher: Until<'a>,
    found: &'a mut Found,
}

impl Collect<'_> {
    fn show(&mut self, line: Option<u64>, bytes: &[u8], is_hit: bool) {
        // Only so many can be shown; the rest is counted.
        if self.found.hits > MAX_HITS {
            return;
        }
        let text = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        let line = line.unwrap_or(1);
        // A mark of the encoding is no part of the first line.
        let text =
            if line == 1 { text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text) } else { text };
        let at = if is_hit && text.len() > MAX_LINE {
            self.matcher.find(text).ok().flatten().map_or(0, |found| found.start())
        } else {
            0
        };
        let row = Row::of(line, text);
        let length = text.len();
        // Of a long line only the part that can be shown is kept, and something before it.
        let from = at.saturating_sub(MAX_LINE * 2);
        let end = at.saturating_add(MAX_LINE * 4).min(text.len());
        let (text, at) = if length > MAX_LINE * 8 {
            (text.get(from..end).unwrap_or(text), at.saturating_sub(from))
        } else {
            (text, at)
        };
        self.found.rows.push(Shown { line, text: text.to_vec(), length, is_hit, at, row });
    }
}

impl Hits for Collect<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        self.found.hits = self.found.hits.saturating_add(1);
        self.show(found.line_number(), found.bytes(), true);
        Ok(true)
    }

    fn context(&mut self, _: &Searcher, context: &SinkContext<'_>) -> Result<bool, io::Error> {
        self.show(context.line_number(), context.bytes(), false);
        Ok(true)
    }

    fn binary_data(&mut self, _: &Searcher, _: u64) -> Result<bool, io::Error> {
        self.found.binary = true;
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
