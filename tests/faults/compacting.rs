//! The schedules with windows so small that conversations are made shorter in the middle of them,
//! by a summariser that fails in every way, too. That must change nothing of what a run comes to, and
//! lose nothing: all that was said is in the file, once and in order, and what goes on from each
//! compaction is what the next run finds.

use std::{
    collections::VecDeque,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use fastrand::Rng;
use kli::{
    agent::compact::{Policy, SUMMARY},
    message::Message,
    model::Model,
    session::{Opened, Store, Told, pair},
};
use serde_json::Value;

use crate::fake_model::{Answer, FakeModel, Seen, Wire, text};

use super::{
    Ran, check, each_seed,
    inside::{Bench, Driven, Effects, Hold, MANNER, agent, drive, model},
    pairs_are_whole, reopened,
    schedule::{Manner, Moment, PROMPT, Schedule, draw},
    told,
};

/// What the servers of a run have seen.
#[derive(Debug, Default)]
struct Counts {
    /// Requests for answers, at the chosen model and the next one.
    asked: [AtomicUsize; 2],
    /// Requests for summaries.
    summaries: AtomicUsize,
    /// Times that the window was said to be full.
    full: AtomicUsize,
    /// Whether a summary is on its way that will not come.
    hangs: AtomicUsize,
}

impl Counts {
    fn requests(&self) -> [usize; 2] {
        self.asked.each_ref().map(|count| count.load(Ordering::SeqCst))
    }
}

/// How the summaries of a run come out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manners {
    /// In every way.
    Any,
    /// All are there.
    Good,
    /// None comes to an end.
    Hang,
}

fn is_for_a_summary(body: &Value) -> bool {
    body["tools"].as_array().is_none_or(Vec::is_empty)
}

/// The answer to a request for the summary of this number.
fn summary(wire: Wire, number: usize, manners: Manners, rng: &mut Rng) -> Answer {
    let good = wire.answer([text(&format!("So far {number}."))]);
    let kind = match manners {
        Manners::Any => rng.u8(0..14),
        Manners::Good => 0,
        Manners::Hang => {
            let cut = rng.usize(0..=wire.after_text(&good, 0));
            return Answer::new(good).hang_after(cut);
        }
    };
    match kind {
        0..=4 => Answer::new(good),
        5 => wire.status(529).header("retry-after-ms", "1"),
        6 => wire.status(429).header("retry-after", "3600"),
        7 => {
            let cut = rng.usize(0..good.len() - 1);
            Answer::new(good).end_after(cut)
        }
        8 => {
            let cut = rng.usize(0..good.len() - 1);
            Answer::new(good).reset_after(cut)
        }
        9 => wire.refusal(400, "invalid_request_error", "not that"),
        10 => wire.refusal(401, "authentication_error", "that key is no good"),
        11 => wire.refusal(413, "request_too_large", "prompt is too long"),
        12 => Answer::new(wire.answer([text(" ")])),
        // Longer than what it stands for.
        _ => Answer::new(wire.answer([text(&"It was a long way. ".repeat(400))])),
    }
}

/// A server that plays a script and makes summaries beside it. `full` are the answers before which it
/// says that its window is full.
fn server(
    place: usize,
    wire: Wire,
    script: Vec<Answer>,
    mut rng: Rng,
    manners: Manners,
    full: Vec<usize>,
    counts: &Arc<Counts>,
) -> FakeModel {
    let counts = Arc::clone(counts);
    let state = Mutex::new((VecDeque::from(script), rng.fork(), full));
    FakeModel::answering(move |seen: &Seen| {
        let (script, rng, full) = &mut *state.lock().unwrap();
        if is_for_a_summary(&seen.json()) {
            let number = counts.summaries.fetch_add(1, Ordering::SeqCst);
            counts.hangs.fetch_add(usize::from(manners == Manners::Hang), Ordering::SeqCst);
            return summary(wire, number, manners, rng);
        }
        let number = counts.asked[place].load(Ordering::SeqCst);
        if let Some(at) = full.iter().position(|answer| *answer == number) {
            full.swap_remove(at);
            counts.full.fetch_add(1, Ordering::SeqCst);
            return wire.refusal(413, "request_too_large", "prompt is too long");
        }
        counts.asked[place].fetch_add(1, Ordering::SeqCst);
        let none = || wire.refusal(400, "invalid_request_error", "the script has run out");
        script.pop_front().unwrap_or_else(none)
    })
}

