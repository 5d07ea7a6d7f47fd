//! Interrupts at every byte of an answer: whatever had come is kept, the run ends at once, and the
//! session goes on.

use std::{sync::Arc, time::Duration};

use kli::{
    agent::{Outcome, compact::Policy},
    session::Store,
};

use crate::fake_model::{Answer, FakeModel, text, tool_use};

use super::{
    FORMATS, each_seed,
    inside::{Bench, Driven, Hold, agent, drive, model},
    pairs_are_whole, reopened,
    schedule::{Expected, Moment, PROMPT, Schedule, note},
};

#[test]
fn an_interrupt_at_any_byte_keeps_what_came_and_leaves_a_session_that_goes_on() {
    let words = "Ein Wort, 漢字 🐕";
    for (wire, _) in FORMATS {
        let stream =
            wire.answer([text(words), tool_use("c1", "note", &note("c1", false).to_string())]);
        let end = u64::try_from(stream.len()).unwrap();
        each_seed(0..end, 16, |byte| {
            let cut = usize::try_from(byte).unwrap();
            let fake = FakeModel::strict(vec![
                Answer::new(&*stream).hang_after(cut),
                Answer::new(wire.answer([text("Here.")])),
            ]);
            let room = tempfile::tempdir().unwrap();
            let store = Store::new(room.path());
            let effects = Arc::default();
            let bench = Bench {
                models: vec![model(0, wire, fake.url(wire))],
                history: Vec::new(),
                log: store.create(room.path()).unwrap(),
                effects: Arc::clone(&effects),
                hold: Hold::default(),
                compaction: Policy::default(),
            };
            // What is shown tells that the bytes are there; without words the request does.
            let said: String = said(wire, &stream, cut, words);
            let moment = match said.chars().count() {
                0 => Moment::Asked(1),
                count => Moment::Shown(count),
            };
            let schedule = Schedule {
                wires: [wire, wire],
                scripts: [Vec::new(), Vec::new()],
                is_gone: false,
                has_next: false,
                stop: Some((moment, false)),
                steer: None,
                expected: Expected::default(),
            };
            let asked = || fake.requests().len();
            let Driven { summary, shown, stopped: took, .. } =
                drive(agent(bench, room.path()), PROMPT, Some(&schedule), asked, &Hold::default());
            let ended = (summary.outcome, summary.exit, summary.text.as_str());
            if ended != (Outcome::Interrupted, 130, said.as_str()) || shown != said {
                return Err(format!("wanted `{said}`, found {ended:?}"));
            }
            if took.is_none_or(|took| took > Duration::from_secs(5)) {
                return Err(format!("it took {took:?}"));
            }
            if !effects.lock().unwrap().is_empty() {
                return Err("a call was run, though the answer was not whole".into());
            }
            let opened = reopened(&store, room.path())?;
            pairs_are_whole(&opened.messages)?;
            let kept: String =
                opened.messages.iter().skip(1).map(kli::message::Message::text).collect();
            if kept != said {
                return Err(format!("the session keeps `{kept}`"));
            }
            // What follows depends on what was kept, and not on the byte.
            if byte % 16 > 0 {
                return Ok(());
            }
            let bench = Bench {
                models: vec![model(0, wire, fake.url(wire))],
                history: opened.messages,
                log: opened.log,
                effects,
                hold: Hold::default(),
                compaction: Policy::default(),
            };
            let hold = Hold::default();
            let summary = drive(agent(bench, room.path()), "Go on.", None, || 0, &hold).summary;
            if summary.exit == 0 { Ok(()) } else { Err(format!("it does not go on: {summary:?}")) }
        });
    }
}

/// The words of the events that are whole before a byte.
fn said(wire: crate::fake_model::Wire, stream: &str, cut: usize, words: &str) -> String {
    let pieces = words.chars().count().div_ceil(7);
    let whole = (0..pieces).filter(|number| wire.after_text(stream, *number) <= cut).count();
    words.chars().take(7 * whole).collect()
}
