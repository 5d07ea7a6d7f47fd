//! A session: one engine on a thread of its own, fed with forms. The thread has a big stack and is
//! under [`Bounds`]; what it wants from the run it asks for over a channel, and waits.

use std::{
    cell::RefCell,
    panic::{self, AssertUnwindSafe},
    sync::{Arc, Once, Weak, mpsc},
    thread,
};

use serde_json::Value;
use steel::steel_vm::ThreadStateController;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::engine;
use crate::host::bounds::Bounds;

/// The stack of a session's thread, in bytes. Pages are used only when touched.
const STACK: usize = 128 << 20;

/// How much memory a session may hold before its form is stopped, in bytes.
pub(super) const MEMORY: u32 = 256 << 20;

/// How much memory freezes a session at once, in bytes: one operation of the engine that asks for
/// so much cannot be stopped in any other way.
const MEMORY_HARD: u32 = 1 << 30;

/// How much a form may print, in bytes.
const OUTPUT: usize = 8 << 20;

/// The name of a session's thread.
const THREAD: &str = "kli-eval";

/// A running session.
pub(super) struct Session {
    forms: mpsc::Sender<Job>,
    pub(super) controller: ThreadStateController,
    pub(super) bounds: Arc<Bounds>,
    /// Whether its thread is still there.
    pub(super) alive: Weak<()>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}

struct Job {
    form: String,
    words: UnboundedSender<Word>,
}

/// What a session says while a form runs.
pub(super) enum Word {
    /// A procedure of kli's was called; the thread waits for the answer.
    Call { name: String, arguments: Vec<Value>, answer: mpsc::Sender<Result<Value, String>> },
    /// The form has ended.
    Done(Ended),
}

/// How a form ended.
pub(super) struct Ended {
    /// What it printed.
    pub(super) output: String,
    /// Its values as text, or what went wrong.
    pub(super) value: Result<String, String>,
    /// Whether the engine broke off, and the session is over.
    pub(super) broke: bool,
}

/// What is on its way to being a session.
pub(super) struct Starting {
    pub(super) bounds: Arc<Bounds>,
    pub(super) ready: tokio::sync::oneshot::Receiver<Result<Session, String>>,
}

/// Starts a session's thread.
///
/// # Errors
/// A sentence, when the system gives no thread.
pub(super) fn start() -> Result<Starting, String> {
    be_quiet();
    let bounds = Bounds::new(MEMORY, MEMORY_HARD);
    let own = Arc::clone(&bounds);
    let (ready, started) = tokio::sync::oneshot::channel();
    thread::Builder::new()
        .name(THREAD.to_owned())
        .stack_size(STACK)
        .spawn(move || live(&own, ready))
        .map_err(|error| format!("the engine of eval got no thread: {error}"))?;
    Ok(Starting { bounds, ready: started })
}

/// A panic of a session is told as the form's result, not on standard error.
fn be_quiet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if thread::current().name() != Some(THREAD) {
                before(info);
            }
        }));
    });
}

fn live(bounds: &Arc<Bounds>, ready: tokio::sync::oneshot::Sender<Result<Session, String>>) {
    bounds.enter(STACK);
    let alive = Arc::new(());
    let started = panic::catch_unwind(engine::start)
        .unwrap_or_else(|_| Err("the engine of eval broke off while it started".to_owned()));
    let mut engine = match started {
        Ok(engine) => engine,
        Err(sentence) => {
            // Nobody waits any more when the run was stopped.
            drop(ready.send(Err(sentence)));
            return;
        }
    };
    let controller = engine.get_thread_state_controller();
    let (forms, jobs) = mpsc::channel::<Job>();
    let session = Session {
        forms,
        controller: controller.clone(),
        bounds: Arc::clone(bounds),
        alive: Arc::downgrade(&alive),
    };
    if ready.send(Ok(session)).is_err() {
        return;
    }
    for job in jobs {
        controller.resume();
        LINK.with(|link| {
            *link.borrow_mut() = Some(Link { words: job.words.clone(), output: String::new() });
        });
        let value = panic::catch_unwind(AssertUnwindSafe(|| engine::run(&mut engine, &job.form)));
        let output =
            LINK.with(|link| link.borrow_mut().take()).map(|link| link.output).unwrap_or_default();
        let broke = value.is_err();
        let value =
            value.unwrap_or_else(|panic| Err(format!("the engine broke off: {}", said(&*panic))));
        drop(job.words.send(Word::Done(Ended { output, value, broke })));
        if broke {
            // What it left behind may be in no order; dropping it could break off again.
            drop(panic::catch_unwind(AssertUnwindSafe(move || drop(engine))));
            return;
        }
    }
}

fn said(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without a word")
}

impl Session {
    /// Gives the session a form; `None` when its thread is gone.
    pub(super) fn run(&self, form: String) -> Option<UnboundedReceiver<Word>> {
        let (words, heard) = unbounded_channel();
        self.bounds.begin();
        self.forms.send(Job { form, words }).ok()?;
        Some(heard)
    }
}

/// How the thread reaches the run while a form runs.
struct Link {
    words: UnboundedSender<Word>,
    output: String,
}

thread_local! {
    static LINK: RefCell<Option<Link>> = const { RefCell::new(None) };
}

/// Keeps what a form prints.
///
/// # Errors
/// A sentence once it printed too much.
pub(super) fn show(text: &str) -> Result<(), String> {
    LINK.with(|link| {
        let mut link = link.borrow_mut();
        // Without a form there is nobody to print for: the library's own loading.
        let Some(link) = link.as_mut() else { return Ok(()) };
        if link.output.len().saturating_add(text.len()) > OUTPUT {
            return Err(format!("a form may print {} MiB; write more to a file", OUTPUT >> 20));
        }
        link.output.push_str(text);
        Ok(())
    })
}

/// Asks the run for a procedure of kli's and waits.
///
/// # Errors
/// The refusal or the failure; a sentence when the form was stopped.
pub(super) fn call(name: String, arguments: Vec<Value>) -> Result<Value, String> {
    let words = LINK.with(|link| link.borrow().as_ref().map(|link| link.words.clone()));
    let (answer, answered) = mpsc::channel();
    let stopped = || "the form was stopped".to_owned();
    words
        .ok_or_else(stopped)?
        .send(Word::Call { name, arguments, answer })
        .map_err(|_| stopped())?;
    answered.recv().map_err(|_| stopped())?
}
