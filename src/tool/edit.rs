//! The tool `edit`: changes at anchors or at exact texts, all of a call or none.
//!
//! Every edit becomes a [`Splice`] of the file's own bytes, so what lies outside the matches cannot
//! change: not its line endings, its byte order mark, its encoding or its end.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use serde_json::{Map, Value, json};

use super::{
    Context, Effect, Invocation, Outcome, Sink, Tool,
    anchor::{Anchor, Row},
    arguments::Arguments,
    lines::{self, Text},
    memory::{Content, View},
    preview::{self, Preview, Previewer, Shown},
    target::{Target, blocking, notes_on},
};
use crate::{
    authority::{Atom, Grant, Request},
    host::{
        HostError,
        files::{self, Expected},
    },
};

mod anchored;
mod exact;
mod follow;
mod nearest;
mod splice;

use splice::Splice;

/// The longest file that can be edited, in bytes: it is held in memory.
const MAX_BYTES: u64 = 256 * 1024 * 1024;

/// The most lines of a file that can be edited: where each one is, is held in memory, too.
const MAX_LINES: usize = 8_000_000;

/// How often a call starts anew because something else changed the file while it worked.
const MAX_ROUNDS: usize = 8;

/// The rows that the result shows around each change, before and after.
const AROUND: u64 = 2;

/// The most rows that the result shows.
const MAX_ROWS: usize = 120;

/// The tool `edit`.
#[derive(Debug)]
pub(super) struct Edit;

impl Tool for Edit {
    fn name(&self) -> &'static str {
        "edit"
    }

    fn description(&self) -> &'static str {
        "Change parts of a file. An edit is `{from, to?, text}`: replace lines by anchor (`LINE:HH`; \
         empty text deletes), `{after, text}` or `{before, text}`: insert at an anchor, or `{old, new, \
         all?}`: replace exact text. All edits of a call refer to the file before it; all apply or none."
    }

    fn schema(&self) -> Value {
        let text = |description: &str| json!({"type": "string", "description": description});
        json!({
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "edits": {
                    "type": "array",
                    "minItems": 1,
                    "items": {
                        "type": "object",
                        "properties": {
                            "from": text("Anchor of the first line"),
                            "to": text("Of the last; default: from"),
                            "after": {"type": "string"},
                            "before": {"type": "string"},
                            "text": text("New lines, without anchors"),
                            "old": text("Must be there once, or set all"),
                            "new": {"type": "string"},
                            "all": {"type": "boolean"}
                        }
                    }
                }
            },
            "required": ["path", "edits"],
            "additionalProperties": false
        })
    }

    fn atom(&self) -> Atom {
        Atom::FileEdit
    }

    fn prepare(
        &self,
        arguments: &Map<String, Value>,
        context: &Arc<Context>,
    ) -> Result<Box<dyn Invocation>, String> {
        let arguments = Arguments::new(arguments);
        arguments.known(&["path", "edits"])?;
        let target = Target::of(arguments, context)?.not_a_directory(arguments)?;
        let changes = arguments
            .objects("edits")?
            .iter()
            .enumerate()
            .map(|(at, map)| Change::read(map, &format!("edits[{at}].")))
            .collect::<Result<Vec<_>, _>>()?;
        let time = context.state.files.time();
        Ok(Box::new(Call { target, changes, time, shown: Arc::default() }))
    }
}

/// One edit as the model asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    /// Replaces the lines between two anchors, both included.
    Lines { from: Anchor, to: Anchor, text: String },
    /// Inserts lines.
    Insert { at: Anchor, is_after: bool, text: String },
    /// Replaces an exact text.
    Exact { old: String, new: String, all: bool },
}

