//! A schedule: what the server does to each request, drawn from a seed, and what the run must come
//! to. Nothing of kli's own decides here.

use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};

use crate::fake_model::{Answer, Newline, Part, Wire, text, thinking, tool_use};

use super::FORMATS;

/// The names of the chosen model and of the next one, `PROVIDER/MODEL`.
pub(super) const MODELS: [&str; 2] = ["one/m1", "two/m2"];

/// What the person says in the middle.
pub(super) const STEER: &str = "And be quick.";

/// The prompt.
pub(super) const PROMPT: &str = "Do it.";

/// How the tools are called, and how often a request is tried again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    pub(super) tool: &'static str,
    /// The arguments of a call that leaves a mark; with `true` it never ends.
    pub(super) arguments: fn(&str, bool) -> Value,
    pub(super) retries: usize,
    /// The most failures of one request; those above the retries end the run or change the model.
    pub(super) failures: usize,
    pub(super) steers: bool,
}

/// When the person stops the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// So many characters were shown.
    Shown(usize),
    /// So many requests were made, of the chosen model and the next together.
    Asked(usize),
    /// So many calls were started.
    Started(usize),
}

/// One run.
pub(super) struct Schedule {
    /// The wire formats of the two models.
    pub(super) wires: [Wire; 2],
    pub(super) scripts: [Vec<Answer>; 2],
    /// Whether nobody listens where the chosen model should be.
    pub(super) is_gone: bool,
    pub(super) has_next: bool,
    /// When the run is stopped, and whether by TERM.
    pub(super) stop: Option<(Moment, bool)>,
    /// At which call the person says something.
    pub(super) steer: Option<usize>,
    pub(super) expected: Expected,
}

/// Without the bytes: the seed makes them again.
impl std::fmt::Debug for Schedule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Schedule")
            .field("wires", &self.wires)
            .field("answers", &self.scripts.each_ref().map(Vec::len))
            .field("is_gone", &self.is_gone)
            .field("has_next", &self.has_next)
            .field("stop", &self.stop)
            .field("steer", &self.steer)
            .field("expected", &self.expected)
            .finish()
    }
}

/// What a run must come to.
#[derive(Debug, Default)]
pub(super) struct Expected {
    pub(super) outcome: &'static str,
    pub(super) exit: u8,
    /// Not told where both kinds are right.
    pub(super) kind: Option<&'static str>,
    pub(super) text: String,
    pub(super) model: &'static str,
    pub(super) effects: Vec<String>,
    pub(super) requests: [usize; 2],
    told: Vec<String>,
    /// Before which line of the session stands what the person said meanwhile.
    steered: Option<usize>,
}

impl Expected {
    /// How many lines the session has at most, without what the person said meanwhile.
    pub(super) fn length(&self) -> usize {
        self.told.len()
    }

    /// The lines of the session, with or without what the person said meanwhile.
    pub(super) fn told(&self, with_steering: bool) -> Vec<String> {
        let mut told = self.told.clone();
        if let (Some(at), true) = (self.steered, with_steering) {
            told.insert(at.min(told.len()), format!("user: {STEER}"));
        }
        told
    }
}

