//! `kli sessions show`: a conversation to read, tool calls on one line, results cut.

use crate::{
    message::{Arguments, Block, Message, Role},
    session::Told,
};

use super::{CliError, Out, Place, cut, plain, said, terminal};

/// The longest call that is shown, in characters.
const CALL: usize = 100;
/// How many lines of a result are shown.
const RESULT: usize = 6;
/// The longest line of a result, in characters.
const RESULT_LINE: usize = 160;

pub(super) fn run(place: &Place, id: &str) -> Result<(), CliError> {
    let found = place.find(id)?;
    let mut out = Out::default();
    out.push(&format!("session {}\n", found.id));
    let damage = place
        .store
        .tell(&found, |at, _, told| out.push(&terminal::scrub(&shown(at, &told))))
        .map_err(|error| said(&error))?;
    out.flush();
    if damage.lines > 0 {
        let (bytes, lines) = (damage.bytes, damage.lines);
        terminal::note(&format!("kli: {bytes} damaged bytes on {lines} lines are left out"));
    }
    Ok(())
}

fn shown(at: Option<&str>, told: &Told) -> String {
    match told {
        Told::Session { workspace, started, parent, task } => {
            let what = if *task { "sub-agent of" } else { "copy of" };
            let parent = parent
                .as_deref()
                .map_or_else(String::new, |parent| format!("{what} {}\n", plain(parent)));
            format!("workspace {}\nstarted {}\n{parent}", plain(workspace), plain(started))
        }
        Told::Message(message) => shown_message(at, message),
        Told::Denied { tool, detail } => format!("  denied {}: {}\n", plain(tool), plain(detail)),
        Told::Changed { path } => format!("  changed {}\n", plain(path)),
        Told::End { outcome, error } => {
            let error = error.as_deref().map_or_else(String::new, |e| format!(": {}", plain(e)));
            format!("\n-- {}{error}\n", plain(outcome))
        }
        Told::Compacted(done) => {
            let (before, after) = (done.before, done.after);
            let summary = done.summary.iter().flat_map(|summary| summary.lines());
            let lines = summary.fold(String::new(), |lines, line| lines + "  " + line + "\n");
            let gap = if lines.is_empty() { "" } else { "\n" };
            format!("\n-- compacted from about {before} to {after} tokens\n{gap}{lines}")
        }
        Told::Usage { .. } | Told::Other => String::new(),
    }
}

fn shown_message(at: Option<&str>, message: &Message) -> String {
    // What only carries results stands with the calls that they answer.
    let is_answer = message.blocks.iter().all(|block| matches!(block, Block::Result(_)));
    let mut parts = Vec::new();
    if !is_answer {
        let who = match message.role {
            Role::User => "user",
            Role::Assistant => "assistant",
        };
        let at = at.map_or_else(String::new, |at| format!("  {}", cut(at, 24)));
        parts.push(format!("\n## {who}{at}\n"));
    }
    for block in &message.blocks {
        match block {
            Block::Text { text } => {
                // Lines of kli's own are the only ones that begin at the margin.
                let lines = text.trim_end().lines().map(|line| format!("  {line}\n"));
                parts.push("\n".to_owned());
                parts.extend(lines);
            }
            Block::Call(call) => {
                let arguments = match &call.arguments {
                    Arguments::Object(map) => serde_json::to_string(map).unwrap_or_default(),
                    Arguments::Malformed(text) => format!("(malformed) {text}"),
                };
                let line = format!("{} {arguments}", call.name);
                parts.push(format!("\n  > {}\n", cut(&line, CALL)));
            }
            Block::Result(result) => {
                let mut lines = result.text.lines();
                let mark = if result.is_error { "  ! " } else { "  | " };
                for line in lines.by_ref().take(RESULT) {
                    parts.push(format!("{mark}{}\n", cut(line, RESULT_LINE)));
                }
                match lines.count() {
                    0 => {}
                    more => parts.push(format!("{mark}… {more} more lines\n")),
                }
            }
            Block::Opaque { .. } => {}
        }
    }
    parts.concat()
}