impl Change {
    fn read(map: &Map<String, Value>, place: &str) -> Result<Self, String> {
        let arguments = Arguments::within(map, place);
        arguments.known(&["from", "to", "after", "before", "text", "old", "new", "all"])?;
        let anchor = |name: &str| -> Result<Option<Anchor>, String> {
            let text = arguments.optional_text(name)?.filter(|text| !text.is_empty());
            text.map(|text| text.parse().map_err(|error| format!("`{place}{name}`: {error}")))
                .transpose()
        };
        let kinds: Vec<&str> = ["from", "after", "before", "old"]
            .into_iter()
            .filter(|name| {
                // A model that fills in every field of the schema leaves the others empty.
                map.get(*name).is_some_and(|value| !value.is_null() && value != "")
                    || (*name == "old" && map.contains_key("old") && !map.contains_key("text"))
            })
            .collect();
        match kinds.as_slice() {
            ["from"] => {
                let from = anchor("from")?.ok_or_else(|| format!("`{place}from` is missing"))?;
                let to = anchor("to")?.unwrap_or(from);
                Ok(Self::Lines { from, to, text: arguments.text("text")? })
            }
            ["old"] => {
                let (old, new) = (arguments.text("old")?, arguments.text("new")?);
                if old.trim().is_empty() {
                    return Err(format!(
                        "`{place}old` is empty or only whitespace; give the text around it, or use an \
                         anchor"
                    ));
                }
                if old == new {
                    return Err(format!(
                        "`{place}old` and `new` are the same; nothing would change"
                    ));
                }
                Ok(Self::Exact { old, new, all: arguments.flag("all")? })
            }
            [kind] => {
                let at = anchor(kind)?.ok_or_else(|| format!("`{place}{kind}` is missing"))?;
                let text = arguments.text("text")?;
                if text.is_empty() {
                    return Err(format!("`{place}text` is empty; nothing would be inserted"));
                }
                Ok(Self::Insert { at, is_after: *kind == "after", text })
            }
            _ => Err(format!(
                "`{}` must have exactly one of `from`, `after`, `before` and `old`",
                place.trim_end_matches('.')
            )),
        }
    }

    /// Says why the new text cannot be meant, if so.
    fn unfit(&self, old: &Text, at: usize) -> Option<String> {
        let text = self.text();
        if !old.is_utf8 && text.contains('\u{fffd}') {
            return Some(format!(
                "edits[{at}]: the new text has U+FFFD, which stands here for bytes that are no UTF-8 \
                 and would be lost; leave those lines out of the edit"
            ));
        }
        let is_row = |line: &str| line.contains('|') && line.parse::<Anchor>().is_ok();
        let mut lines = text.lines().filter(|line| !line.is_empty()).peekable();
        (lines.peek().is_some() && lines.all(is_row)).then(|| {
            format!(
                "edits[{at}]: each line of the new text begins with an anchor; give the text after \
                 the `|` alone"
            )
        })
    }

    /// Returns the new text.
    fn text(&self) -> &str {
        match self {
            Self::Lines { text, .. } | Self::Insert { text, .. } => text,
            Self::Exact { new, .. } => new,
        }
    }
}

#[derive(Clone, Debug)]
struct Call {
    target: Target,
    changes: Vec<Change>,
    /// When the call was made: what its anchors stood for.
    time: u64,
    /// What a person was shown.
    shown: Arc<Shown>,
}

impl Invocation for Call {
    fn requests(&self) -> Vec<Request> {
        vec![Request::path(Atom::FileEdit, &self.target.path)]
    }

    fn wishes(&self) -> Vec<Request> {
        vec![Request::path(Atom::FileRead, &self.target.path)]
    }

    fn previewer(&self, is_readable: bool) -> Option<Previewer> {
        let this = self.clone();
        Some(Box::new(move |stop| {
            let looked = this.look(Hands { is_readable, stop });
            match looked.unwrap_or_else(|error| Err(this.target.refused(&error))) {
                Ok(found) => this.preview(&found),
                Err(outcome) => Preview::Refused(outcome),
            }
        }))
    }

    fn effect(&self) -> Effect {
        Effect::Write(self.target.path.clone())
    }

    fn run(
        self: Box<Self>,
        grants: Vec<Grant>,
        _sink: Sink,
    ) -> futures_util::future::BoxFuture<'static, Outcome> {
        blocking(move |stop| {
            let hands = Hands { is_readable: self.target.is_readable(&grants), stop };
            self.target.change(&grants, |grant| self.edit(grant, hands))
        })
    }
}

/// What was found out about one call's changes before anything is written.
struct Plan {
    splices: Vec<Splice>,
    notes: Vec<String>,
}

/// The file as it is, and what it becomes.
struct Found {
    old: Text,
    stamp: files::Stamp,
    view: View,
    is_known: bool,
    plan: Plan,
    bytes: Vec<u8>,
}

/// How a call may go about it.
#[derive(Clone, Copy)]
struct Hands<'a> {
    /// Whether the run may read the file. If not, no result shows anything that the model did not
    /// give, line numbers aside.
    is_readable: bool,
    /// Set once nobody waits for the outcome any more.
    stop: &'a AtomicBool,
}

impl Hands<'_> {
    fn go_on(&self, path: &Path) -> Result<(), HostError> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(HostError::Interrupted { path: path.to_owned() });
        }
        Ok(())
    }
}

/// Why a change cannot be made: a sentence without the file's content, more words that may have
/// some, and the lines to show with it.
struct Miss {
    sentence: String,
    content: String,
    show: Vec<u64>,
}

