//! `kli sessions export`: a session whole, as text to read or as one JSON object.

use serde::Serialize;

use crate::{
    message::{Arguments, Block, Message, Role},
    session::Told,
};

use super::{CliError, Out, Place, plain, rfc3339, said, terminal};

/// The first fields of the JSON object, in order.
#[derive(Serialize)]
struct Head<'a> {
    r#type: &'static str,
    schema: u32,
    id: &'a str,
    workspace: Option<String>,
    parent: Option<String>,
    started: Option<String>,
    modified: String,
}

/// Prints one JSON object: what a list says that never changes, every event as it stands in the file,
/// and how much was damaged.
pub(super) fn json(place: &Place, id: &str) -> Result<(), CliError> {
    let found = place.find(id)?;
    let overview = place.store.overview(&found).map_err(|error| said(&error))?;
    let mut out = Out::default();
    let head = Head {
        r#type: "session-export",
        schema: 1,
        id: &found.id,
        workspace: overview.workspace,
        parent: overview.parent,
        started: overview.started.map(rfc3339),
        modified: rfc3339(found.modified),
    };
    // Strings and numbers cannot fail to serialise.
    let head = serde_json::to_string(&head).unwrap_or_default();
    out.push(head.strip_suffix('}').unwrap_or(&head));
    out.push(",\"entries\":[");
    let mut comma = "";
    let told = place.store.tell(&found, |_, json, _| {
        out.push(comma);
        out.push(json);
        comma = ",";
    });
    let damage = told.map_err(|error| said(&error))?;
    let (lines, bytes) = (damage.lines, damage.bytes);
    out.push(&format!("],\"damaged\":{{\"lines\":{lines},\"bytes\":{bytes}}}}}\n"));
    out.flush();
    Ok(())
}

/// Prints Markdown. What people and models said is quoted, and what tools said is fenced, so that
/// nothing in it reaches beyond its place.
pub(super) fn markdown(place: &Place, id: &str) -> Result<(), CliError> {
    let found = place.find(id)?;
    let mut out = Out::default();
    out.push(&format!("# Session {}\n", code(&found.id)));
    let damage = place
        .store
        .tell(&found, |at, _, told| out.push(&terminal::scrub(&written(at, &told))))
        .map_err(|error| said(&error))?;
    if damage.lines > 0 {
        out.push(&format!(
            "\nLeft out: {} damaged bytes on {} lines.\n",
            damage.bytes, damage.lines
        ));
    }
    out.flush();
    Ok(())
}

fn written(at: Option<&str>, told: &Told) -> String {
    match told {
        Told::Session { workspace, started, parent, task } => {
            let what = if *task { "sub-agent of" } else { "copy of" };
            let parent = parent
                .as_deref()
                .map_or_else(String::new, |parent| format!("- {what}: {}\n", code(parent)));
            format!("\n- workspace: {}\n- started: {}\n{parent}", code(workspace), code(started))
        }
        Told::Message(message) => written_message(at, message),
        Told::Denied { tool, detail } => format!("\nDenied {}: {}\n", code(tool), code(detail)),
        Told::Changed { path } => format!("\nChanged {}\n", code(path)),
        Told::Usage { model, usage } => format!(
            "\nAsked {}: {} tokens in, {} out\n",
            code(model),
            usage.total().saturating_sub(usage.output_tokens),
            usage.output_tokens
        ),
        Told::End { outcome, error } => {
            let error = error.as_deref().map_or_else(String::new, |e| format!(": {}", code(e)));
            format!("\nEnded {}{error}\n", code(outcome))
        }
        Told::Compacted(done) => {
            let summary = done
                .summary
                .as_deref()
                .map_or_else(String::new, |summary| format!("\n{}", quote(summary)));
            let (before, after) = (done.before, done.after);
            format!("\n## Compacted\n\nFrom about {before} to {after} tokens.\n{summary}")
        }
        Told::Other => String::new(),
    }
}

fn written_message(at: Option<&str>, message: &Message) -> String {
    let who = match message.role {
        Role::User => "User",
        Role::Assistant => "Assistant",
    };
    let at = at.map_or_else(String::new, |at| format!(" ({})", code(at)));
    let is_answer = message.blocks.iter().all(|block| matches!(block, Block::Result(_)));
    let mut parts = if is_answer { Vec::new() } else { vec![format!("\n## {who}{at}\n")] };
    for block in &message.blocks {
        parts.push("\n".to_owned());
        parts.push(match block {
            Block::Text { text } => quote(text),
            Block::Call(call) => {
                let (arguments, language) = match &call.arguments {
                    Arguments::Object(map) => {
                        (serde_json::to_string_pretty(map).unwrap_or_default(), "json")
                    }
                    Arguments::Malformed(text) => (text.clone(), "text"),
                };
                format!("Call {}:\n\n{}", code(&call.name), fence(&arguments, language))
            }
            Block::Result(result) => {
                let what = if result.is_error { "Error" } else { "Result" };
                format!("{what}:\n\n{}", fence(&result.text, "text"))
            }
            Block::Opaque { model, .. } => {
                format!("A part that only {} can read is left out.\n", code(model))
            }
        });
    }
    parts.concat()
}

/// Returns a text as a quotation: whatever Markdown it begins, it ends with the quotation.
fn quote(text: &str) -> String {
    // Every line end that Markdown knows.
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    text.trim_end().split('\n').fold(String::new(), |quoted, line| quoted + "> " + line + "\n")
}

/// Returns a text as a code block, between fences that are longer than any run of backticks in it.
fn fence(text: &str, language: &str) -> String {
    let fence = "`".repeat(longest_run(text).max(2) + 1);
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}{language}\n{text}{end}{fence}\n")
}

/// Returns foreign text as code within a line.
fn code(text: &str) -> String {
    let text = plain(text);
    let ticks = "`".repeat(longest_run(&text) + 1);
    let space =
        if text.starts_with('`') || text.ends_with('`') || text.is_empty() { " " } else { "" };
    format!("{ticks}{space}{text}{space}{ticks}")
}

fn longest_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_breaks_out_of_a_fence_a_quotation_or_a_line() {
        assert_eq!(fence("a", "text"), "```text\na\n```\n");
        assert_eq!(fence("```\n# x\n`````\n", "text"), "``````text\n```\n# x\n`````\n``````\n");
        assert_eq!(quote("```\nopen\r# x\r\n\n<!--"), "> ```\n> open\n> # x\n> \n> <!--\n");
        assert_eq!(code("a`b``c"), "```a`b``c```");
        assert_eq!(code("`\n"), "`` `\\n ``");
    }
}