/// Why a request failed before a word had come.
enum Failure {
    Again(Option<&'static str>),
    Long,
    Final(&'static str),
}

struct Maker {
    rng: Rng,
    manner: Manner,
    schedule: Schedule,
    at: usize,
    calls: usize,
}

/// Draws a schedule.
pub(super) fn draw(seed: u64, manner: Manner) -> Schedule {
    let mut rng = Rng::with_seed(seed);
    // Every format comes as often, whatever is drawn after.
    let first = usize::try_from(seed).unwrap() % FORMATS.len();
    let wires =
        [FORMATS[first].0, FORMATS[(first + rng.usize(0..FORMATS.len())) % FORMATS.len()].0];
    let schedule = Schedule {
        wires,
        scripts: [Vec::new(), Vec::new()],
        is_gone: rng.u8(..) < 12,
        has_next: rng.bool(),
        stop: None,
        steer: None,
        expected: Expected { told: vec![format!("user: {PROMPT}")], ..Expected::default() },
    };
    let mut maker = Maker { rng, manner, schedule, at: 0, calls: 0 };
    maker.run();
    maker.schedule.expected.model = MODELS[maker.at];
    maker.schedule
}

impl Maker {
    fn run(&mut self) {
        let rounds = self.rng.usize(1..=4);
        for round in 0..rounds {
            let is_last = round + 1 == rounds;
            if !self.ask(round, is_last) {
                return;
            }
        }
        self.end("ok", 0, None);
    }

    fn end(&mut self, outcome: &'static str, exit: u8, kind: Option<&'static str>) {
        let expected = &mut self.schedule.expected;
        expected.outcome = outcome;
        expected.exit = exit;
        expected.kind = kind.or((exit == 0 || exit > 128).then_some(""));
    }

    /// One answer with all that goes wrong before it; says whether the run goes on.
    fn ask(&mut self, round: usize, is_last: bool) -> bool {
        let mut failed = 0;
        loop {
            let gone = self.schedule.is_gone && self.at == 0;
            let fails = gone || failed < self.manner.failures && self.rng.u8(..) < 90;
            if !fails {
                break;
            }
            let failure = if gone { Failure::Again(Some("network")) } else { self.failure(round) };
            // Where nobody listens nothing is counted.
            self.schedule.expected.requests[self.at] += usize::from(!gone);
            failed += 1;
            let kind = match failure {
                Failure::Again(_) if failed <= self.manner.retries => continue,
                Failure::Again(kind) => kind,
                Failure::Long => Some("provider"),
                Failure::Final(kind) => {
                    self.end("error", 4, Some(kind));
                    return false;
                }
            };
            if !self.schedule.has_next || self.at == 1 {
                self.end("error", 4, kind);
                return false;
            }
            self.at = 1;
            failed = 0;
        }
        self.schedule.expected.requests[self.at] += 1;
        self.answer(round, is_last)
    }

    /// The words of an answer: long enough to be cut anywhere, each said once in a run.
    fn words(round: usize) -> String {
        format!(
            "Step {round}: the brown fox № {round} jumps over größere Hunde 🐕, {round} times. "
        )
    }

    fn parts(&mut self, round: usize, calls: &[(String, bool)]) -> Vec<Part> {
        let mut parts = Vec::new();
        if self.rng.bool() {
            // The fake takes thinking back from the model that made it alone.
            let (_, model) = MODELS[self.at].split_once('/').unwrap();
            parts.push(thinking("Hm. ", &format!("{model}:signed")));
        }
        parts.push(text(&Self::words(round)));
        let call = |(id, waits): &(String, bool)| {
            tool_use(id, self.manner.tool, &(self.manner.arguments)(id, *waits).to_string())
        };
        parts.extend(calls.iter().map(call));
        parts
    }

    fn wire(&self) -> Wire {
        self.schedule.wires[self.at]
    }

    fn push(&mut self, answer: Answer) {
        let delay = Duration::from_micros(self.rng.u64(0..1500));
        self.schedule.scripts[self.at].push(answer.delay(delay));
    }

    /// Splits an answer at a few places, with other line ends and small pauses.
    fn scattered(&mut self, stream: &str) -> Answer {
        let newline = Newline::ALL[self.rng.usize(0..3)];
        let answer = Answer::new(stream).newline(newline);
        let (length, pieces) = (answer.len(), self.rng.usize(0..8));
        let cuts: Vec<usize> = (0..pieces).map(|_| self.rng.usize(0..length)).collect();
        let pause = Duration::from_micros(self.rng.u64(0..400));
        if self.rng.u8(..) < 10 { answer.every_byte() } else { answer.split_at(cuts).pause(pause) }
    }

    /// One failure before the first word.
    fn failure(&mut self, round: usize) -> Failure {
        let wire = self.wire();
        let parts = self.parts(round, &[]);
        let stream = wire.answer(parts);
        let before = start_of_words(wire, &stream);
        let cut = self.rng.usize(0..=before);
        let busy = |status| wire.status(status);
        let (answer, failure) = match self.rng.u8(0..20) {
            0..=2 => (busy(429).header("retry-after", "0"), Failure::Again(Some("provider"))),
            3..=5 => (busy(529).header("retry-after-ms", "1"), Failure::Again(Some("provider"))),
            6 | 7 => (busy(500).header("retry-after-ms", "0"), Failure::Again(Some("provider"))),
            8 => {
                let now = "Wed, 21 Oct 2026 07:28:00 GMT";
                let answer = busy(503).header("retry-after", now).header("date", now);
                (answer, Failure::Again(Some("provider")))
            }
            9 => (busy(429).header("retry-after", "3600"), Failure::Long),
            10 => {
                let event = wire.error("overloaded_error", "come back later");
                let stream = format!("{}{event}", &stream[..before]);
                (Answer::new(stream), Failure::Again(Some("provider")))
            }
            11 | 12 => (Answer::new(stream).reset_after(cut), Failure::Again(Some("network"))),
            13 | 14 => (Answer::new(stream).close_after(cut), Failure::Again(Some("network"))),
            // Whether half an event is the network's fault or the server's is anybody's guess.
            15..=17 => (Answer::new(stream).end_after(cut), Failure::Again(None)),
            18 => {
                let answer = wire.refusal(401, "authentication_error", "that key is no good");
                (answer, Failure::Final("auth"))
            }
            _ => {
                let page = "<html><body>Bad gateway</body></html>";
                (Answer::body(200, "text/html", page), Failure::Final("provider"))
            }
        };
        self.push(answer);
        failure
    }

    fn answer(&mut self, round: usize, is_last: bool) -> bool {
        let wire = self.wire();
        let count = if is_last { 0 } else { self.rng.usize(1..=3) };
        let mut calls: Vec<(String, bool)> =
            (0..count).map(|n| (format!("r{round}c{n}"), false)).collect();
        let chance = self.rng.u8(..);
        if chance < 20 {
            self.broken(round);
            return false;
        }
        if chance < 32 {
            self.stopped(round);
            return false;
        }
        let stops_in_call = count > 0 && chance < 42;
        let stop_at = if stops_in_call { self.rng.usize(0..count) } else { count };
        if let Some((_, waits)) = calls.get_mut(stop_at) {
            *waits = true;
        }
        let parts = self.parts(round, &calls);
        let stream = wire.answer(parts);
        let answer = self.scattered(&stream);
        self.push(answer);
        let expected = &mut self.schedule.expected;
        expected.text = Self::words(round);
        let ids = calls.iter().fold(String::new(), |all, (id, _)| all + "<" + id + ">");
        expected.told.push(format!("model: {}{ids}", Self::words(round)));
        let mut results = String::new();
        for (number, (id, _)) in calls.iter().enumerate() {
            if number <= stop_at {
                expected.effects.push(id.clone());
            }
            let failed = if number >= stop_at { " failed" } else { "" };
            results = results + "[" + id + failed + "]";
        }
        if count > 0 {
            // The store puts the results of one answer together.
            expected.told.push(format!("user: {results}"));
        }
        if self.manner.steers && count > 0 && self.schedule.steer.is_none() && self.rng.bool() {
            self.schedule.steer = Some(self.calls + 1);
            self.schedule.expected.steered = Some(self.schedule.expected.told.len());
        }
        self.calls += count;
        if stops_in_call {
            let started = self.calls - count + stop_at + 1;
            self.stop(Moment::Started(started));
            return false;
        }
        true
    }

    /// An answer that breaks off after some words.
    fn broken(&mut self, round: usize) {
        let wire = self.wire();
        let parts = self.parts(round, &[]);
        let stream = wire.answer(parts);
        let (cut, said) = self.after_some_words(round, &stream);
        // Anywhere in the event that comes next: half of it says nothing.
        let next = stream[cut..].find("\n\n").unwrap();
        let within = cut + self.rng.usize(0..next);
        let (answer, kind) = match self.rng.u8(0..4) {
            0 => (Answer::new(&*stream).reset_after(within), "network"),
            1 => (Answer::new(&*stream).close_after(within), "network"),
            2 => (Answer::new(&*stream).end_after(cut), "network"),
            _ => {
                let event = wire.error("overloaded_error", "come back later");
                (Answer::new(format!("{}{event}", &stream[..cut])), "provider")
            }
        };
        self.push(answer);
        self.partial(said);
        self.end("incomplete", 4, Some(kind));
    }

    /// A run that is stopped while the model speaks, or before it does.
    fn stopped(&mut self, round: usize) {
        let wire = self.wire();
        let parts = self.parts(round, &[]);
        let stream = wire.answer(parts);
        if self.rng.bool() {
            let cut = self.rng.usize(0..=start_of_words(wire, &stream));
            self.push(Answer::new(stream).hang_after(cut));
            let asked = self.schedule.expected.requests.iter().sum();
            self.stop(Moment::Asked(asked));
        } else {
            let (cut, said) = self.after_some_words(round, &stream);
            self.push(Answer::new(stream).hang_after(cut));
            let before = (0..round).map(|round| Self::words(round).chars().count()).sum::<usize>();
            let shown = before + said.chars().count();
            self.partial(said);
            self.stop(Moment::Shown(shown));
        }
    }

    fn stop(&mut self, moment: Moment) {
        let by_term = self.rng.bool();
        self.schedule.stop = Some((moment, by_term));
        self.end("interrupted", if by_term { 143 } else { 130 }, None);
    }

    fn partial(&mut self, said: String) {
        self.schedule.expected.told.push(format!("model: {said}"));
        self.schedule.expected.text = said;
    }

    /// A place after some of the words, and those words: the fake says seven characters at a time.
    fn after_some_words(&mut self, round: usize, stream: &str) -> (usize, String) {
        let words = Self::words(round);
        let pieces = words.chars().count().div_ceil(7);
        let number = self.rng.usize(0..pieces);
        let said = words.chars().take(7 * (number + 1)).collect();
        (self.wire().after_text(stream, number), said)
    }
}

/// Where the first event with words begins.
fn start_of_words(wire: Wire, stream: &str) -> usize {
    let end = wire.after_text(stream, 0);
    stream[..end - 2].rfind("\n\n").map_or(0, |at| at + 2)
}

/// A call of the tool that these tests bring along.
pub(super) fn note(id: &str, waits: bool) -> Value {
    json!({ "id": id, "wait": waits })
}

/// A call of the shell that leaves the same mark.
pub(super) fn shell(id: &str, waits: bool) -> Value {
    let rest = if waits { "; sleep 300" } else { "" };
    json!({ "command": format!("echo {id} >> effects{rest}") })
}