impl Miss {
    /// Returns a miss that shows lines and says nothing of their content.
    fn new(sentence: impl Into<String>, show: impl IntoIterator<Item = u64>) -> Self {
        let show = show.into_iter().collect();
        Self { sentence: sentence.into(), content: String::new(), show }
    }
}

impl Call {
    /// Edits; a call that something else came in between looks at the new content and starts anew,
    /// since its anchors and texts are compared with what is there.
    fn edit(&self, grant: &Grant, hands: Hands<'_>) -> Result<Outcome, HostError> {
        let mut round = 1;
        loop {
            match self.edit_once(grant, hands) {
                Err(HostError::Changed { .. }) if round < MAX_ROUNDS => round += 1,
                other => return other,
            }
        }
    }

    /// Looks at the file and finds out what it becomes; the inner error is a refusal.
    fn look(&self, hands: Hands<'_>) -> Result<Result<Found, Outcome>, HostError> {
        let Target { name, path, context } = &self.target;
        let memory = &context.state.files;
        let Some((bytes, stamp)) = files::read_whole_unless(path, MAX_BYTES, hands.stop)? else {
            return Ok(Err(Outcome::error(format!(
                "`{name}` is longer than {MAX_BYTES} bytes; change it with a command"
            ))));
        };
        if let Some(kind) = lines::binary(&bytes) {
            return Ok(Err(Outcome::error(format!("`{name}` is {kind}; edit changes text only"))));
        }
        let Some(old) = Text::within(bytes, MAX_LINES) else {
            return Ok(Err(Outcome::error(format!(
                "`{name}` has more than {MAX_LINES} lines; change it with a command"
            ))));
        };
        if old.lines.is_empty() {
            return Ok(Err(Outcome::error(format!(
                "`{name}` is an empty file; use write{}",
                self.target.note_when_masked()
            ))));
        }
        hands.go_on(path)?;
        let mut view = memory.view(path);
        let is_known = view.content.as_ref().is_some_and(|known| {
            // A digest takes its time; it is made only where there is one to compare it with.
            let digest = known.digest.map(|_| lines::digest(&old.bytes));
            known.is_same(&Content { stamp, digest })
        });
        let is_sure = is_known && !view.is_patchy;
        if !is_sure {
            follow::resync(&mut view, &old);
        }
        let plan = match self.plan(&old, &view, is_sure) {
            Ok(plan) => plan,
            Err(misses) => return Ok(Err(self.missed(&old, &misses, hands))),
        };
        hands.go_on(path)?;
        let bytes = splice::apply(&old, &plan.splices);
        if bytes == old.bytes {
            return Ok(Err(Outcome::error(format!(
                "the edits change nothing: `{name}` already reads so"
            ))));
        }
        Ok(Ok(Found { old, stamp, view, is_known, plan, bytes }))
    }

    /// Returns what becomes of the file, and holds the call to that.
    fn preview(&self, found: &Found) -> Preview {
        self.shown.set(Some(found.stamp));
        Preview::Change(preview::Change {
            path: self.target.path.clone(),
            is_new: false,
            hunks: preview::hunks(&found.old.bytes, &found.bytes),
            notes: found.plan.notes.clone(),
        })
    }

    fn edit_once(&self, grant: &Grant, hands: Hands<'_>) -> Result<Outcome, HostError> {
        let Target { name, path, context } = &self.target;
        let memory = &context.state.files;
        let Found { old, stamp, mut view, is_known, plan, bytes } = match self.look(hands)? {
            Ok(found) => found,
            Err(outcome) => return Ok(outcome),
        };
        if let Some(outcome) = self.shown.differs(Some(stamp), name) {
            return Ok(outcome);
        }
        let replaced = files::replace(grant, path, &bytes, Expected::Unchanged(stamp), hands.stop)?;
        let new = Text::new(bytes);
        follow::shift(&mut view, &old, &new, &plan.splices);
        if is_known {
            let digest = Some(lines::digest(&new.bytes));
            view.content = Some(Content { stamp: replaced.stamp, digest });
        }
        memory.put(path, view);
        let count = self.changes.len();
        let plural = if count == 1 { "" } else { "s" };
        let mut text = format!("edited `{name}`: {count} edit{plural} applied");
        text.push_str(&notes_on(&replaced));
        for note in &plan.notes {
            text.push('\n');
            text.push_str(note);
        }
        if hands.is_readable {
            let (rows, shown) = around(&old, &new, &plan.splices);
            memory.saw(path, &rows);
            text.push('\n');
            text.push_str(&shown);
        } else {
            text.push_str(&changed_lines(&new, &plan.splices));
        }
        let record = json!({
            "path": path.to_string_lossy(),
            "edits": count,
            "hunks": splice::hunks(&old, &new, &plan.splices),
        });
        Ok(Outcome { text, is_error: false, record, changed: vec![path.clone()] })
    }

