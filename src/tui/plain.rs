//! The same conversation line by line: for screen readers, and for terminals that can do no more.
//!
//! The terminal keeps its own line editing; nothing that was printed is drawn again, nothing blinks
//! or spins, and no colour is used. Signals do what keys do otherwise: ^C interrupts, twice leaves.

use std::{io, os::fd::OwnedFd, time::Duration};

use rustix::{
    io::Errno,
    process::getpgrp,
    termios::{LocalModes, OptionalActions, SpecialCodeIndex, tcgetattr, tcgetpgrp, tcsetattr},
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    signal::unix::{SignalKind, signal},
    sync::mpsc::UnboundedReceiver,
    time::{Instant, sleep, timeout},
};

use crate::agent::Event;

use super::{
    approval::{Asking, LINES, PAUSE},
    block::{self, Kind},
    cells::wrap,
    edge::{Answer, Conversation, End, Look, Root, is_silent, read, size, writer::Writer},
    ending,
    found::Found,
    key::{Key, Typed},
    state::{Effect, State},
    style::{Line, Span, Style},
};

/// How long a terminal has to take what is printed last.
const LAST: Duration = Duration::from_secs(1);
/// What says that a line is waited for.
const ASK: &str = "> ";

struct Plain<'a> {
    /// A terminal may be slow, or stopped: it is written to beside the loop, so that signals are seen.
    writer: Writer,
    /// What is to be printed.
    out: String,
    state: State,
    talk: Conversation,
    root: &'a mut dyn Root,
    agent_is_there: bool,
    /// Whether the terminal shows that a line is waited for.
    asking: bool,
    /// What was read and has no end yet.
    waiting: Vec<u8>,
    /// Whether it was begun before answers were taken, so that its line is none.
    begun: bool,
}

/// Runs the interface line by line until the person leaves.
///
/// # Errors
/// When the terminal cannot be used.
pub async fn run_plain(
    terminal: OwnedFd,
    root: &mut dyn Root,
    mut first: Conversation,
    mut answers: UnboundedReceiver<Answer>,
    look: Look,
) -> io::Result<End> {
    #[expect(unsafe_code, reason = "tokio asks for a promise about the descriptor's life")]
    // SAFETY: the descriptor is owned by what watches it, and is closed after it is deregistered.
    let input =
        unsafe { AsyncFd::register_with_interest(terminal.try_clone()?, Interest::READABLE)? };
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let start = Instant::now();
    let (width, height) = size(&terminal);
    let mut state = State::new(first.facts.clone(), width, height);
    state.plain = true;
    let earlier = std::mem::take(&mut first.earlier);
    state.begin(first.facts.clone(), earlier, &first.notices);
    let (writer, out) = (Writer::alone(terminal)?, String::new());
    let mut plain = Plain {
        writer,
        out,
        state,
        talk: first,
        root,
        agent_is_there: true,
        asking: false,
        waiting: Vec::new(),
        begun: false,
    };
    let facts = &plain.state.facts;
    let hello = format!(
        "kli, {}, {}, profile {}. /help lists commands.\n",
        facts.model, facts.confinement, facts.profile
    );
    let hello = [Span::new(super::cells::clean(hello.trim_end()), Style::PLAIN)];
    for row in wrap(&hello, &Line::default(), &Line::default(), width) {
        plain.print(&format!("{}\n", row.text()));
    }
    if let Some(prompt) = look.prompt {
        let effects = plain.state.submit(prompt);
        plain.perform(effects);
    }
    let code = loop {
        plain.state.at(start.elapsed());
        plain.show();
        if !plain.is_busy()
            && plain.state.wants_quiet()
            && is_silent(&input)
            && is_ours(input.get_ref())
        {
            plain.state.quiet();
            plain.invite(&input);
        }
        plain.flush();
        // What goes on waits for the terminal, so nothing heaps up.
        let free = !plain.is_busy();
        let waits = plain.state.wants_quiet();
        let effects = tokio::select! {
            biased;
            _ = terminate.recv() => break Some(143),
            _ = hangup.recv() => break Some(143),
            _ = interrupt.recv() => {
                // The terminal throws away what was written of a line.
                (plain.asking, plain.begun) = (false, false);
                plain.waiting.clear();
                plain.state.at(start.elapsed());
                plain.state.typed(&Typed::Key(Key::ctrl('c')))
            }
            ok = plain.writer.written() => {
                if !ok {
                    // A terminal that is gone is as good as HUP.
                    break Some(143);
                }
                plain.state.at(start.elapsed());
                plain.state.written();
                Vec::new()
            }
            bytes = read(&input), if free => {
                let Ok(bytes) = bytes else { break None };
                plain.lines(&bytes)
            }
            event = plain.talk.events.recv(), if free && plain.agent_is_there => if let Some(event) = event {
                plain.event(event)
            } else {
                plain.agent_is_there = false;
                plain.state.agent_is_gone();
                Vec::new()
            },
            () = &mut plain.talk.agent, if free && plain.agent_is_there => {
                plain.agent_is_there = false;
                while let Ok(event) = plain.talk.events.try_recv() {
                    plain.event(event);
                }
                plain.state.agent_is_gone();
                Vec::new()
            }
            () = sleep(PAUSE / 3), if free && waits => Vec::new(),
            Some(answer) = answers.recv(), if free => {
                match &answer.found {
                    Some(Found::Choices(choices)) => {
                        let text = choices.as_text();
                        plain.state.answer(Answer { text, found: None, ..answer })
                    }
                    _ => plain.state.answer(answer),
                }
            }
        };
        if plain.perform(effects) {
            break None;
        }
    };
    plain.end(code).await;
    Ok(End { code: code.unwrap_or(0), session: plain.state.session().map(str::to_owned) })
}

