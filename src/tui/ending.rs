//! The end of the agent, when a person leaves or a signal ends the interface while it works.

use std::time::Duration;

use tokio::time::timeout;

use crate::agent::Op;

use super::{edge::Conversation, state::State};

/// How long the agent has.
const ENDING: Duration = Duration::from_secs(2);

/// Tells an agent that works to end, and waits for it. `code` is the exit code of a signal, or none
/// when the person leaves.
pub(super) async fn wait(
    state: &mut State,
    talk: &mut Conversation,
    agent_is_there: bool,
    code: Option<u8>,
) {
    if !state.is_working() || !agent_is_there {
        return;
    }
    let op = if code.is_some() { Op::Terminate } else { Op::Interrupt };
    if talk.ops.send(op).is_err() {
        return;
    }
    let ending = async {
        while state.is_working() {
            tokio::select! {
                biased;
                event = talk.events.recv() => match event {
                    Some(event) => drop(state.event(event)),
                    None => break,
                },
                () = &mut talk.agent => break,
            }
        }
    };
    drop(timeout(ENDING, ending).await);
}
