//! What a session changed: what stood in each file's place before the first change that is kept, against
//! what stands there now. It only reads, in the workspace alone and through no link.

use std::{fmt::Write as _, io, path::Path};

use crate::{
    host::{
        HostError,
        files::{self, Opened, Stamp},
    },
    session::checkpoint::{Book, Digest, Elsewhere, Inside, State, View},
};

use super::{
    super::terminal::one_line,
    differ::{is_binary, unified},
};

/// The most rows of one file, and of all together.
const ROWS: (usize, usize) = (500, 2_000);
/// The longest content that is compared, in bytes.
const LONGEST: u64 = 64 << 20;

/// What stands in a file's place.
pub(super) enum Now {
    /// Nothing.
    Absent,
    /// A regular file.
    File { content: Vec<u8>, digest: Digest, stamp: Stamp },
    /// Something that is not looked into, as the end of a sentence that begins with its name.
    Other(String),
}

impl Now {
    /// Looks at a file of the workspace.
    pub(super) fn look(workspace: &Path, path: &Inside) -> Self {
        let whole = workspace.join(path.path());
        // A link under way, or at the end, leads elsewhere.
        match files::resolve(&whole, workspace, None) {
            Ok(resolved) if resolved == whole => {}
            Ok(_) => return Self::Other("is reached through a symbolic link now".to_owned()),
            Err(HostError::Io { source, .. }) if source.kind() == io::ErrorKind::NotADirectory => {
                return Self::Absent;
            }
            Err(error) => return Self::Other(format!("cannot be read: {}", error.sentence())),
        }
        match files::open(&whole) {
            Ok(Opened::Directory(_)) => return Self::Other("is a directory now".to_owned()),
            Ok(Opened::File(..)) => {}
            Err(HostError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Self::Absent;
            }
            Err(HostError::Kind { kind, .. }) => return Self::Other(format!("is {kind} now")),
            Err(error) => return Self::Other(format!("cannot be read: {}", error.sentence())),
        }
        match files::read_whole(&whole, LONGEST) {
            Ok(Some((content, stamp))) => {
                let digest = Digest::of(&content);
                Self::File { content, digest, stamp }
            }
            Ok(None) => Self::Other(format!("has more than {LONGEST} bytes now")),
            Err(error) => Self::Other(format!("cannot be read: {}", error.sentence())),
        }
    }

    /// Says whether it is what was kept.
    pub(super) fn is(&self, state: &State) -> bool {
        match (self, state) {
            (Self::Absent, State::Absent) => true,
            (Self::File { digest, .. }, State::File { digest: kept, .. }) => digest == kept,
            _ => false,
        }
    }
}

/// Returns a file's name as people see it, on one line.
pub(super) fn name(path: &Inside) -> String {
    one_line(&path.path().to_string_lossy())
}

/// Returns the changes of a session as a unified diff, with what is not shown named below it.
pub(crate) fn diff(view: Option<&View>, workspace: &Path) -> String {
    let Some(view) = view.filter(|it| has_any(it.book())) else {
        return "kli changed no file in this session\n".to_owned();
    };
    let book = view.book();
    let (mut text, mut notes) = (String::new(), Vec::new());
    let (mut left, mut as_before, mut rows) = (Vec::new(), 0_usize, 0);
    for (path, before) in book.first() {
        let now = Now::look(workspace, &path);
        if now.is(&before) {
            as_before += 1;
            continue;
        }
        if rows >= ROWS.1 {
            left.push(name(&path));
            continue;
        }
        let of_one = one(view, &path, &before, &now);
        let room = ROWS.0.min(ROWS.1 - rows);
        let more = of_one.len().saturating_sub(room);
        rows += of_one.len().min(room);
        for row in of_one.into_iter().take(room) {
            text.push_str(&row);
            text.push('\n');
        }
        if more > 0 {
            // Writing to a string cannot fail.
            let _infallible =
                writeln!(text, "… {more} more rows of `{}` are left out", name(&path));
        }
    }
    if !left.is_empty() {
        notes.push(format!("left out, as it is too much: {}", left.join(", ")));
    }
    if as_before > 0 {
        let s = if as_before == 1 { "" } else { "s" };
        notes.push(format!("{as_before} changed file{s} read as before the session again"));
    }
    if book.dropped() > 0 {
        notes.push(format!(
            "the oldest {} checkpoints were dropped to keep within the bounds: what they changed is \
             not shown",
            book.dropped()
        ));
    }
    notes.extend(book.elsewhere().iter().map(uncovered));
    if text.is_empty() && notes.is_empty() {
        notes.push("every file reads as before".to_owned());
    }
    notes.push("what commands changed is not shown".to_owned());
    for note in notes {
        let _infallible = writeln!(text, "# {note}");
    }
    text
}

fn has_any(book: &Book) -> bool {
    !book.changes().is_empty() || !book.elsewhere().is_empty() || book.dropped() > 0
}

/// Says that a change is not covered.
pub(super) fn uncovered(it: &Elsewhere) -> String {
    // The store is data: its words are shown on one line and cannot drive the terminal.
    format!("`{}` is not covered: it {}", one_line(&it.name), one_line(&it.why))
}

/// Returns the rows of one file.
fn one(view: &View, path: &Inside, before: &State, now: &Now) -> Vec<String> {
    let name = name(path);
    let old = match before {
        State::Absent => Some(Vec::new()),
        State::Uncovered { why } => {
            return vec![format!("# `{name}` is not covered: it {}", one_line(why))];
        }
        State::File { digest, .. } => view.content(*digest).ok().flatten(),
    };
    let Some(old) = old else {
        return vec![format!(
            "# `{name}` changed; what was kept of it is gone or was tampered with"
        )];
    };
    let new: &[u8] = match now {
        Now::Absent => b"",
        Now::File { content, .. } => content,
        Now::Other(what) => return vec![format!("# `{name}` {what}")],
    };
    let from = match before {
        State::Absent => "/dev/null".to_owned(),
        _ => format!("a/{name}"),
    };
    let to = match now {
        Now::Absent => "/dev/null".to_owned(),
        _ => format!("b/{name}"),
    };
    if is_binary(&old) || is_binary(new) {
        return vec![format!(
            "Binary files {from} and {to} differ ({} and {} bytes)",
            old.len(),
            new.len()
        )];
    }
    let mut rows = vec![format!("--- {from}"), format!("+++ {to}")];
    rows.extend(unified(&old, new));
    rows
}