impl Plain<'_> {
    fn print(&mut self, text: &str) {
        self.out.push_str(text);
    }

    /// Says whether something is still to be written.
    fn is_busy(&self) -> bool {
        self.writer.is_busy() || !self.out.is_empty()
    }

    /// Hands on what is to be printed, once the terminal has taken all before.
    fn flush(&mut self) {
        if !self.writer.is_busy() && !self.out.is_empty() {
            self.writer.write(std::mem::take(&mut self.out));
        }
    }

    /// Prints what is final, and asks for a line when nothing goes on.
    fn show(&mut self) {
        let rows = self.state.take_rows();
        if !rows.is_empty() {
            let mut text = if self.asking { "\n".to_owned() } else { String::new() };
            for row in rows {
                text.push_str(row.text().trim_end());
                text.push('\n');
            }
            self.asking = false;
            self.print(&text);
        }
        if !self.state.is_moving() && !self.asking {
            self.asking = true;
            self.print(ASK);
        }
        // What was printed or said since stands between the question and its answer.
        if !self.asking && self.state.open_question().is_some_and(Asking::is_armed) {
            self.asking = true;
            self.print("? ");
        }
    }

    /// Takes what was read: the lines that have an end by now.
    fn lines(&mut self, bytes: &[u8]) -> Vec<Effect> {
        self.waiting.extend_from_slice(bytes);
        let mut effects = Vec::new();
        let lines = self.waiting.split(|byte| *byte == b'\n').count() - 1;
        while let Some(end) = self.waiting.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.waiting.drain(..=end).collect();
            let begun = std::mem::take(&mut self.begun);
            self.asking = false;
            let text = String::from_utf8_lossy(&line);
            // Neither what was begun before nor several lines at once were written at the question.
            let answered = (lines == 1 && !begun)
                .then(|| self.state.line_to_question(text.trim_end()))
                .flatten();
            effects.extend(answered.unwrap_or_else(|| self.state.line(text.trim_end())));
        }
        effects
    }

    /// Takes an event. What is drawn elsewhere while it lasts is said here when it begins.
    fn event(&mut self, event: Event) -> Vec<Effect> {
        if let Event::ToolStarted { name, arguments, .. } = &event {
            let title = format!("running {}\n", block::title(name, arguments));
            self.show();
            self.print(&title);
        }
        let asks = matches!(event, Event::Approval(_));
        let effects = self.state.event(event);
        if asks {
            self.show();
            self.question();
        }
        effects
    }

    /// Prints the question whole.
    fn question(&mut self) {
        let Some(asking) = self.state.open_question() else { return };
        let rows = asking.body(self.state.width);
        let text: Vec<String> =
            rows.iter().map(|row| format!("{}\n", row.text().trim_end())).collect();
        let confinement = super::cells::clean(&self.state.facts.confinement);
        self.print(&format!("{}  {confinement}\n", text.concat()));
        // It counts from when the terminal has taken it.
        self.state.framed();
    }

    /// Says how to answer, once answers are taken. A line that was begun before is none.
    fn invite(&mut self, input: &AsyncFd<OwnedFd>) {
        if !self.state.open_question().is_some_and(Asking::is_armed) {
            return;
        }
        // Where it cannot be asked for, the terminal does not hold it back.
        let _held_back = take_begun(input, &mut self.waiting);
        self.begun = !self.waiting.is_empty();
        let mut text = format!("{LINES}\n");
        if self.begun {
            text.push_str("what you have begun to write goes where it was meant to go; end it with Enter first\n");
        }
        let begun = super::cells::clean_row(&String::from_utf8_lossy(&self.waiting));
        self.print(&format!("{text}? {begun}"));
        self.asking = true;
    }

    /// Performs effects; says whether to leave.
    fn perform(&mut self, effects: Vec<Effect>) -> bool {
        for effect in effects {
            match effect {
                Effect::Tell(op) => {
                    if self.talk.ops.send(op).is_err() {
                        self.state.agent_is_gone();
                    }
                }
                Effect::Ask(name, rest) => {
                    self.root.ask(name, rest, self.state.session().map(str::to_owned));
                }
                Effect::Begin(how, what) => match self.root.begin(how, &what, self.state.session())
                {
                    Ok(mut talk) => {
                        self.state.enter_talk(how, &mut talk);
                        if let Some(draft) = &talk.draft {
                            // There is no line that could hold it to be changed.
                            self.state.say(Kind::Note, &format!("the prompt was: {draft}"));
                        }
                        self.talk = talk;
                        self.agent_is_there = true;
                    }
                    Err(sentence) => self.state.not_begun(how, &what, &sentence),
                },
                Effect::Suspend | Effect::Redraw | Effect::Edit(_) | Effect::Files => {}
                Effect::Quit => {
                    self.asking = false;
                    self.print("\n");
                    return true;
                }
            }
        }
        for text in self.state.take_said() {
            self.root.remember(text);
        }
        false
    }

    async fn end(&mut self, code: Option<u8>) {
        self.state.leaving();
        ending::wait(&mut self.state, &mut self.talk, self.agent_is_there, code).await;
        // Ctrl-D ends no line.
        if std::mem::take(&mut self.asking) {
            self.print("\n");
        }
        for row in self.state.take_rows() {
            self.print(&row.text());
            self.print("\n");
        }
        let last = async {
            self.writer.idle().await;
            self.flush();
            self.writer.idle().await;
        };
        // A terminal that is gone shows nothing.
        drop(timeout(LAST, last).await);
    }
}

