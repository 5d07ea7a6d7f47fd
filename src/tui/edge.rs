//! The loop: terminal, agent, answers, clock and signals, waited for together.
//!
//! A thread of its own writes to the terminal, one frame at a time, so a slow terminal holds up
//! neither keys nor signals: what happens meanwhile goes into the next frame, and the model's answer
//! is not read on while too much waits. Nothing ticks while nothing moves.

use std::{
    io,
    os::fd::OwnedFd,
    sync::{Arc, mpsc as blocking},
    thread,
    time::Duration,
};

use futures_util::future::BoxFuture;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Signal as Kill, getppid, kill_current_process_group},
    termios::tcgetwinsize,
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::{
    agent::{Backlog, Event, Op},
    message::Message,
};

use super::{
    block::Kind,
    guard::{Guard, write_all},
    input::Parser,
    key::{Key, Typed},
    screen::Screen,
    state::{Effect, Facts, State},
    view,
};

/// The least time between two frames that no key asked for.
const FRAME: Duration = Duration::from_millis(16);
/// How often what moves is drawn.
const TICK: Duration = Duration::from_millis(120);
/// How long the agent has to end when the person leaves.
const ENDING: Duration = Duration::from_secs(2);
/// How long a terminal has to take the last frame.
const LAST_FRAME: Duration = Duration::from_millis(500);
/// Events that are taken before a key is looked for.
const BATCH: usize = 256;

/// A conversation that can be talked to.
pub struct Conversation {
    /// What the footer says.
    pub facts: Facts,
    /// What was said before.
    pub history: Vec<Message>,
    /// What the person should know.
    pub notices: Vec<String>,
    /// What stands in the composer.
    pub draft: Option<String>,
    /// Operations to the agent.
    pub ops: UnboundedSender<Op>,
    /// Events from it.
    pub events: UnboundedReceiver<Event>,
    /// The agent itself, driven by the loop.
    pub agent: BoxFuture<'static, ()>,
    /// What of its events is not shown yet.
    pub backlog: Arc<Backlog>,
}

impl std::fmt::Debug for Conversation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Conversation").field("facts", &self.facts).finish_non_exhaustive()
    }
}

/// What a command came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// What it prints.
    pub text: String,
    /// What it says besides.
    pub errors: String,
    /// Whether it failed.
    pub failed: bool,
    /// Whether it is a unified diff.
    pub is_diff: bool,
}

/// Who started the interface, and knows everything that it does not.
pub trait Root {
    /// Begins another conversation: `clear`, `resume` or `fork`, with what followed it, beside the
    /// session that goes on now.
    ///
    /// # Errors
    /// A sentence; the conversation that is there goes on.
    fn begin(&mut self, how: &str, what: &str, now: Option<&str>) -> Result<Conversation, String>;

    /// Has a command answered; the answer comes on the channel that `run` was given.
    fn ask(&mut self, name: &'static str, rest: String, session: Option<String>);
}

/// How the interface looks and begins.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// Whether colours may be used.
    pub colors: bool,
    /// What to send first.
    pub prompt: Option<String>,
}

/// How the interface ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The exit code: 0, or 143 after TERM, HUP, or a terminal that went away.
    pub code: u8,
    /// The session that was open last.
    pub session: Option<String>,
}

/// Runs the interface on a terminal until the person leaves. `terminal` can be read and written.
///
/// # Errors
/// When the terminal cannot be used.
pub async fn run(
    terminal: OwnedFd,
    root: &mut dyn Root,
    first: Conversation,
    answers: UnboundedReceiver<Answer>,
    look: Look,
) -> io::Result<End> {
    let guard = Guard::enter(terminal.try_clone()?)?;
    #[expect(unsafe_code, reason = "tokio asks for a promise about the descriptor's life")]
    // SAFETY: the descriptor is owned by what watches it, and is closed after it is deregistered.
    let input =
        unsafe { AsyncFd::register_with_interest(terminal.try_clone()?, Interest::READABLE)? };
    let writer = Writer::start(terminal.try_clone()?)?;
    let (width, height) = size(&terminal);
    let mut state = State::new(first.facts.clone(), width, height);
    state.begin(first.facts.clone(), &first.history, &first.notices);
    let mut edge = Edge {
        start: Instant::now(),
        screen: Screen::new(look.colors),
        parser: Parser::default(),
        counted: 0,
        drawn: None,
        urgent: true,
        dirty: true,
        terminal,
        guard,
        writer,
        state,
        talk: first,
        agent_is_there: true,
        answers,
    };
    if let Some(prompt) = look.prompt {
        let effects = edge.state.submit(prompt);
        edge.perform(effects, root).await;
    }
    let mut signals = Signals::listen()?;
    let code = edge.work(&input, &mut signals, root).await;
    edge.end(code).await;
    Ok(End { code: code.unwrap_or(0), session: edge.state.session().map(str::to_owned) })
}

