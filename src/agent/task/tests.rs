use serde_json::json;

use super::*;
use crate::{
    authority::{Approve, Source},
    host::Host,
    model::catalogue::{self, Kind, Options},
    tool::BashOptions,
};

fn family(subject: Subject) -> (Task, Arc<Context>) {
    let kind = Kind::Replay { recording: "{\"text\": \"said\"}".to_owned() };
    let task = Task::new(Family {
        model: catalogue::open(&Options::new(kind, "replay", "test")).unwrap(),
        fallbacks: Vec::new(),
        compaction: Policy::default(),
        subject: Arc::new(subject),
        confinement: Confinement::Unknown,
        tools: tool::standard,
        system: Box::new(|tools| tools.join(" ")),
        surroundings: Surroundings::default(),
        budgets: Budgets::default(),
        retry: Retry::default(),
        redactor: Redactor::default(),
        backlog: Arc::default(),
        ledger: Arc::default(),
        approver: None,
        results: None,
        sessions: Box::new(Kept::default),
    });
    let context = Context {
        host: Host::default(),
        workspace: "/ws".into(),
        home: None,
        state: tool::State::default(),
        bash: BashOptions::default(),
    };
    (task, Arc::new(context))
}

fn effect(subject: Subject, capabilities: &Value) -> Effect {
    let (task, context) = family(subject);
    let given = json!({"prompt": "p", "capabilities": capabilities});
    task.prepare(given.as_object().unwrap(), &context).unwrap().effect()
}

#[test]
fn only_those_that_hold_no_writer_run_beside_others() {
    let all = || Subject::new([]);
    for writes in [
        Value::Null,
        json!("file/read,file/edit"),
        json!("process/exec"),
        json!("mcp/x/y"),
        json!("image/eval"),
        json!([{"atom": "file/write", "under": ["src"]}]),
        json!("[\"tools/standard\"]"),
    ] {
        assert_eq!(effect(all(), &writes), Effect::Barrier, "{writes}");
    }
    for reads in [json!("file/read"), json!("file/read,image/inspect"), json!(""), json!([])] {
        assert_eq!(effect(all(), &reads), Effect::Read, "{reads}");
    }
    let read_only = Subject::new([(Source::Flag("--read-only".into()), Narrowing::ReadOnly)]);
    assert_eq!(effect(read_only.clone(), &Value::Null), Effect::Read);
    assert_eq!(effect(read_only, &json!("tools/standard")), Effect::Read, "its parent has none");
}

#[test]
fn what_cannot_be_understood_is_a_sentence() {
    let (task, context) = family(Subject::new([]));
    for (given, part) in [
        (json!({}), "`prompt` is missing"),
        (json!({"prompt": " \n"}), "blank"),
        (json!({"prompt": "p", "capabilities": 3}), "found the number 3"),
        (json!({"prompt": "p", "capabilities": "[oops"}), "begins as a list"),
        (json!({"prompt": "p", "capabilities": "file/raed"}), "did you mean"),
        (json!({"prompt": "p", "max_turns": 0}), "`max_turns` must be"),
        (json!({"prompt": "p", "x": 0}), "unknown argument `x`"),
    ] {
        let sentence = task.prepare(given.as_object().unwrap(), &context).err().unwrap();
        assert!(sentence.contains(part), "{given}: {sentence}");
    }
    let approving = Subject::new([(Source::UserSettings, Narrowing::Approve(Approve::Writes))]);
    assert!(approving.check(Request::bare(Atom::AgentSpawn)).is_err(), "it needs approval");
}

#[test]
fn it_runs_with_no_session_and_says_what_it_does() {
    let (task, context) = family(Subject::new([]));
    let given = json!({"prompt": "p", "max_turns": "3"});
    let call = task.prepare(given.as_object().unwrap(), &context).unwrap();
    let shown = Arc::new(std::sync::Mutex::new(String::new()));
    let sink: Sink = {
        let shown = Arc::clone(&shown);
        Arc::new(move |piece: &str| shown.lock().unwrap().push_str(piece))
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let outcome = runtime.block_on(call.run(Vec::new(), sink));
    assert!(!outcome.is_error, "{outcome:?}");
    assert!(outcome.text.starts_with("said\n\n[sub-agent: 1 turn, "), "{}", outcome.text);
    assert_eq!(*shown.lock().unwrap(), "said");
    assert_eq!((&outcome.record["session"], &outcome.record["turns"]), (&Value::Null, &json!(1)));
}
