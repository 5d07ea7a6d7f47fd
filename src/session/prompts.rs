//! The prompts of a session, with where each begins: what a conversation can go back to.

use crate::message::{Block, Message, Role};

use super::{
    Forked, Found, Notice, SessionError, Store,
    entry::Read,
    log::{Log, Stage},
    scan::{self, LONGEST, Part},
    store::fresh,
};

/// The most names of calls that are listed for one prompt.
const MOST: usize = 1_000;

/// A prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// How many messages the session had before it.
    pub message: u64,
    /// Where its line begins in the file, in bytes.
    pub(super) offset: u64,
    /// What was said.
    pub text: String,
    /// The calls that came of it: the tool's name, and the command when it has one. At most 1,000.
    pub calls: Vec<(String, String)>,
}

impl Store {
    /// Returns the prompts of a session, the first one first: what was said after an answer or an end,
    /// not what went along with results.
    ///
    /// # Errors
    /// [`SessionError::Read`].
    pub fn prompts(&self, found: &Found) -> Result<Vec<Prompt>, SessionError> {
        let file = self.file(found)?;
        let mut prompts: Vec<Prompt> = Vec::new();
        let mut message = 0;
        // Whether what a person says now is a prompt, and not more of the one before.
        let mut begins = true;
        scan::scan_at(file, &found.path, u64::MAX, LONGEST, |offset, part| {
            match part {
                Part::Kept(_, Read::Message(said)) => {
                    if said.role == Role::User && is_text(&said) {
                        if std::mem::take(&mut begins) {
                            let text = said.text();
                            prompts.push(Prompt { message, offset, text, calls: Vec::new() });
                        }
                    } else {
                        // After results the agent still works.
                        begins = said.role == Role::Assistant && said.calls().next().is_none();
                    }
                    if let Some(prompt) = prompts.last_mut() {
                        let room = MOST.saturating_sub(prompt.calls.len());
                        prompt.calls.extend(said.calls().map(called).take(room));
                    }
                    message += 1;
                }
                Part::Kept(_, Read::Withdrawn(count)) => {
                    // It is no part of the conversation, so there is nothing to go back to.
                    let from = message.saturating_sub(count);
                    if prompts.last().is_some_and(|prompt: &Prompt| prompt.message >= from) {
                        prompts.pop();
                    }
                    begins = true;
                }
                // The end of a run, or the beginning of the next one after a run that broke off.
                Part::Kept(line, Read::Other) => {
                    begins |= [&br#"{"type":"end","#[..], br#"{"type":"authority","#]
                        .iter()
                        .any(|kind| line.starts_with(kind));
                }
                _ => {}
            }
            Ok(())
        })?;
        Ok(prompts)
    }

    /// Makes a copy of a session of this workspace that ends before a prompt, on the disk when this
    /// returns. The session itself is only read, and has all of it still.
    ///
    /// # Errors
    /// As for [`Store::fork`].
    pub fn fork_before(
        &self,
        workspace: &std::path::Path,
        found: &Found,
        prompt: &Prompt,
    ) -> Result<Forked, SessionError> {
        let source = self.file(found)?;
        let directory = self.writable(workspace).map_err(SessionError::write)?;
        let (id, name, started) = fresh();
        let stage = Stage::copy(source, found, prompt.offset, started);
        let grant = self.grant();
        Log::new(id.clone(), name, directory, workspace, grant, stage).make()?;
        Ok(Forked { id, notices: Vec::<Notice>::new() })
    }
}

pub(super) fn is_text(message: &Message) -> bool {
    message.blocks.iter().all(|block| matches!(block, Block::Text { .. }))
}

fn called(call: &crate::message::ToolCall) -> (String, String) {
    let command = match &call.arguments {
        crate::message::Arguments::Object(map) => {
            map.get("command").and_then(serde_json::Value::as_str).unwrap_or_default()
        }
        crate::message::Arguments::Malformed(_) => "",
    };
    (call.name.clone(), command.chars().take(200).collect())
}