struct Edge {
    start: Instant,
    screen: Screen,
    parser: Parser,
    /// What the backlog was told last.
    counted: usize,
    drawn: Option<Instant>,
    /// A key asks for a frame now.
    urgent: bool,
    dirty: bool,
    terminal: OwnedFd,
    guard: Guard,
    writer: Writer,
    state: State,
    talk: Conversation,
    agent_is_there: bool,
    answers: UnboundedReceiver<Answer>,
}

enum Happened {
    Signal(SignalIs),
    Input(io::Result<Vec<u8>>),
    NoMore,
    Written(bool),
    Event(Option<Event>),
    AgentGone,
    Answer(Answer),
    Due,
}

impl Edge {
    /// Goes on until somebody wants to leave: the exit code of a signal, or none.
    async fn work(
        &mut self,
        input: &AsyncFd<OwnedFd>,
        signals: &mut Signals,
        root: &mut dyn Root,
    ) -> Option<u8> {
        loop {
            self.state.at(self.start.elapsed());
            self.count();
            self.draw();
            let wait = self.parser.pending();
            let due = self.due();
            let happened = tokio::select! {
                biased;
                signal = signals.next() => Happened::Signal(signal),
                read = read(input) => Happened::Input(read),
                () = sleep(wait.unwrap_or_default()), if wait.is_some() => Happened::NoMore,
                ok = self.writer.written() => Happened::Written(ok),
                event = self.talk.events.recv(), if self.agent_is_there => Happened::Event(event),
                () = &mut self.talk.agent, if self.agent_is_there => Happened::AgentGone,
                Some(answer) = self.answers.recv() => Happened::Answer(answer),
                () = sleep_until(due.unwrap_or(self.start)), if due.is_some() => Happened::Due,
            };
            self.state.at(self.start.elapsed());
            let effects = match happened {
                Happened::Signal(SignalIs::Interrupt) => {
                    self.urgent = true;
                    self.state.typed(&Typed::Key(Key::ctrl('c')))
                }
                Happened::Signal(SignalIs::Resized) => {
                    self.resized();
                    Vec::new()
                }
                Happened::Signal(SignalIs::Stop) => vec![Effect::Suspend],
                Happened::Signal(SignalIs::GoOn) => {
                    // Whoever had the terminal meanwhile may have changed it.
                    if self.guard.enter_again().is_err() {
                        return Some(143);
                    }
                    self.resized();
                    Vec::new()
                }
                // A terminal that is gone is as good as HUP.
                Happened::Signal(SignalIs::End)
                | Happened::Input(Err(_))
                | Happened::Written(false) => return Some(143),
                Happened::Input(Ok(bytes)) => {
                    self.urgent = true;
                    let typed = self.parser.feed(&bytes);
                    self.typed(&typed)
                }
                Happened::NoMore => {
                    self.urgent = true;
                    let typed = self.parser.timeout();
                    self.typed(&typed)
                }
                Happened::Written(true) => continue,
                Happened::Event(Some(event)) => {
                    let mut effects = self.state.event(event);
                    for _ in 0..BATCH {
                        let Ok(event) = self.talk.events.try_recv() else { break };
                        effects.extend(self.state.event(event));
                    }
                    effects
                }
                Happened::Event(None) | Happened::AgentGone => {
                    self.agent_is_there = false;
                    // What it said last is there still.
                    while let Ok(event) = self.talk.events.try_recv() {
                        self.state.event(event);
                    }
                    self.state.agent_is_gone();
                    Vec::new()
                }
                Happened::Answer(answer) => {
                    let mut text = answer.text.as_str();
                    if answer.is_diff {
                        self.state.diff(std::mem::take(&mut text));
                    }
                    self.state.answered(text, &answer.errors, answer.failed);
                    Vec::new()
                }
                Happened::Due => Vec::new(),
            };
            self.dirty = true;
            if self.perform(effects, root).await {
                return None;
            }
        }
    }