/// What a session's file holds, read event by event.
#[derive(Debug, Default)]
struct File {
    /// All that was said, as if nothing had been made shorter.
    all: Vec<Message>,
    compactions: usize,
    /// How many messages stand before the last compaction.
    before_the_last: usize,
}

fn read(store: &Store, room: &Path) -> File {
    let found = store.latest(room).unwrap().unwrap();
    let mut file = File::default();
    store
        .tell(&found, |_, _, event| match event {
            Told::Message(message) => file.all.push(message),
            Told::Compacted(_) => {
                file.compactions += 1;
                file.before_the_last = file.all.len();
            }
            _ => {}
        })
        .unwrap();
    file
}

/// What a schedule came to with small windows.
struct Played {
    schedule: Schedule,
    ran: Ran,
    message: String,
    file: File,
    opened: Opened,
    compacted: usize,
    counts: Arc<Counts>,
    /// Whether the window is so large that only the server says that it is full, never twice in a row.
    is_roomy: bool,
}

fn play(
    seed: u64,
    manner: Manner,
    manners: Manners,
    room: &Path,
    change: impl Fn(&mut Schedule, &mut Rng) -> Vec<usize>,
) -> Result<Played, String> {
    let mut schedule = draw(seed, manner);
    let mut rng = Rng::with_seed(seed ^ 0x00c0_ffee);
    let full = change(&mut schedule, &mut rng);
    let counts: Arc<Counts> = Arc::default();
    let fakes = [0, 1].map(|place| {
        let (wire, script) = (schedule.wires[place], schedule.scripts[place].clone());
        let full = if place == 0 { full.clone() } else { Vec::new() };
        server(place, wire, script, rng.fork(), manners, full, &counts)
    });
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = |number: usize| match (number, schedule.is_gone) {
        (0, true) => format!("http://{closed}{}", schedule.wires[0].base()),
        _ => fakes[number].url(schedule.wires[number]),
    };
    let count = if schedule.has_next { 2 } else { 1 };
    let models: Vec<Arc<dyn Model>> =
        (0..count).map(|n| model(n, schedule.wires[n], url(n))).collect();
    let store = Store::new(room);
    let effects = Effects::default();
    let hold = Hold { call: schedule.steer, said: Arc::default() };
    // The servers count next to no tokens, so a window of that many is soon full.
    let window = rng.u64(20..120);
    let is_roomy = !full.is_empty() && rng.bool();
    let window = if is_roomy { 4000 } else { window };
    let is_roomy =
        is_roomy && full.iter().all(|it| full.iter().filter(|at| *at == it).count() == 1);
    let bench = Bench {
        models,
        history: Vec::new(),
        log: store.create(room).unwrap(),
        effects: Arc::clone(&effects),
        hold: hold.clone(),
        compaction: Policy { window: Some(window), keep: rng.u64(0..60), ..Policy::default() },
    };
    let asked = || {
        let hangs = counts.hangs.load(Ordering::SeqCst) > 0;
        if hangs { usize::MAX } else { counts.requests().iter().sum() }
    };
    let driven = drive(agent(bench, room), PROMPT, Some(&schedule), asked, &hold);
    let Driven { summary, shown, compacted, .. } = driven;
    let done = effects.lock().unwrap().clone();
    let fault = summary.fault;
    let ran = Ran {
        outcome: format!("{:?}", summary.outcome).to_lowercase(),
        exit: summary.exit,
        kind: fault.as_ref().map_or_else(String::new, |f| format!("{:?}", f.kind).to_lowercase()),
        text: summary.text,
        model: summary.model.unwrap_or_default(),
        shown,
        steered: schedule.steer.is_some_and(|call| call <= done.len()),
        effects: done,
        undelivered: summary.undelivered.len(),
        requests: counts.requests(),
    };
    let opened = reopened(&store, room)?;
    let file = read(&store, room);
    let message = fault.map_or_else(String::new, |fault| fault.message);
    Ok(Played { schedule, ran, message, file, opened, compacted, counts, is_roomy })
}

