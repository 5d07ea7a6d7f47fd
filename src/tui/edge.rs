//! The loop: terminal, agent, answers, clock and signals, waited for together.
//!
//! A thread of its own writes to the terminal, one frame at a time, so a slow terminal holds up
//! neither keys nor signals: what happens meanwhile goes into the next frame, and the model's answer
//! is not read on while too much waits. Nothing ticks while nothing moves.

mod editing;
mod signals;
pub(super) mod writer;

use std::{collections::VecDeque, io, os::fd::OwnedFd, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Signal as Kill, getppid, kill_current_process_group},
    termios::tcgetwinsize,
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::mpsc::{UnboundedReceiver, UnboundedSender},
    time::{Instant, sleep_until, timeout},
};

use crate::{
    agent::{Backlog, Event, Op},
    display::Keymap,
};

use super::{
    block::Kind,
    change::Change,
    earlier::Earlier,
    ending,
    found::Found,
    guard::Guard,
    input::Parser,
    key::{Key, Typed},
    screen::Screen,
    state::{Effect, Facts, State},
    style::{Line, Paint},
    view,
};

use editing::Lent;
pub use editing::{Editing, EditorIs};
use signals::{SignalIs, Signals};
use writer::Writer;

/// The least time between two frames that no key asked for.
const FRAME: Duration = Duration::from_millis(16);
/// How often what moves is drawn.
const TICK: Duration = Duration::from_millis(120);
/// How long a terminal has to take the last frame.
const LAST_FRAME: Duration = Duration::from_millis(500);
/// Events that are taken before a key is looked for.
const BATCH: usize = 256;
/// Rows that one frame emits at most, so that on a slow terminal a key is seen before all that waits
/// has been written.
const ROWS: usize = 256;

/// A conversation that can be talked to.
pub struct Conversation {
    /// What the footer says.
    pub facts: Facts,
    /// What was said before; taken once it is shown.
    pub earlier: Earlier,
    /// What the person should know.
    pub notices: Vec<String>,
    /// What to say once it goes on, when it is the one that was there.
    pub said: String,
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
    /// The command as [`said`](super::command::said) writes it; empty for what nobody asked for.
    pub to: String,
    /// What it prints.
    pub text: String,
    /// What it says besides.
    pub errors: String,
    /// Whether it failed.
    pub failed: bool,
    /// Whether it is a unified diff.
    pub is_diff: bool,
    /// What was found in the place of a text.
    pub found: Option<Found>,
    /// What changes with it.
    pub change: Option<Change>,
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

    /// Has the files looked for that can be mentioned; they come on the same channel.
    fn files(&mut self) {}

    /// Keeps what was said for later sessions.
    fn remember(&mut self, _text: String) {}

    /// Starts the person's editor on a text; the terminal is its own until it ends.
    ///
    /// # Errors
    /// A sentence.
    fn edit(&mut self, _text: &str, _terminal: OwnedFd) -> Result<Editing, String> {
        Err("there is no editor here".to_owned())
    }
}

/// How the interface looks and begins.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// Whether and how colours are used.
    pub paint: Paint,
    /// What keys do.
    pub keys: Keymap,
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
    mut first: Conversation,
    answers: UnboundedReceiver<Answer>,
    look: Look,
) -> io::Result<End> {
    // Before anything is changed that a signal would leave behind.
    let mut signals = Signals::listen()?;
    let guard = Guard::enter(terminal.try_clone()?)?;
    #[expect(unsafe_code, reason = "tokio asks for a promise about the descriptor's life")]
    // SAFETY: the descriptor is owned by what watches it, and is closed after it is deregistered.
    let input =
        unsafe { AsyncFd::register_with_interest(terminal.try_clone()?, Interest::READABLE)? };
    let writer = Writer::start(terminal.try_clone()?)?;
    let (width, height) = size(&terminal);
    let mut state = State::new(first.facts.clone(), width, height);
    let earlier = std::mem::take(&mut first.earlier);
    state.begin(first.facts.clone(), earlier, &first.notices);
    state.use_keys(look.keys);
    let mut edge = Edge {
        start: Instant::now(),
        screen: Screen::painted(look.paint),
        parser: Parser::default(),
        fed: Instant::now(),
        counted: 0,
        drawn: None,
        urgent: true,
        dirty: true,
        rows: VecDeque::new(),
        stopping: false,
        terminal,
        guard,
        writer,
        state,
        talk: first,
        agent_is_there: true,
        answers,
        lent: None,
    };
    if let Some(prompt) = look.prompt {
        let effects = edge.state.submit(prompt);
        edge.perform(effects, root).await;
    }
    let code = edge.work(&input, &mut signals, root).await;
    edge.end(code).await;
    Ok(End { code: code.unwrap_or(0), session: edge.state.session().map(str::to_owned) })
}

#[expect(clippy::struct_excessive_bools, reason = "each is one thing that the loop sees to")]
struct Edge {
    start: Instant,
    screen: Screen,
    parser: Parser,
    /// When bytes came last, or were given up.
    fed: Instant,
    /// What the backlog was told last.
    counted: usize,
    drawn: Option<Instant>,
    /// A key asks for a frame now.
    urgent: bool,
    dirty: bool,
    /// Rows that are to be emitted.
    rows: VecDeque<Line>,
    /// To be suspended as soon as the frame that is being written has been.
    stopping: bool,
    terminal: OwnedFd,
    guard: Guard,
    writer: Writer,
    state: State,
    talk: Conversation,
    agent_is_there: bool,
    answers: UnboundedReceiver<Answer>,
    /// The editor that has the terminal.
    lent: Option<Lent>,
}