    fn typed(&mut self, typed: &[Typed]) -> Vec<Effect> {
        typed.iter().flat_map(|typed| self.state.typed(typed)).collect()
    }

    /// Performs effects; says whether to leave.
    async fn perform(&mut self, effects: Vec<Effect>, root: &mut dyn Root) -> bool {
        for effect in effects {
            match effect {
                Effect::Tell(op) => {
                    if self.talk.ops.send(op).is_err() {
                        self.state.agent_is_gone();
                    }
                }
                Effect::Ask(name, rest) => {
                    root.ask(name, rest, self.state.session().map(str::to_owned));
                }
                Effect::Begin(how, what) => match root.begin(how, &what, self.state.session()) {
                    Ok(talk) => {
                        self.state.begin(talk.facts.clone(), &talk.history, &talk.notices);
                        self.state.draft(talk.draft.as_deref());
                        self.counted = 0;
                        self.talk = talk;
                        self.agent_is_there = true;
                    }
                    Err(sentence) => self.state.answered("", &sentence, true),
                },
                Effect::Suspend => self.suspend().await,
                Effect::Redraw => self.screen.resized(),
                Effect::Quit => return true,
            }
        }
        false
    }

    /// Says when something is to be drawn although nothing happens.
    fn due(&self) -> Option<Instant> {
        if self.writer.is_busy() {
            return None;
        }
        let drawn = self.drawn.unwrap_or(self.start);
        if self.dirty {
            Some(drawn + FRAME)
        } else if self.state.is_moving() {
            Some(drawn + TICK)
        } else {
            None
        }
    }

    fn draw(&mut self) {
        let now = Instant::now();
        let soon = self.drawn.is_some_and(|drawn| now < drawn + FRAME);
        let moved = self.state.is_moving() && self.drawn.is_none_or(|drawn| now >= drawn + TICK);
        if self.writer.is_busy() || !(self.dirty || moved) || (soon && !self.urgent) {
            return;
        }
        let rows = self.state.take_rows();
        let frame = self.screen.frame(&rows, &view::region(&self.state));
        self.dirty = false;
        self.urgent = false;
        self.drawn = Some(now);
        if !frame.is_empty() {
            self.writer.write(frame);
        }
    }

    /// Tells the agent how much it is ahead.
    fn count(&mut self) {
        let now = self.writer.bytes.saturating_add(self.state.waiting());
        if now > self.counted {
            self.talk.backlog.add(now - self.counted);
        } else {
            self.talk.backlog.take(self.counted - now);
        }
        self.counted = now;
    }

    fn resized(&mut self) {
        let (width, height) = size(&self.terminal);
        self.state.resize(width, height);
        self.screen.resized();
        self.dirty = true;
        self.urgent = true;
    }

    async fn suspend(&mut self) {
        if !has_shell() {
            self.state.say(Kind::Warning, "nobody could let kli go on, so it is not suspended");
            return;
        }
        drop(timeout(LAST_FRAME, self.writer.idle()).await);
        Guard::leave();
        // The group: whoever is in one pipeline with kli stops as well, as with ^Z of the terminal.
        let stopped = kill_current_process_group(Kill::STOP);
        // Here somebody has let it go on.
        if stopped.is_err() || self.guard.enter_again().is_err() {
            return;
        }
        self.resized();
    }

    /// Ends what runs, draws the last rows, and gives the terminal back.
    async fn end(&mut self, code: Option<u8>) {
        self.state.leaving();
        if self.state.is_working() {
            let op = if code.is_some() { Op::Terminate } else { Op::Interrupt };
            let told = self.talk.ops.send(op).is_ok();
            let ending = async {
                while told && self.agent_is_there && self.state.is_working() {
                    tokio::select! {
                        biased;
                        event = self.talk.events.recv() => match event {
                            Some(event) => drop(self.state.event(event)),
                            None => break,
                        },
                        () = &mut self.talk.agent => break,
                    }
                }
            };
            drop(timeout(ENDING, ending).await);
        }
        let last = async {
            self.writer.idle().await;
            let rows = self.state.take_rows();
            let frame = self.screen.frame(&rows, &[]) + &self.screen.leave();
            self.writer.write(frame);
            self.writer.idle().await;
        };
        drop(timeout(LAST_FRAME, last).await);
        Guard::leave();
    }
}