/// What must hold of every session in which conversations were made shorter.
fn holds(played: &Played) -> Result<(), String> {
    let Played { file, opened, compacted, .. } = played;
    if file.compactions != *compacted {
        return Err(format!("{compacted} were told, {} are in the file", file.compactions));
    }
    pairs_are_whole(&file.all)?;
    pairs_are_whole(&opened.messages)?;
    // What goes on is all, or a shorter beginning with all that came after it.
    let (goes_on, all) = (told(&opened.messages), told(&pair(file.all.clone())));
    if *compacted == 0 {
        return if goes_on == all { Ok(()) } else { Err(format!("{goes_on:?} is not {all:?}")) };
    }
    let after = told(&pair(file.all[file.before_the_last..].to_vec()));
    // Results that were told before it are put together with those that come after.
    let ends_so = |wanted: &[String]| {
        goes_on.len() >= wanted.len()
            && goes_on.iter().rev().zip(wanted.iter().rev()).all(|(a, b)| a.ends_with(b.as_str()))
    };
    if !ends_so(&after) {
        return Err(format!("{goes_on:?} does not end with {after:?}"));
    }
    let words: String = opened.messages.iter().map(Message::text).collect();
    let last = if played.ran.steered && played.ran.undelivered == 0 {
        super::schedule::STEER
    } else {
        PROMPT
    };
    if !words.contains(last) || words.matches(SUMMARY).count() > 1 {
        return Err(format!("`{last}` is lost, or there are two summaries: {words}"));
    }
    Ok(())
}

/// Goes on with the session, at a server that refuses what real ones refuse.
fn goes_on(played: Played, room: &Path) -> Result<(), String> {
    let wire = played.schedule.wires[0];
    let fake = FakeModel::strict(vec![Answer::new(wire.answer([text("Here.")]))]);
    let bench = Bench {
        models: vec![model(0, wire, fake.url(wire))],
        history: played.opened.messages,
        log: played.opened.log,
        effects: Effects::default(),
        hold: Hold::default(),
        compaction: Policy::default(),
    };
    let hold = Hold::default();
    let summary = drive(agent(bench, room), "Go on.", None, || 0, &hold).summary;
    match (summary.exit, summary.text.as_str()) {
        (0, "Here.") => Ok(()),
        _ => Err(format!("the session does not go on: {summary:?}")),
    }
}

#[test]
fn the_schedules_come_to_the_same_where_conversations_are_made_shorter() {
    let (compacted, summaries) = (AtomicUsize::new(0), AtomicUsize::new(0));
    each_seed(0..600, 16, |seed| {
        let room = tempfile::tempdir().unwrap();
        let played = play(seed, MANNER, Manners::Any, room.path(), |_, _| Vec::new())?;
        let all = pair(played.file.all.clone());
        let tell = |why| format!("{why}\n{:?}\n{:?}", played.schedule, played.ran);
        check(&played.schedule.expected, &played.ran, &all).map_err(tell)?;
        holds(&played).map_err(tell)?;
        compacted.fetch_add(played.compacted, Ordering::SeqCst);
        summaries.fetch_add(played.counts.summaries.load(Ordering::SeqCst), Ordering::SeqCst);
        goes_on(played, room.path())
    });
    println!("{compacted:?} compactions, {summaries:?} requests for a summary");
    if std::env::var_os("KLI_FAULT_SEED").is_none() {
        assert!(compacted.into_inner() > 150 && summaries.into_inner() > 150);
    }
}