enum Happened {
    Signal(SignalIs),
    Input(io::Result<Vec<u8>>),
    NoMore,
    Written(bool),
    Event(Option<Event>),
    AgentGone,
    Answer(Answer),
    Editor(EditorIs),
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
            if Guard::is_out() && self.lent.is_none() {
                // A fault of somebody else's, who told of it on the terminal.
                if self.guard.enter_again().is_err() {
                    return Some(143);
                }
                self.resized();
            }
            if self.stopping && !self.writer.is_busy() {
                self.stopping = false;
                self.suspend();
            }
            self.rows.extend(self.state.take_rows());
            self.count();
            self.draw();
            if self.state.wants_quiet() && is_silent(input) {
                self.state.quiet();
                self.dirty |= !self.state.wants_quiet();
            }
            // Counted from what came last: events must not put it off.
            let ends = self.parser.pending().map(|wait| self.fed + wait);
            let due = self.due();
            let happened = tokio::select! {
                biased;
                signal = signals.next() => Happened::Signal(signal),
                read = read(input), if self.lent.is_none() => Happened::Input(read),
                editor = Lent::changed(&mut self.lent) => Happened::Editor(editor),
                () = sleep_until(ends.unwrap_or(self.start)), if ends.is_some() => Happened::NoMore,
                ok = self.writer.written() => Happened::Written(ok),
                event = self.talk.events.recv(), if self.agent_is_there => Happened::Event(event),
                () = &mut self.talk.agent, if self.agent_is_there => Happened::AgentGone,
                Some(answer) = self.answers.recv() => Happened::Answer(answer),
                () = sleep_until(due.unwrap_or(self.start)), if due.is_some() => Happened::Due,
            };
            self.state.at(self.start.elapsed());
            let effects = match happened {
                // They are the editor's, which stands in the same group.
                Happened::Signal(SignalIs::Interrupt | SignalIs::Stop | SignalIs::GoOn)
                    if self.lent.is_some() =>
                {
                    continue;
                }
                Happened::Editor(editor) => {
                    if !self.editor_is(editor) {
                        return Some(143);
                    }
                    Vec::new()
                }
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
                    self.fed = Instant::now();
                    let typed = self.parser.feed(&bytes);
                    self.typed(&typed)
                }
                Happened::NoMore => {
                    self.urgent = true;
                    self.fed = Instant::now();
                    let typed = self.parser.timeout();
                    self.typed(&typed)
                }
                Happened::Written(true) => {
                    self.state.written();
                    // What waits goes on at once.
                    self.urgent |= !self.rows.is_empty();
                    self.dirty |= self.urgent;
                    continue;
                }
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
                    if let Some(Change::Theme(theme)) = &answer.change {
                        self.screen.repaint(theme.clone());
                    }
                    self.state.answer(answer)
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
        self.state.alone(typed.len() == 1);
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
                    Ok(mut talk) => {
                        self.state.enter_talk(how, &mut talk);
                        self.counted = 0;
                        self.talk = talk;
                        self.agent_is_there = true;
                    }
                    Err(sentence) => self.state.not_begun(how, &what, &sentence),
                },
                Effect::Suspend if has_shell() => self.stopping = true,
                Effect::Suspend => self
                    .state
                    .say(Kind::Warning, "nobody could let kli go on, so it is not suspended"),
                Effect::Edit(text) => self.lend(&text, root).await,
                Effect::Files => root.files(),
                Effect::Redraw => self.screen.resized(),
                Effect::Quit => return true,
            }
        }
        for text in self.state.take_said() {
            root.remember(text);
        }
        false
    }

    /// Says when something is to be drawn although nothing happens.
    fn due(&self) -> Option<Instant> {
        if self.writer.is_busy() || self.lent.is_some() {
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
        let is_elsewhere = self.writer.is_busy() || self.lent.is_some();
        if is_elsewhere || !(self.dirty || moved) || (soon && !self.urgent) {
            return;
        }
        let rows: Vec<Line> = self.rows.drain(..ROWS.min(self.rows.len())).collect();
        let frame = self.screen.frame(&rows, &view::region(&self.state));
        self.dirty = !self.rows.is_empty();
        self.urgent = false;
        self.drawn = Some(now);
        self.state.framed();
        if frame.is_empty() {
            self.state.written();
        } else {
            self.writer.write(frame);
        }
    }

    /// Tells the agent how much it is ahead.
    fn count(&mut self) {
        let rows = self.rows.len().saturating_mul(self.state.width);
        let now = self.writer.bytes.saturating_add(rows);
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

    /// Stops the process as a job of its shell; returns when somebody has let it go on.
    fn suspend(&mut self) {
        Guard::leave();
        // The group: whoever is in one pipeline with kli stops as well, as with ^Z of the terminal.
        let _goes_on = kill_current_process_group(Kill::STOP);
        // A terminal that is gone says so when it is read.
        drop(self.guard.enter_again());
        self.resized();
    }

    /// Ends what runs, draws the last rows, and gives the terminal back.
    async fn end(&mut self, code: Option<u8>) {
        // An editor that has the terminal ends first.
        if let Some(lent) = self.lent.take() {
            lent.take_back(&self.terminal, true);
        }
        self.state.leaving();
        ending::wait(&mut self.state, &mut self.talk, self.agent_is_there, code).await;
        let last = async {
            self.writer.idle().await;
            self.rows.extend(self.state.take_rows());
            let frame = self.screen.frame(self.rows.make_contiguous(), &[]) + &self.screen.leave();
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

/// Says whether nothing waits to be read.
pub(super) fn is_silent(input: &AsyncFd<OwnedFd>) -> bool {
    let none = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut [PollFd::new(input.get_ref(), PollFlags::IN)], Some(&none)), Ok(0))
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