    /// Checks all changes against the file as it is.
    fn plan(&self, old: &Text, view: &View, is_sure: bool) -> Result<Plan, Vec<Miss>> {
        let mut plan = Plan { splices: Vec::new(), notes: Vec::new() };
        let mut misses = Vec::new();
        for (at, change) in self.changes.iter().enumerate() {
            if let Some(sentence) = change.unfit(old, at) {
                misses.push(Miss::new(sentence, []));
                continue;
            }
            if !old.is_utf8 && !change.text().is_ascii() {
                plan.notes.push(format!(
                    "edits[{at}]: the file is not UTF-8, and the new text was written as UTF-8"
                ));
            }
            let outcome = match change {
                Change::Exact { old: wanted, new, all } => exact::plan(old, wanted, new, *all, at),
                Change::Lines { .. } | Change::Insert { .. } => anchored::plan(
                    old,
                    &anchored::Known { view, time: self.time, is_sure },
                    change,
                    at,
                ),
            };
            match outcome {
                Ok((splices, note)) => {
                    plan.splices.extend(splices);
                    plan.notes.extend(note);
                }
                Err(miss) => misses.push(miss),
            }
        }
        if misses.is_empty() {
            splice::settle(old, &mut plan.splices);
            misses.extend(splice::overlap(old, &plan.splices));
        }
        if misses.is_empty() { Ok(plan) } else { Err(misses) }
    }

    /// Returns the outcome for changes that cannot be made: what is wrong, and fresh rows.
    fn missed(&self, old: &Text, misses: &[Miss], hands: Hands<'_>) -> Outcome {
        let Target { name, path, context } = &self.target;
        let mut text = format!("nothing was changed in `{name}`");
        let mut rows: BTreeMap<u64, Row> = BTreeMap::new();
        for miss in misses {
            text.push('\n');
            text.push_str(&miss.sentence);
            if !hands.is_readable {
                continue;
            }
            text.push_str(&miss.content);
            for line in miss.show.iter().filter(|line| **line >= 1 && **line <= old.count()) {
                if rows.len() < MAX_ROWS {
                    rows.insert(*line, old.row(*line));
                }
            }
        }
        if !hands.is_readable {
            text.push_str(
                "\n(this run may not read the file: `file/read` does not cover it, so its lines are \
                 not shown)",
            );
        }
        if !rows.is_empty() {
            text.push_str("\nfresh rows:\n");
            text.push_str(&splice::show(old, rows.keys().copied()));
            let rows: Vec<Row> = rows.into_values().collect();
            context.state.files.saw(path, &rows);
        }
        Outcome::error(text)
    }
}

/// Returns a line that names the changed lines of the new file, without their content.
fn changed_lines(new: &Text, splices: &[Splice]) -> String {
    let ranges: Vec<String> = splice::new_ranges(splices)
        .into_iter()
        .take(MAX_ROWS)
        .map(|(start, end)| {
            let (first, last) = (new.line_at(start), new.line_at(end.saturating_sub(1).max(start)));
            if first == last { first.to_string() } else { format!("{first}-{last}") }
        })
        .collect();
    format!(
        "\n(lines now: {}; this run may not read the file, so they are not shown)",
        ranges.join(", ")
    )
}

/// Returns the rows around each change in the new file, and their text.
fn around(old: &Text, new: &Text, splices: &[Splice]) -> (Vec<Row>, String) {
    let mut lines = BTreeSet::new();
    let mut is_cut = false;
    for (start, end) in splice::new_ranges(splices) {
        let first = new.line_at(start).saturating_sub(AROUND).max(1);
        // The offset after a change is the beginning of the next line when it ended with one.
        let last = new.line_at(end.saturating_sub(1).max(start)).saturating_add(AROUND);
        for line in first..=last.min(new.count()) {
            if lines.len() < MAX_ROWS {
                lines.insert(line);
            } else {
                is_cut = true;
            }
        }
    }
    let rows: Vec<Row> = lines.iter().map(|line| new.row(*line)).collect();
    let mut shown = splice::show(new, lines.iter().copied());
    if new.lines.is_empty() {
        shown = "(empty file)".into();
    } else if is_cut {
        shown.push_str("\n(more changed than is shown; read the rest)");
    }
    if old.count() != new.count() && !new.lines.is_empty() {
        // Writing to a string cannot fail.
        let _ = write!(shown, "\n({} lines now, {} before)", new.count(), old.count());
    }
    (rows, shown)
}

#[cfg(test)]
mod tests;