#[test]
fn a_window_that_is_full_is_made_to_fit_or_ends_the_run_with_nothing_lost() {
    let (went_on, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let manner = Manner { failures: 0, ..MANNER };
    each_seed(0..300, 16, |seed| {
        let room = tempfile::tempdir().unwrap();
        let played = play(seed, manner, Manners::Good, room.path(), |_, rng| {
            (0..rng.usize(1..3)).map(|_| [0, 1, 1, 2, 2, 2, 3, 3][rng.usize(0..8)]).collect()
        });
        let played = played?;
        let tell = |why| format!("{why}\n{:?}\n{:?}", played.schedule, played.ran);
        holds(&played).map_err(tell)?;
        let all = pair(played.file.all.clone());
        let was_full = played.counts.full.load(Ordering::SeqCst) > 0;
        if was_full && played.message.contains("does not fit the context window") {
            let ended_so = (played.ran.outcome.as_str(), played.ran.exit, played.ran.kind.as_str());
            if ended_so != ("error", 4, "provider") {
                return Err(tell(format!("it ended so: {ended_so:?}")));
            }
            let (so_far, whole) = (told(&all), played.schedule.expected.told(played.ran.steered));
            if !whole.starts_with(&so_far) {
                return Err(tell(format!("{so_far:?} does not begin {whole:?}")));
            }
            // Where nothing has been left out yet, it ends for want of anything but the prompt.
            if played.is_roomy && so_far.len() > 1 {
                return Err(tell(format!("it could have been made shorter: {}", played.message)));
            }
            ended.fetch_add(1, Ordering::SeqCst);
        } else {
            check(&played.schedule.expected, &played.ran, &all).map_err(tell)?;
            went_on.fetch_add(usize::from(was_full), Ordering::SeqCst);
        }
        goes_on(played, room.path())
    });
    println!("{went_on:?} runs went on after a full window, {ended:?} ended");
    if std::env::var_os("KLI_FAULT_SEED").is_none() {
        assert!(went_on.into_inner() > 40 && ended.into_inner() > 40);
    }
}

#[test]
fn a_run_that_is_stopped_while_a_summary_is_made_keeps_all_that_was_said() {
    let (stopped, steered) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let manner = Manner { failures: 0, ..MANNER };
    each_seed(0..200, 16, |seed| {
        if draw(seed, manner).stop.is_some() {
            return Ok(());
        }
        let room = tempfile::tempdir().unwrap();
        let term = seed % 2 == 0;
        let played = play(seed, manner, Manners::Hang, room.path(), |schedule, _| {
            schedule.stop = Some((Moment::Asked(usize::MAX), term));
            Vec::new()
        });
        let played = played?;
        let tell = |why| format!("{why}\n{:?}\n{:?}", played.schedule, played.ran);
        let all = pair(played.file.all.clone());
        holds(&played).map_err(tell)?;
        if played.counts.hangs.load(Ordering::SeqCst) == 0 {
            check(&played.schedule.expected, &played.ran, &all).map_err(tell)?;
            return goes_on(played, room.path());
        }
        let ended = (played.ran.outcome.as_str(), played.ran.exit);
        if ended != ("interrupted", if term { 143 } else { 130 }) {
            return Err(tell(format!("it ended so: {ended:?}")));
        }
        // At a boundary, so what the person said is told already.
        let (so_far, whole) = (told(&all), played.schedule.expected.told(played.ran.steered));
        if played.ran.undelivered > 0 || !whole.starts_with(&so_far) || so_far.len() < 3 {
            return Err(tell(format!("{so_far:?} does not begin {whole:?}")));
        }
        assert!(played.schedule.expected.length() > 2);
        stopped.fetch_add(1, Ordering::SeqCst);
        steered.fetch_add(usize::from(played.ran.steered), Ordering::SeqCst);
        goes_on(played, room.path())
    });
    println!("{stopped:?} runs were stopped, in {steered:?} of them the person had said something");
    if std::env::var_os("KLI_FAULT_SEED").is_none() {
        assert!(stopped.into_inner() > 20 && steered.into_inner() > 5);
    }
}
