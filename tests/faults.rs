//! A thousand runs against a server that fails in every way that servers and networks do, in orders
//! that are drawn from a seed: delays, splits at any byte, resets, cut bodies, 429, 529 and 500,
//! errors in the middle of a stream, models that are given up for the next one, interrupts and
//! steering, and compactions that fail in the same ways. What each must come to is worked out beside it, in [`schedule`], by rules of its own.
//!
//! After every run the session is read back through kli's own store, and nothing may be missing,
//! unpaired or there twice: neither in the session, nor in what is shown, nor in what the tools did.
//! A run that fails names its seed; `KLI_FAULT_SEED=N` runs that one alone.
#![expect(clippy::unwrap_used, reason = "a helper that cannot go on should end its test")]

mod compacting;
mod inside;
mod interrupts;
mod processes;
mod schedule;

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use kli::{
    message::{Block, Message, Role},
    session::{Notice, Opened, Store},
};

use crate::fake_model::Wire;
use schedule::Expected;

/// The wire formats, each with its kind in settings.
const FORMATS: [(Wire, &str); 3] =
    [(Wire::Messages, "anthropic"), (Wire::Chat, "openai-chat"), (Wire::Responses, "openai")];

/// What a run came to.
#[derive(Debug, Default)]
struct Ran {
    outcome: String,
    exit: u8,
    /// The kind of the failure; empty without one.
    kind: String,
    text: String,
    /// `PROVIDER/MODEL` that the result names.
    model: String,
    /// The text of all pieces that were shown, in order.
    shown: String,
    /// What the tools did, in order.
    effects: Vec<String>,
    /// Whether the person said something meanwhile, and how much of it was given back.
    steered: bool,
    undelivered: usize,
    /// Requests at the chosen model and at the next one.
    requests: [usize; 2],
}

/// One line for each message: who, what, and which calls and results.
fn told(messages: &[Message]) -> Vec<String> {
    let block = |block: &Block| match block {
        Block::Text { text } => text.clone(),
        Block::Opaque { .. } => String::new(),
        Block::Call(call) => format!("<{}>", call.id),
        Block::Result(result) => {
            format!("[{}{}]", result.call, if result.is_error { " failed" } else { "" })
        }
    };
    let role = |role| if role == Role::User { "user: " } else { "model: " };
    messages
        .iter()
        .map(|message| {
            message.blocks.iter().map(block).fold(role(message.role).to_owned(), |a, b| a + &b)
        })
        .collect()
}

/// Every call has exactly one result, right behind it.
fn pairs_are_whole(messages: &[Message]) -> Result<(), String> {
    let mut open: Vec<&str> = Vec::new();
    for message in messages {
        for block in &message.blocks {
            match block {
                Block::Call(call) => open.push(&call.id),
                Block::Result(result) => {
                    let at = open.iter().position(|id| *id == result.call);
                    open.remove(at.ok_or_else(|| format!("`{}` has no open call", result.call))?);
                }
                Block::Text { .. } if message.role == Role::User && !open.is_empty() => {
                    return Err(format!("text comes before the results of {open:?}"));
                }
                Block::Text { .. } | Block::Opaque { .. } => {}
            }
        }
    }
    if open.is_empty() { Ok(()) } else { Err(format!("{open:?} have no result")) }
}

/// Opens the session of a workspace through kli's own store; there must be nothing to repair.
fn reopened(store: &Store, workspace: &Path) -> Result<Opened, String> {
    for _ in 0..100 {
        let found = store.latest(workspace).unwrap().ok_or("no session is there")?;
        let opened = store.open(workspace, &found).map_err(|error| error.to_string())?;
        match opened.notices.as_slice() {
            [] => return Ok(opened),
            // A process that another test starts holds every lock of this one until its exec.
            [Notice::InUse { .. }] => thread::sleep(Duration::from_millis(10)),
            others => return Err(format!("the session was repaired: {others:?}")),
        }
    }
    Err("the session stays locked".to_owned())
}

/// Compares what a run came to with what it must come to.
fn check(expected: &Expected, ran: &Ran, messages: &[Message]) -> Result<(), String> {
    let same = |what: &str, wanted: &str, found: &str| {
        if wanted == found {
            Ok(())
        } else {
            Err(format!("{what}: wanted `{wanted}`, found `{found}`"))
        }
    };
    same("outcome", expected.outcome, &ran.outcome)?;
    same("exit code", &expected.exit.to_string(), &ran.exit.to_string())?;
    if let Some(kind) = expected.kind {
        same("kind of failure", kind, &ran.kind)?;
    }
    same("text", &expected.text, &ran.text)?;
    same("model", expected.model, &ran.model)?;
    same("effects", &expected.effects.join(" "), &ran.effects.join(" "))?;
    same("requests", &format!("{:?}", expected.requests), &format!("{:?}", ran.requests))?;
    same(
        "session",
        &expected.told(ran.steered && ran.undelivered == 0).join("\n"),
        &told(messages).join("\n"),
    )?;
    let said = |message: &&Message| message.role == Role::Assistant;
    let said: String = messages.iter().filter(said).map(Message::text).collect();
    same("what was shown", &said, &ran.shown)?;
    pairs_are_whole(messages)
}

/// Runs seeds on several threads; panics with those that failed.
fn each_seed(
    seeds: std::ops::Range<u64>,
    threads: usize,
    run: impl Fn(u64) -> Result<(), String> + Sync,
) {
    let only: Option<u64> = std::env::var("KLI_FAULT_SEED").ok().map(|seed| seed.parse().unwrap());
    let seeds = only.map_or(seeds, |seed| seed..seed + 1);
    let (next, failed) = (AtomicU64::new(seeds.start), Mutex::new(BTreeMap::new()));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    let result = catch_unwind(AssertUnwindSafe(|| run(seed)));
                    let result = result.unwrap_or_else(|_| Err("it panicked, see above".into()));
                    if let Err(why) = result {
                        failed.lock().unwrap().insert(seed, why);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    let count = failed.len();
    let shown: Vec<String> =
        failed.iter().take(5).map(|(seed, why)| format!("KLI_FAULT_SEED={seed}: {why}")).collect();
    assert!(failed.is_empty(), "{count} schedules failed:\n{}", shown.join("\n"));
}