/// Says whether there is a job control shell that could let this process go on once it is stopped:
/// a parent in the same session (setpgid(2), orphaned process groups). In a jail both are out of
/// sight and have the number 0: the launcher is there, and passes the stop on.
fn has_shell() -> bool {
    let session = |pid| {
        #[expect(unsafe_code, reason = "the safe call cannot return the number 0")]
        // SAFETY: the call takes a number and returns one.
        unsafe {
            libc::getsid(pid)
        }
    };
    getppid().is_some_and(|parent| session(parent.as_raw_nonzero().get()) == session(0))
}

pub(super) fn size(terminal: &OwnedFd) -> (usize, usize) {
    match tcgetwinsize(terminal) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
            (usize::from(size.ws_col), usize::from(size.ws_row))
        }
        _ => (80, 24),
    }
}

/// Reads what is there. The terminal's file is the shell's as well, so it is never made one that
/// does not block; it is asked before each read instead.
pub(super) async fn read(input: &AsyncFd<OwnedFd>) -> io::Result<Vec<u8>> {
    loop {
        let mut ready = input.readable().await?;
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut [PollFd::new(input.get_ref(), PollFlags::IN)], Some(&none)) {
            Ok(0) | Err(Errno::INTR) => ready.clear_ready(),
            Err(error) => return Err(error.into()),
            Ok(_) => {
                let mut bytes = vec![0; 4096];
                match rustix::io::read(input.get_ref(), &mut bytes) {
                    Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(length) => {
                        bytes.truncate(length);
                        return Ok(bytes);
                    }
                    Err(Errno::INTR | Errno::AGAIN) => ready.clear_ready(),
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }
}

/// What writes frames, one at a time.
struct Writer {
    frames: blocking::Sender<String>,
    done: UnboundedReceiver<bool>,
    /// Bytes that are being written.
    bytes: usize,
}

impl Writer {
    fn start(terminal: OwnedFd) -> io::Result<Self> {
        let (frames, inbox) = blocking::channel::<String>();
        let (outbox, done) = unbounded_channel();
        thread::Builder::new().name("kli-terminal".to_owned()).spawn(move || {
            for frame in inbox {
                // For as long as it takes: a terminal may be slow, or stopped for a while.
                let ok = write_all(&terminal, frame.as_bytes(), None).is_ok();
                if outbox.send(ok).is_err() || !ok {
                    return;
                }
            }
        })?;
        Ok(Self { frames, done, bytes: 0 })
    }

    fn is_busy(&self) -> bool {
        self.bytes > 0
    }

    fn write(&mut self, frame: String) {
        self.bytes += frame.len();
        // A thread that has ended has said so.
        drop(self.frames.send(frame));
    }

    /// Waits until the frame is written: false when it cannot be. Pends while nothing is written.
    async fn written(&mut self) -> bool {
        if self.bytes == 0 {
            return std::future::pending().await;
        }
        let ok = self.done.recv().await.unwrap_or(false);
        self.bytes = 0;
        ok
    }

    async fn idle(&mut self) {
        if self.bytes > 0 {
            self.written().await;
        }
    }
}

enum SignalIs {
    Resized,
    Interrupt,
    End,
    Stop,
    GoOn,
}

struct Signals {
    resize: Signal,
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    stop: Signal,
    go_on: Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        let raw = |signal: Kill| SignalKind::from_raw(signal.as_raw());
        Ok(Self {
            resize: signal(SignalKind::window_change())?,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            stop: signal(raw(Kill::TSTP))?,
            go_on: signal(raw(Kill::CONT))?,
        })
    }

    async fn next(&mut self) -> SignalIs {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => SignalIs::End,
            _ = self.hangup.recv() => SignalIs::End,
            _ = self.interrupt.recv() => SignalIs::Interrupt,
            _ = self.go_on.recv() => SignalIs::GoOn,
            _ = self.stop.recv() => SignalIs::Stop,
            _ = self.resize.recv() => SignalIs::Resized,
        }
    }
}
