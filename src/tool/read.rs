//! The tool `read`: a file's lines as rows with anchors, or what stands in a directory.

use std::{
    fmt::Write as _,
    path::Path,
    sync::{Arc, atomic::AtomicBool},
};

use serde_json::{Map, Value, json};

use super::{
    Context, Invocation, Outcome, Tool,
    arguments::Arguments,
    lines::{self, Scanner},
    memory::Content,
    target::{Look, Stoppable, Target, mark, shown},
};
use crate::{
    authority::Atom,
    host::{
        HostError,
        files::{self, Opened, Stamp},
    },
};

/// The most rows of one call.
const MAX_ROWS: u64 = 2000;

/// The most bytes of rows of one call.
const MAX_BYTES: usize = 100_000;

/// Up to this size in bytes a file is read to its end, so that its number of lines and its digest
/// are known; of a bigger one only what is shown and what comes before it.
const WHOLE: u64 = 16 * 1024 * 1024;

/// The most entries of a directory that are listed.
const MAX_ENTRIES: usize = 1000;

/// The tool `read`.
#[derive(Debug)]
pub(super) struct Read;

impl Tool for Read {
    fn name(&self) -> &'static str {
        "read"
    }

    fn description(&self) -> &'static str {
        "Read a file as rows `LINE:HH|text`, or list a directory. `LINE:HH` is the line's anchor for \
         edit; it is not part of the text. At most 2000 rows a call."
    }

    fn schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "start": {"type": "integer", "description": "First line, from 1"},
                "end": {"type": "integer", "description": "Last line, included"}
            },
            "required": ["path"],
            "additionalProperties": false
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
        arguments.known(&["path", "start", "end"])?;
        let start = arguments.optional_number("start", 1)?.unwrap_or(1);
        let end = arguments.optional_number("end", 1)?.unwrap_or(u64::MAX);
        if end < start {
            return Err(format!("`end` ({end}) is before `start` ({start}); swap them"));
        }
        Ok(Box::new(Call { target: Target::of(arguments, context)?, start, end }))
    }
}

#[derive(Debug)]
struct Call {
    target: Target,
    start: u64,
    end: u64,
}

impl Look for Call {
    fn target(&self) -> &Target {
        &self.target
    }

    fn look(&self, stop: &AtomicBool) -> Result<Outcome, HostError> {
        match files::open(&self.target.path)? {
            Opened::File(file, stamp) => self.file(Stoppable { file, stop }, stamp),
            Opened::Directory(handle) => self.directory(&handle),
        }
    }
}

impl Call {
    fn file(&self, file: Stoppable<'_>, stamp: Stamp) -> Result<Outcome, HostError> {
        let Target { name, path, context } = &self.target;
        let fail = |source| HostError::io("read", path, source);
        let mut scanner = Scanner::new(file, stamp.size <= WHOLE).map_err(fail)?;
        let memory = &context.state.files;
        if let Some(kind) = lines::binary(scanner.beginning()) {
            return Ok(Outcome::ok(format!(
                "`{name}` is {kind}, {} bytes; it is not shown",
                stamp.size
            )));
        }
        while scanner.count() < self.start.saturating_sub(1) && scanner.skip_line().map_err(fail)? {
        }
        let mut text = String::new();
        let mut rows = Vec::new();
        let mut is_lossy = false;
        let mut is_more = false;
        loop {
            // The line after the last one that is wanted may be long: it is not looked at.
            if scanner.count() >= self.end || rows.len() as u64 >= MAX_ROWS {
                is_more = !scanner.is_at_end().map_err(fail)?;
                break;
            }
            let Some(line) = scanner.next_line().map_err(fail)? else { break };
            let row = line.row.show(&line.head, line.length);
            if !rows.is_empty() && text.len().saturating_add(row.len()) >= MAX_BYTES {
                is_more = true;
                break;
            }
            is_lossy |= row.contains('\u{fffd}') && std::str::from_utf8(&line.head).is_err();
            text.push_str(&row);
            text.push('\n');
            rows.push(line.row);
        }
        // A kernel file says it has no size and may never end, so what was read counts too.
        let mut is_whole = !is_more;
        while !is_whole && stamp.size <= WHOLE && scanner.taken() <= WHOLE {
            is_whole = !scanner.skip_line().map_err(fail)?;
        }
        let total = scanner.count();
        let digest = is_whole.then(|| scanner.digest()).flatten();
        let is_all = is_whole && rows.len() as u64 == total;
        memory.read(path, Content { stamp, digest }, is_all);
        memory.saw(path, &rows);
        let last = rows.last().map_or(0, |row| row.anchor.line);
        if total == 0 {
            text.push_str("(empty file)");
            text.push_str(self.target.note_when_masked());
        } else if rows.is_empty() {
            let plural = if total == 1 { "" } else { "s" };
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                "(start {} is past the end: `{name}` has {total} line{plural})",
                self.start
            );
        } else if is_more && is_whole {
            let _ = write!(
                text,
                "(lines {}-{last} of {total}; go on with start={})",
                self.start,
                last.saturating_add(1)
            );
        } else if is_more {
            let _ = write!(
                text,
                "(lines {}-{last}, more follow; go on with start={})",
                self.start,
                last.saturating_add(1)
            );
        } else {
            text.pop();
        }
        if is_lossy {
            text.push_str(
                "\n(bytes that are no UTF-8 are shown as U+FFFD; edits elsewhere keep them)",
            );
        }
        let record = json!({
            "path": path.to_string_lossy(),
            "start": self.start,
            "rows": rows.len(),
            "lines": is_whole.then_some(total),
        });
        Ok(Outcome { record, ..Outcome::ok(text) })
    }

    fn directory(&self, handle: &std::os::fd::OwnedFd) -> Result<Outcome, HostError> {
        let Target { name, path, .. } = &self.target;
        let (entries, more) = files::list(handle, path, MAX_ENTRIES)?;
        let mut text = format!("`{name}` is a directory:\n");
        for entry in &entries {
            let _ = writeln!(text, "{}{}", shown(Path::new(&entry.name)), mark(entry.kind));
        }
        if entries.is_empty() {
            text.push_str("(empty directory)");
            text.push_str(self.target.note_when_masked());
        } else if more > 0 {
            let _ = write!(text, "({more} more; name a directory below, or search)");
        } else {
            text.pop();
        }
        let record = json!({"path": path.to_string_lossy(), "entries": entries.len()});
        Ok(Outcome { record, ..Outcome::ok(text) })
    }
}

#[cfg(test)]
mod tests;