/// Says whether what is typed is for this process: another job may have the terminal.
fn is_ours(terminal: &OwnedFd) -> bool {
    !matches!(tcgetpgrp(terminal), Ok(group) if group != getpgrp())
}

/// Takes what was written of a line that has no end yet. The terminal keeps it to itself until Enter;
/// without its line editing it hands it over, and what comes between two modes can be read after them
/// (termios(3); Linux makes what is there readable when the mode changes).
fn take_begun(input: &AsyncFd<OwnedFd>, waiting: &mut Vec<u8>) -> Result<(), Errno> {
    let terminal = input.get_ref();
    let before = tcgetattr(terminal)?;
    if !before.local_modes.contains(LocalModes::ICANON) {
        return Ok(());
    }
    let mut open = before.clone();
    open.local_modes.remove(LocalModes::ICANON);
    open.special_codes[SpecialCodeIndex::VMIN] = 1;
    open.special_codes[SpecialCodeIndex::VTIME] = 0;
    for modes in [&open, &before] {
        tcsetattr(terminal, OptionalActions::Now, modes)?;
        while !is_silent(input) {
            let mut bytes = [0; 4096];
            let length = rustix::io::read(terminal, &mut bytes)?;
            waiting.extend_from_slice(bytes.get(..length).unwrap_or_default());
            if length == 0 {
                break;
            }
        }
    }
    Ok(())
}
