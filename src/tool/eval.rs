//! The tool eval: Scheme inside the process, in a session that lasts as long as the run.
//!
//! The engine has nothing ambient: what a form does outside itself goes through kli's procedures,
//! and each is decided about by the run's [`Desk`](super::desk::Desk) as a call of the model's is.
//! A form that runs away, fills its stack or its memory, or breaks the engine off ends alone.

use std::{
    fmt::Write as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use futures_util::future::{BoxFuture, pending};
use serde_json::{Map, Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};

use super::{Context, Effect, Invocation, Outcome, Sink, Tool, arguments::Arguments};
use crate::{
    authority::{Atom, Grant, Request},
    host::{
        bounds::{Bounds, Frozen},
        environment,
    },
};

mod engine;
mod globals;
pub mod procedures;
mod session;

use session::{Ended, MEMORY, Session, Word};

/// How long a form may take when the call does not say, in seconds.
const TIMEOUT: u64 = 30;

/// How long a form that was stopped may still take to end: its values are dropped. One operation of
/// the engine is not interrupted; a thread that is in a long one is left to itself.
const GRACE: Duration = Duration::from_secs(2);

/// How often the bounds are looked at.
const LOOK: Duration = Duration::from_millis(10);

/// How long the engine may take to start.
const START: Duration = Duration::from_secs(30);

/// How many sessions may be lost with what they hold: as long as so many threads of theirs are there,
/// no other starts. A frozen one is there for good, one that was only slow ends after all.
const MOST_LOST: usize = 3;

/// A place below which nothing can be.
const NOWHERE: &str = "/dev/null";

/// Where a run keeps its session.
#[derive(Debug, Default)]
pub struct Place {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    session: Option<Arc<Session>>,
    /// The threads of lost sessions; one that was only slow to stop ends after all.
    lost: Vec<Weak<()>>,
}

impl Place {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tool eval.
#[derive(Clone, Copy, Debug, Default)]
pub struct Eval;

impl Tool for Eval {
    fn name(&self) -> &'static str {
        "eval"
    }

    fn description(&self) -> &'static str {
        "Evaluates Scheme; definitions last. Beside the language: (read-file p) (write-file p text) \
         (list-directory p) (file-exists? p) (delete-file p) (bash line) (run program arg ...) \
         (posix-getenv name) (tool name key value ...)."
    }

    fn schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "form": { "type": "string" },
                "timeout": { "type": "integer", "description": "seconds" },
            },
            "required": ["form"],
            "additionalProperties": false,
        })
    }

    fn atom(&self) -> Atom {
        Atom::ImageEval
    }

    fn prepare(
        &self,
        arguments: &Map<String, Value>,
        context: &Arc<Context>,
    ) -> Result<Box<dyn Invocation>, String> {
        let arguments = Arguments::new(arguments);
        arguments.known(&["form", "timeout"])?;
        let form = arguments.text("form")?;
        if form.trim().is_empty() {
            return Err("`form` is empty; give an expression".to_owned());
        }
        let wanted = arguments.optional_number("timeout", 1)?.unwrap_or(TIMEOUT);
        // Without a setting there is no most: tests make such a context.
        let most = context.bash.max_timeout.max(TIMEOUT);
        Ok(Box::new(Call {
            form,
            timeout: Duration::from_secs(wanted.min(most)),
            context: Arc::clone(context),
        }))
    }
}

#[derive(Debug)]
struct Call {
    form: String,
    timeout: Duration,
    context: Arc<Context>,
}

impl Invocation for Call {
    fn requests(&self) -> Vec<Request> {
        vec![Request::bare(Atom::ImageEval)]
    }

    fn effect(&self) -> Effect {
        Effect::Barrier
    }

    fn run(self: Box<Self>, grants: Vec<Grant>, _sink: Sink) -> BoxFuture<'static, Outcome> {
        Box::pin(async move {
            if grants.is_empty() {
                return Outcome::error("the call came without a grant; nothing was evaluated");
            }
            self.go().await
        })
    }
}

/// How the run of a form came to its end.
enum End {
    /// By itself, or because it was told to stop.
    Ended(Ended),
    /// Its thread is frozen, or does not answer: it is left behind.
    Lost(&'static str),
}

/// Why a form was told to stop.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    Time,
    Memory,
}

