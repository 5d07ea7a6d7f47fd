#![expect(clippy::disallowed_methods, reason = "tests set up and look at the disk themselves")]

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::*;
use crate::{
    agent::{
        Agent, Backlog, Budgets, Journal, Ledger, Op, Outcome, Parts, Record, Summary,
        Surroundings, Task,
        compact::Policy,
        task::{Family, Kept},
        turn::Retry,
    },
    authority::{Approve, Confinement, List, Narrowing, Source, Subject},
    host::Host,
    message::{Block, Message, Redactor},
    model::catalogue::{self, Kind, Options},
    tool::{self, BashOptions, Context},
};

/// Keeps the messages of a conversation.
#[derive(Clone, Default)]
struct Book(Arc<Mutex<Vec<Message>>>);

impl Journal for Book {
    fn append(&mut self, record: Record<'_>) -> Result<(), String> {
        if let Record::Message(message) = record {
            self.0.lock().unwrap().push(message.clone());
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// A conversation in a directory of its own, and the person in it.
struct Talk {
    directory: tempfile::TempDir,
    recording: Vec<Value>,
    layers: Vec<(Source, Narrowing)>,
    own: Vec<(Source, Narrowing)>,
    time: Option<Duration>,
}

/// What came of it.
struct Came {
    questions: Vec<Question>,
    withdrawn: usize,
    summary: Summary,
    messages: Vec<Message>,
    results: Vec<(String, bool)>,
}

fn calls(calls: &[(&str, Value)]) -> Value {
    let calls: Vec<Value> = calls
        .iter()
        .map(|(name, arguments)| json!({"name": name, "arguments": arguments}))
        .collect();
    json!({ "calls": calls })
}

impl Talk {
    fn new(turns: &[Value]) -> Self {
        let mut recording = turns.to_vec();
        recording.push(json!({"text": "done"}));
        Self {
            directory: tempfile::tempdir().unwrap(),
            recording,
            layers: vec![(Source::Profile("careful".into()), Narrowing::Approve(Approve::Writes))],
            own: Vec::new(),
            time: None,
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        fs::canonicalize(self.directory.path()).unwrap().join(name)
    }

    fn parts(&self, book: &Book) -> Parts {
        let text: Vec<String> = self.recording.iter().map(Value::to_string).collect();
        let kind = Kind::Replay { recording: text.join("\n") };
        let model = catalogue::open(&Options::new(kind, "replay", "test")).unwrap();
        let subject = Arc::new(Subject::new(self.layers.clone()));
        let approver = Approver::default();
        let mut tools = tool::standard();
        tools.push(Box::new(Task::new(Family {
            model: Arc::clone(&model),
            fallbacks: Vec::new(),
            compaction: Policy::default(),
            subject: Arc::clone(&subject),
            confinement: Confinement::Unknown,
            tools: tool::standard,
            system: Box::new(|tools| tools.join(" ")),
            surroundings: Surroundings::default(),
            budgets: Budgets::default(),
            retry: Retry::default(),
            redactor: Redactor::default(),
            backlog: Arc::default(),
            ledger: Arc::default(),
            approver: Some(approver.clone()),
            results: None,
            sessions: Box::new(Kept::default),
        })));
        Parts {
            model,
            fallbacks: Vec::new(),
            tools,
            subject,
            confinement: Confinement::Unknown,
            context: Arc::new(Context {
                host: Host::default(),
                workspace: fs::canonicalize(self.directory.path()).unwrap(),
                home: None,
                state: tool::State::default(),
                bash: BashOptions {
                    shell: "bash".into(),
                    timeout: 60,
                    max_timeout: 60,
                    ..BashOptions::default()
                },
            }),
            system: String::new(),
            history: Vec::new(),
            shelf: None,
            budgets: Budgets { time: self.time, ..Budgets::default() },
            retry: Retry::default(),
            redactor: Redactor::new(["sk-very-secret-0"]),
            compaction: Policy::default(),
            journal: Some(Box::new(book.clone())),
            backlog: Arc::<Backlog>::default(),
            surroundings: Surroundings::default(),
            mentions: true,
            ledger: Arc::<Ledger>::default(),
            approver: Some(approver),
            own: Some(Arc::new(Subject::new(self.own.clone()))),
            timed: false,
        }
    }

    /// Runs one operation; `person` says what is sent on each question.
    fn run(&self, op: Op, mut person: impl FnMut(&Question) -> Vec<Op>) -> Came {
        let book = Book::default();
        let parts = self.parts(&book);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (ops, inbox) = unbounded_channel();
        let (outbox, events) = unbounded_channel();
        ops.send(op).unwrap();
        let mut came = Came {
            questions: Vec::new(),
            withdrawn: 0,
            summary: summary(),
            messages: Vec::new(),
            results: Vec::new(),
        };
        runtime.block_on(async {
            let mut ops = Some(ops);
            let listening = listen(events, &mut came, |question| {
                let sent = person(question);
                if sent.is_empty() {
                    // The front end is gone.
                    ops = None;
                }
                for op in sent {
                    ops.as_ref().unwrap().send(op).unwrap();
                }
            });
            let working = Agent::new(parts).run(inbox, outbox);
            let both = async {
                tokio::pin!(listening);
                tokio::select! {
                    () = working => listening.await,
                    () = &mut listening => {}
                }
            };
            tokio::time::timeout(Duration::from_secs(20), both).await.expect("it hangs");
        });
        came.messages.clone_from(&book.0.lock().unwrap());
        came
    }

    fn submit(&self, person: impl FnMut(&Question) -> Vec<Op>) -> Came {
        let came = self.run(Op::Submit("go".into()), person);
        let called = came.messages.iter().flat_map(Message::calls).count();
        let results = came.messages.iter().flat_map(|message| &message.blocks);
        let answered = results.filter(|block| matches!(block, Block::Result(_))).count();
        assert_eq!(called, answered, "every call has its result");
        came
    }
}

async fn listen(
    mut events: UnboundedReceiver<Event>,
    came: &mut Came,
    mut asked: impl FnMut(&Question),
) {
    let mut held = std::collections::VecDeque::new();
    loop {
        let event = match held.pop_front() {
            Some(event) => event,
            None => match events.recv().await {
                Some(event) => event,
                None => return,
            },
        };
        match event {
            Event::Approval(question) => {
                // While it is open, there is no other.
                tokio::time::sleep(Duration::from_millis(5)).await;
                while let Ok(event) = events.try_recv() {
                    assert!(!matches!(event, Event::Approval(_)), "one question at a time");
                    held.push_back(event);
                }
                asked(&question);
                came.questions.push(*question);
            }
            Event::Withdrawn { id } => {
                assert_eq!(came.questions.last().map(|question| question.id), Some(id));
                came.withdrawn += 1;
            }
            Event::ToolFinished { text, is_error, .. } => came.results.push((text, is_error)),
            Event::Done(done) => {
                came.summary = *done;
                return;
            }
            _ => {}
        }
    }
}

fn summary() -> Summary {
    Summary::unasked(Outcome::Error, 99, Duration::ZERO)
}

fn says(question: &Question, answer: Answer) -> Vec<Op> {
    vec![Op::Approve { id: question.id, answer }]
}

fn shown(question: &Question, name: &str) -> String {
    let texts = question.shows.iter().filter_map(|shown| match shown {
        Shown::Text(known, text) if known == name => Some(text.clone()),
        _ => None,
    });
    texts.collect()
}

fn change(question: &Question) -> &Change {
    let found = question.shows.iter().find_map(|shown| match shown {
        Shown::Change(change) => Some(change),
        Shown::Text(..) => None,
    });
    found.expect("a change")
}

fn touch(name: &str) -> Value {
    json!({ "command": format!("touch {name}") })
}

fn commands(list: &Value) -> Narrowing {
    List::from_value(list).unwrap().narrowing(|path| Path::new(path).to_owned())
}

#[test]
fn a_call_waits_for_its_answer_and_does_as_it_says() {
    let turns = [calls(&[("bash", touch("made"))])];
    let talk = Talk::new(&turns);
    let target = talk.at("made");
    let came = talk.submit(|question| {
        assert!(!target.exists(), "nothing is done before the answer");
        says(question, Answer::Once)
    });
    assert!(target.exists(), "control");
    assert_eq!((came.summary.outcome, came.questions.len()), (Outcome::Ok, 1));
    let question = &came.questions[0];
    assert_eq!((question.tool.as_str(), &question.by), ("bash", &Vec::new()));
    assert_eq!(question.needs, ["process/exec"]);
    assert_eq!(question.why, "`approve` is `writes` (profile careful)");
    assert_eq!(shown(question, "command"), "touch made");
    assert_eq!(shown(question, "in"), talk.at("").to_str().unwrap().trim_end_matches('/'));

    let talk = Talk::new(&turns);
    let came = talk.submit(|question| says(question, Answer::Deny(Some(" use git ".into()))));
    assert!(!talk.at("made").exists(), "no effect");
    let (text, is_error) = &came.results[0];
    assert!(*is_error && text.contains("the person did not approve `process/exec`"), "{text}");
    assert!(text.contains("nothing was done. The person says: use git"), "{text}");
    assert_eq!(came.summary.denied.len(), 1, "it is listed");
    assert_eq!(came.summary.outcome, Outcome::Ok, "a person's no is no failure of the run");
}

#[test]
fn calls_of_one_turn_are_asked_about_one_at_a_time_in_their_order() {
    let names = ["a", "b", "c", "d"];
    let writes: Vec<(&str, Value)> =
        names.iter().map(|name| ("write", json!({"path": name, "content": name}))).collect();
    let talk = Talk::new(&[calls(&writes)]);
    let came = talk.submit(|question| {
        let path = &change(question).path;
        let denies = path.ends_with("b") || path.ends_with("d");
        says(question, if denies { Answer::Deny(None) } else { Answer::Once })
    });
    let asked: Vec<PathBuf> = came.questions.iter().map(|q| change(q).path.clone()).collect();
    assert_eq!(asked, names.map(|name| talk.at(name)));
    let made: Vec<bool> = names.iter().map(|name| talk.at(name).exists()).collect();
    assert_eq!(made, [true, false, true, false]);
}

#[test]
fn an_answer_to_another_question_answers_nothing() {
    let talk = Talk::new(&[calls(&[("bash", touch("made"))])]);
    let target = talk.at("made");
    let came = talk.submit(|question| {
        let other = Op::Approve { id: question.id + 1, answer: Answer::Once };
        let again = Op::Approve { id: question.id, answer: Answer::Once };
        let mut sent = vec![other];
        sent.extend(says(question, Answer::Deny(None)));
        sent.push(again);
        sent
    });
    assert_eq!(came.questions.len(), 1);
    assert!(!target.exists(), "the first answer to the question itself counts");
}

#[test]
fn always_covers_what_it_names_and_nothing_else() {
    let bash = |command: &str| ("bash", json!({ "command": command }));
    let talk = Talk::new(&[
        calls(&[bash("touch one")]),
        calls(&[bash("rm one; touch two")]),
        calls(&[bash("touch one")]),
        calls(&[bash("touch one two")]),
        calls(&[("bash", json!({"command": "touch one", "input": "x"}))]),
        calls(&[("bash", json!({"command": "touch one", "cwd": "sub"}))]),
        calls(&[("write", json!({"path": "f", "content": "1"}))]),
        calls(&[("write", json!({"path": "f", "content": "2"}))]),
        calls(&[("write", json!({"path": "g", "content": "3"}))]),
        calls(&[("edit", json!({"path": "f", "edits": [{"old": "2", "new": "4"}]}))]),
    ]);
    fs::create_dir(talk.at("sub")).unwrap();
    let mut number = 0;
    let came = talk.submit(|question| {
        number += 1;
        // The first command and the first file for the session, the others not at all.
        let always = shown(question, "command") == "touch one" && number == 1
            || matches!(question.shows.last(), Some(Shown::Change(change)) if change.path.ends_with("f") && change.is_new);
        says(question, if always { Answer::Always } else { Answer::Deny(None) })
    });
    let asked: Vec<String> = came
        .questions
        .iter()
        .map(|question| match question.shows.last() {
            Some(Shown::Change(change)) => {
                let name = change.path.file_name().unwrap().to_string_lossy().into_owned();
                format!("{} {name}", question.tool)
            }
            _ => shown(question, "command"),
        })
        .collect();
    assert_eq!(
        asked,
        [
            "touch one",
            "rm one; touch two",
            "touch one two",
            "touch one",
            "touch one",
            "write f",
            "write g",
            "edit f"
        ],
        "the same to the letter, in the same place, is not asked about again"
    );
    assert!(talk.at("one").exists() && !talk.at("two").exists() && !talk.at("sub/one").exists());
    assert_eq!(fs::read_to_string(talk.at("f")).unwrap(), "2");
    assert!(!talk.at("g").exists());
    let words: Vec<&str> =
        came.questions.iter().filter_map(|question| question.always.as_deref()).collect();
    assert!(words[0].starts_with("this very `bash` call, to the letter, in `"), "{}", words[0]);
    let f = format!("every later `write` of `{}`", talk.at("f").display());
    assert!(words[5].starts_with(&f), "{}", words[5]);
}

#[test]
fn what_was_changed_is_what_runs_and_the_model_is_told() {
    let talk = Talk::new(&[calls(&[("bash", touch("wrong"))])]);
    let came = talk.submit(|question| {
        assert_eq!(question.edits, Some(("command", "touch wrong".to_owned())));
        says(question, Answer::Edit("touch right".into()))
    });
    assert!(talk.at("right").exists() && !talk.at("wrong").exists());
    let (text, is_error) = &came.results[0];
    assert!(!is_error && text.contains("the person changed `command` before it ran"), "{text}");
    assert!(text.contains("what ran is: touch right"), "{text}");
    // Nothing was changed: nothing is told.
    let talk = Talk::new(&[calls(&[("bash", touch("same"))])]);
    let came = talk.submit(|question| says(question, Answer::Edit("touch same".into())));
    assert!(talk.at("same").exists() && !came.results[0].0.contains("changed"));
}

#[test]
fn no_answer_widens_what_the_run_may_do() {
    let list = json!([{"atom": "process/exec", "commands": ["touch"]}, "file/read",
        {"atom": "file/write", "under": ["/nowhere"]}]);
    let turns = [
        calls(&[
            ("write", json!({"path": "out", "content": "x"})),
            ("bash", json!({"command": "rm kept"})),
        ]),
        calls(&[("bash", touch("first"))]),
        calls(&[("bash", touch("second"))]),
    ];
    let mut talk = Talk::new(&turns);
    talk.layers.push((Source::Policy, commands(&list)));
    fs::write(talk.at("kept"), "").unwrap();
    let came = talk.submit(|question| match shown(question, "command").as_str() {
        "touch first" => says(question, Answer::Edit("rm kept".into())),
        _ => says(question, Answer::Once),
    });
    let asked: Vec<String> = came.questions.iter().map(|q| shown(q, "command")).collect();
    assert_eq!(asked, ["touch first", "touch second"], "nobody is asked what is denied anyway");
    assert!(talk.at("kept").exists(), "the changed command is checked again");
    assert!(talk.at("second").exists() && !talk.at("out").exists(), "control");
    assert!(came.results[2].0.contains("this run holds `process/exec` only for"));
    assert_eq!(came.summary.denied.len(), 3);
}

#[test]
fn an_edit_is_shown_as_it_would_be_done_and_asked_about_again_when_the_file_changes() {
    let edit = json!({"path": "f", "edits": [{"old": "two", "new": "2\u{202e}"}]});
    let talk = Talk::new(&[calls(&[("edit", edit.clone())])]);
    fs::write(talk.at("f"), "one\ntwo\nsk-very-secret-0\n").unwrap();
    let mut changes = Vec::new();
    let file = talk.at("f");
    let came = talk.submit(|question| {
        changes.push(change(question).clone());
        if changes.len() == 1 {
            fs::write(&file, "zero\none\ntwo three\n").unwrap();
        }
        says(question, Answer::Once)
    });
    assert_eq!(came.questions[0].note, None);
    assert!(came.questions[1].note.as_ref().unwrap().contains("was changed while you looked"));
    let hunk = |at: usize| {
        let hunk = &changes[at].hunks[0];
        (hunk.old_line, String::from_utf8(hunk.old.clone()).unwrap(), hunk.new.clone())
    };
    assert_eq!(hunk(0), (2, "two\n".to_owned(), "2\u{202e}\n".into()));
    assert_eq!(hunk(1), (3, "two three\n".to_owned(), "2\u{202e} three\n".into()));
    assert_eq!(fs::read_to_string(&file).unwrap(), "zero\none\n2\u{202e} three\n");

    // What cannot be done is not asked about.
    let talk = Talk::new(&[calls(&[("edit", edit)])]);
    fs::write(talk.at("f"), "other\n").unwrap();
    let came = talk.submit(|_| panic!("nothing would change"));
    assert!(came.results[0].1 && came.results[0].0.contains("nothing was changed in `f`"));
}

#[test]
fn a_write_shows_the_lines_that_change_and_what_else_it_does() {
    let talk = Talk::new(&[
        calls(&[("read", json!({"path": "f"}))]),
        calls(&[
            ("write", json!({"path": "f", "content": "a\nB\nc\n"})),
            ("write", json!({"path": "new/dir/g", "content": "g"})),
        ]),
    ]);
    fs::write(talk.at("f"), "a\r\nb\r\nc\r\n").unwrap();
    let came = talk.submit(|question| says(question, Answer::Once));
    let hunk = &change(&came.questions[0]).hunks[0];
    assert_eq!((&hunk.old[..], &hunk.new[..]), (&b"b\r\n"[..], &b"B\r\n"[..]), "as it is written");
    assert_eq!(fs::read(talk.at("f")).unwrap(), b"a\r\nB\r\nc\r\n");
    let made = change(&came.questions[1]);
    assert!(made.is_new && made.notes[0].contains(talk.at("new").to_str().unwrap()), "{made:?}");
    assert!(talk.at("new/dir/g").exists());
}

#[test]
fn a_stop_while_a_call_waits_leaves_no_effect_and_a_session_that_is_whole() {
    for (stop, exit) in [(Op::Interrupt, 130), (Op::Terminate, 143)] {
        let talk = Talk::new(&[calls(&[("bash", touch("one")), ("bash", touch("two"))])]);
        let start = Instant::now();
        let came = talk.submit(|_| vec![stop.clone()]);
        assert!(start.elapsed() < Duration::from_secs(20));
        assert_eq!((came.summary.outcome, came.summary.exit), (Outcome::Interrupted, exit));
        assert!(!talk.at("one").exists() && !talk.at("two").exists());
        assert_eq!((came.questions.len(), came.withdrawn), (1, 1));
        let results: Vec<&str> = came
            .messages
            .iter()
            .flat_map(|message| &message.blocks)
            .filter_map(|block| match block {
                Block::Result(result) => Some(result.text.as_str()),
                _ => None,
            })
            .collect();
        assert!(
            results[0].contains("was not approved before the run was stopped")
                && results[0].ends_with("nothing was done"),
            "{results:?}"
        );
    }
    // The front end is gone: nobody will answer.
    let talk = Talk::new(&[calls(&[("bash", touch("one"))])]);
    let came = talk.submit(|_| Vec::new());
    assert!(!talk.at("one").exists());
    assert!(came.results[0].1 && came.results[0].0.contains("was not approved"));
    // Control.
    let talk = Talk::new(&[calls(&[("bash", touch("one"))])]);
    talk.submit(|question| says(question, Answer::Once));
    assert!(talk.at("one").exists());
}

#[test]
fn the_time_of_a_run_goes_on_while_a_call_waits_and_ends_it() {
    let mut talk = Talk::new(&[calls(&[("bash", touch("one")), ("read", json!({"path": "."}))])]);
    talk.time = Some(Duration::from_millis(300));
    // The person is there, and says nothing to the question.
    let other = |question: &Question| Op::Approve { id: question.id + 1, answer: Answer::Once };
    let came = talk.submit(|question| vec![other(question)]);
    assert_eq!((came.summary.outcome, came.summary.exit), (Outcome::Budget, 5));
    assert!(!talk.at("one").exists());
    assert_eq!((came.questions.len(), came.withdrawn), (1, 1));
    let denied: Vec<&str> = came.summary.denied.iter().map(|denied| &*denied.tool).collect();
    assert_eq!(denied, ["bash"], "what was not approved is listed, and nothing else");
    // Control: an answer within the time.
    talk.time = Some(Duration::from_secs(20));
    let came = talk.submit(|question| says(question, Answer::Once));
    assert_eq!((came.summary.exit, talk.at("one").exists()), (0, true));
}

#[test]
fn every_call_is_asked_about_when_all_need_it() {
    let turns = [calls(&[("read", json!({"path": "f"})), ("inspect", json!({"what": "tools"}))])];
    let mut talk = Talk::new(&turns);
    talk.layers = vec![(Source::Policy, Narrowing::Approve(Approve::All))];
    fs::write(talk.at("f"), "content").unwrap();
    let came = talk.submit(|question| {
        let reads = question.tool == "read";
        says(question, if reads { Answer::Deny(None) } else { Answer::Once })
    });
    assert_eq!(came.questions.len(), 2);
    assert!(came.results[0].1 && !came.results[0].0.contains("content"));
    assert!(!came.results[1].1);
    // Control: reading alone needs none.
    let talk = Talk::new(&turns);
    fs::write(talk.at("f"), "content").unwrap();
    let came = talk.submit(|_| panic!("reads are not asked about"));
    assert!(came.results[0].0.contains("content"));
}

#[test]
fn sub_agents_ask_with_their_name_and_are_told() {
    let asked = json!({"prompt": "make it\nnow", "capabilities": "process/exec"});
    let mut talk = Talk::new(&[calls(&[("task", asked)])]);
    // What the recording says next is the sub-agent's.
    talk.recording = vec![
        talk.recording[0].clone(),
        calls(&[("bash", touch("made")), ("bash", touch("not"))]),
        json!({"text": "the sub-agent is done"}),
        json!({"text": "done"}),
    ];
    let came = talk.submit(|question| match shown(question, "command").as_str() {
        "touch not" => says(question, Answer::Deny(Some("no more".into()))),
        _ => says(question, Answer::Once),
    });
    assert_eq!(came.questions.len(), 3, "{:?}", came.questions);
    let first = &came.questions[0];
    assert_eq!(shown(first, "prompt"), "make it\nnow");
    assert!(shown(first, "it may").contains("process/exec"), "{:?}", first.shows);
    assert_eq!(first.always, None);
    assert!(came.questions[1].by[0].starts_with("sub-agent: make it"), "{:?}", came.questions[1]);
    assert!(talk.at("made").exists() && !talk.at("not").exists());
}

#[cfg(feature = "lisp")]
#[test]
fn calls_of_a_form_are_asked_about_and_the_time_for_it_is_not_the_forms() {
    let form = "(begin (write-file \"made\" \"x\") (delete-file \"gone\") (delete-file \"kept\"))";
    let talk = Talk::new(&[calls(&[("eval", json!({"form": form, "timeout": 3}))])]);
    fs::write(talk.at("gone"), "").unwrap();
    fs::write(talk.at("kept"), "").unwrap();
    let kept = talk.at("kept");
    let came = talk.submit(|question| {
        if question.tool == "write" {
            std::thread::sleep(Duration::from_millis(3500));
        }
        let denies =
            question.shows.contains(&Shown::Text("path".into(), kept.display().to_string()));
        says(question, if denies { Answer::Deny(None) } else { Answer::Once })
    });
    let asked: Vec<(&str, usize)> =
        came.questions.iter().map(|q| (q.tool.as_str(), q.by.len())).collect();
    assert_eq!(asked, [("eval", 0), ("write", 1), ("delete-file", 1), ("delete-file", 1)]);
    assert_eq!(came.questions[2].always, None, "what is deleted is asked about each time");
    assert!(talk.at("made").exists() && !talk.at("gone").exists() && kept.exists());
    assert!(
        came.results[0].0.contains("the person did not approve `file/write`"),
        "{:?}",
        came.results
    );
}

#[test]
fn a_persons_command_runs_in_the_workspace_and_the_conversation_tells_of_it_or_not() {
    let shell = |command: &str, tells: bool| Op::Shell { command: command.into(), tells };
    let talk = Talk::new(&[]);
    let never = |_: &Question| -> Vec<Op> { panic!("the person is not asked about their own") };
    let came = talk.run(shell("echo out; cd /; touch made; exit 3", true), never);
    assert_eq!(came.summary.outcome, Outcome::Ok);
    let text = came.messages[0].text();
    assert!(text.contains("echo out; cd /") && text.contains("\nout\n"), "{text}");
    assert!(text.contains("exit status 3"), "{text}");
    let came = talk.run(shell("touch made; echo sk-very-secret-0", true), never);
    assert!(talk.at("made").exists(), "in the workspace");
    assert!(!came.messages[0].text().contains("secret"), "keys are taken out");
    let came = talk.run(shell("touch untold", false), never);
    assert!(talk.at("untold").exists() && came.messages.is_empty());
    // What binds the person is what they were given; a refusal has no effect and is not told.
    let mut talk = Talk::new(&[]);
    talk.own = vec![(Source::Policy, Narrowing::Drop(vec![crate::authority::Atom::ProcessExec]))];
    let came = talk.run(shell("touch made", true), never);
    assert!(!talk.at("made").exists() && came.messages.is_empty());
    assert!(came.results[0].0.contains("this run does not hold `process/exec`"));
    // A policy that wants approval has it: the person wrote the command.
    talk.own = vec![(Source::Policy, Narrowing::Approve(Approve::All))];
    talk.run(shell("touch made", true), never);
    assert!(talk.at("made").exists(), "control");
}