/// Stops the form when nobody waits for it any more; its session is kept for the next one.
struct StopOnDrop<'a> {
    session: Arc<Session>,
    place: &'a Place,
    is_armed: bool,
}

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        if self.is_armed {
            self.session.interrupt();
            self.place.lock().session = Some(Arc::clone(&self.session));
        }
    }
}

impl Place {
    /// Returns the run's session, or starts one.
    async fn session(&self) -> Result<Arc<Session>, String> {
        let kept = self.lock().session.take();
        if let Some(session) = kept
            && session.bounds.frozen().is_none()
            && session.alive.strong_count() > 0
        {
            let last = Instant::now().checked_add(GRACE);
            // A form that was interrupted may take a moment to end.
            while session.is_busy() && last.is_some_and(|last| Instant::now() < last) {
                sleep(LOOK).await;
            }
            if !session.is_busy() {
                return Ok(session);
            }
            self.lock().lost.push(Weak::clone(&session.alive));
        }
        self.is_open()?;
        self.start().await.map(Arc::new)
    }

    fn is_open(&self) -> Result<(), String> {
        let mut kept = self.lock();
        kept.lost.retain(|thread| thread.strong_count() > 0);
        if kept.lost.len() < MOST_LOST {
            return Ok(());
        }
        Err(format!(
            "eval is closed: {MOST_LOST} sessions were lost to forms that could not be stopped, and \
             their threads are still there; go on without it"
        ))
    }

    async fn start(&self) -> Result<Session, String> {
        let mut starting = session::start()?;
        // Until it is there: whoever gives it up meanwhile leaves its thread behind.
        self.lock().lost.push(Weak::clone(&starting.alive));
        let last = Instant::now().checked_add(START);
        let mut look = interval(LOOK);
        let why = loop {
            tokio::select! {
                session = &mut starting.ready => {
                    self.lock().lost.retain(|thread| !thread.ptr_eq(&starting.alive));
                    return session.unwrap_or_else(|_| Err("the engine of eval did not start".to_owned()));
                }
                _ = look.tick() => {
                    if let Some(why) = frozen(&starting.bounds) {
                        break format!("the engine of eval did not start: {why}");
                    }
                }
                () = at(last) => {
                    break format!("the engine of eval did not start within {} s", START.as_secs());
                }
            }
        };
        Err(why)
    }
}

impl Call {
    async fn go(&self) -> Outcome {
        let place = &self.context.state.eval;
        let session = match engine::fits(&self.form).and_then(|()| place.is_open()) {
            Ok(()) => place.session().await,
            Err(sentence) => Err(sentence),
        };
        let session = match session {
            Ok(session) => session,
            Err(sentence) => return Outcome::error(sentence),
        };
        let mut guard = StopOnDrop { session: Arc::clone(&session), place, is_armed: true };
        let mut stop = None;
        let end = self.drive(&session, &mut stop).await;
        guard.is_armed = false;
        let mut notes = Vec::new();
        let mut lost = None;
        let ended = match end {
            End::Ended(ended) => {
                if ended.broke || stop == Some(Stop::Memory) {
                    notes.push("the session is over, its definitions are gone; the next form starts a new one");
                } else {
                    place.lock().session = Some(session);
                }
                ended
            }
            End::Lost(why) => {
                place.lock().lost.push(Weak::clone(&session.alive));
                notes.push(
                    "the session is lost, its definitions are gone; the next form starts a new one",
                );
                lost = Some(why);
                Ended { output: String::new(), value: Err(why.to_owned()), broke: true }
            }
        };
        self.outcome(&ended, stop, lost, &notes)
    }

    /// Runs the form to its end and answers what it asks for meanwhile.
    async fn drive(&self, session: &Session, stop: &mut Option<Stop>) -> End {
        let Some(mut words) = session.run(self.form.clone()) else {
            return End::Lost("the engine's thread is gone");
        };
        // The time that a person takes to answer is not the form's.
        let asked_for =
            || self.context.state.desk.get().map_or(Duration::ZERO, |desk| desk.asked_for());
        let (start, before) = (Instant::now(), asked_for());
        let mut last: Option<Instant> = None;
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut asked: Option<(BoxFuture<'static, Result<Value, String>>, _)> = None;
        loop {
            let own = self.timeout.saturating_add(asked_for().saturating_sub(before));
            let deadline = start.checked_add(own);
            let answered = async {
                match asked.as_mut() {
                    Some((answer, _)) => answer.await,
                    None => pending().await,
                }
            };
            tokio::select! {
                word = words.recv() => match word {
                    Some(Word::Done(ended)) => break End::Ended(ended),
                    // A form may catch that it was stopped; it can do no more outside itself.
                    Some(Word::Call { .. }) if stop.is_some() => {}
                    Some(Word::Call { name, arguments, answer }) => {
                        asked = Some((procedures::answer(&self.context, name, arguments), answer));
                    }
                    None => break End::Lost("the engine's thread is gone"),
                },
                value = answered => {
                    if let Some((_, answer)) = asked.take() {
                        // The thread waits for it; one that is frozen does not.
                        let _unheard: Result<(), _> = answer.send(value);
                    }
                }
                () = at(deadline.filter(|_| stop.is_none())) => {
                    let asked = asked_for().saturating_sub(before);
                    if start.elapsed() >= self.timeout.saturating_add(asked) {
                        *stop = Some(Stop::Time);
                    }
                }
                () = at(last) => break End::Lost("one operation of the engine went on when it was told to stop"),
                _ = look.tick() => {
                    if let Some(why) = frozen(&session.bounds) {
                        break End::Lost(why);
                    }
                    if stop.is_none() && session.bounds.is_over() {
                        *stop = Some(Stop::Memory);
                    }
                }
            }
            if stop.is_some() && last.is_none() {
                session.interrupt();
                // What it waits for is dropped, and with it whatever that started.
                asked = None;
                last = Instant::now().checked_add(GRACE);
            }
        }
    }

    fn outcome(
        &self,
        ended: &Ended,
        stop: Option<Stop>,
        lost: Option<&str>,
        notes: &[&str],
    ) -> Outcome {
        let mut text = ended.output.clone();
        let mut line = |part: &str| {
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(part);
        };
        let is_error = ended.value.is_err() || stop.is_some();
        match (&ended.value, stop) {
            (_, Some(Stop::Time)) if let Some(why) = lost => line(&format!(
                "error: the form took longer than {} s: {why}",
                self.timeout.as_secs()
            )),
            (_, Some(Stop::Memory)) if let Some(why) = lost => {
                line(&format!("error: the session held more than {} MiB: {why}", MEMORY >> 20));
            }
            (_, Some(Stop::Time)) => line(&format!(
                "error: the form took longer than {} s and was stopped; give a `timeout`, or do less",
                self.timeout.as_secs()
            )),
            (_, Some(Stop::Memory)) => line(&format!(
                "error: the session held more than {} MiB (values, or a recursion without an end) and \
                 was stopped",
                MEMORY >> 20
            )),
            // The engine's sentences begin so themselves.
            (Err(error), None) if error.starts_with("error") => line(error),
            (Err(error), None) => line(&format!("error: {error}")),
            (Ok(value), None) if !value.is_empty() => line(&format!("=> {value}")),
            (Ok(_), None) => {
                if text.is_empty() {
                    text.push_str("(no value)");
                }
            }
        }
        for note in notes {
            // Writing to a string cannot fail.
            let _ = write!(text, "\n[{note}]");
        }
        let record = json!({
            "timedOut": stop == Some(Stop::Time),
            "sessionEnded": !notes.is_empty(),
        });
        let text = self.context.state.results.cut(&text, "print less");
        Outcome { text, is_error, record, changed: Vec::new() }
    }
}

async fn at(when: Option<Instant>) {
    match when {
        Some(when) => sleep_until(when).await,
        None => pending().await,
    }
}

fn frozen(bounds: &Bounds) -> Option<&'static str> {
    bounds.frozen().map(|why| match why {
        Frozen::Memory => "one operation asked for more memory than a session may hold",
        Frozen::Stack => "the engine's own stack was full: values or code nest too deep",
    })
}

/// Keeps the engine from the user's home: it would make directories of its own there, or wherever
/// `STEEL_HOME` says, and remembers the place that it finds at its first look.
///
/// To be called while the process has one thread.
pub fn keep_from_home() {
    environment::with_variable("STEEL_HOME", NOWHERE, steel::compiler::modules::steel_home);
}

#[cfg(test)]
mod tests;
