//! A sample of the schedules with the real program: its exit code, its lines, its session, and that
//! it goes on.

use std::{fs, net::TcpListener, process::Child, time::Duration};

use kli::{message::Message, session::Store};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    fake_model::{Answer, FakeModel, text},
    harness::{Env, Ran as Process, wait_for},
    jail::kill,
};

use super::{
    FORMATS, Ran, check, each_seed, reopened,
    schedule::{MODELS, Manner, Moment, PROMPT, Schedule, draw, shell},
};

const MANNER: Manner =
    Manner { tool: "bash", arguments: shell, retries: 4, failures: 2, steers: false };

fn settings(schedule: &Schedule, fakes: &[FakeModel; 2]) -> Value {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let server = |number: usize| {
        let wire = schedule.wires[number];
        let kind = FORMATS.iter().find(|(known, _)| *known == wire).unwrap().1;
        let url = match (number, schedule.is_gone) {
            (0, true) => format!("http://{closed}{}", wire.base()),
            _ => fakes[number].url(wire),
        };
        json!({ "kind": kind, "baseUrl": url })
    };
    let count = if schedule.has_next { 2 } else { 1 };
    json!({
        "model": "m",
        "models": { "m": &MODELS[..count] },
        "providers": { "one": server(0), "two": server(1) },
    })
}

/// Stops the run at its moment.
fn stop(schedule: &Schedule, fakes: &[FakeModel; 2], env: &Env, child: &Child) {
    let Some((moment, term)) = schedule.stop else { return };
    wait_for("the moment to stop", || {
        let asked: usize = fakes.iter().map(|fake| fake.requests().len()).sum();
        let marks = || fs::read_to_string(env.work().join("effects")).unwrap_or_default();
        let due = match moment {
            Moment::Shown(_) => asked >= schedule.expected.requests.iter().sum(),
            Moment::Asked(count) => asked >= count,
            Moment::Started(count) => marks().lines().count() >= count,
        };
        due.then_some(())
    });
    if matches!(moment, Moment::Shown(_)) {
        // The words are on their way; nothing outside tells when they have come.
        std::thread::sleep(Duration::from_millis(300));
    }
    let signal = if term { Signal::TERM } else { Signal::INT };
    kill(i32::try_from(child.id()).unwrap(), signal);
}

fn one(seed: u64) -> Result<(), String> {
    let schedule = draw(seed, MANNER);
    let fakes = schedule.scripts.each_ref().map(|script| FakeModel::strict(script.clone()));
    let env = Env::new();
    env.settings(&settings(&schedule, &fakes).to_string());
    let words = ["-p", PROMPT, "--output-format", "stream-json"];
    let child = env.command(&words).spawn().unwrap();
    stop(&schedule, &fakes, &env, &child);
    let process = Process::from(child.wait_with_output().unwrap());
    let lines: Vec<Value> =
        process.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let result = lines.last().ok_or("nothing was printed")?;
    let part = |key: &str| result[key].as_str().unwrap_or_default().to_owned();
    let texts = lines.iter().filter(|line| line["type"] == "text");
    let marks = fs::read_to_string(env.work().join("effects")).unwrap_or_default();
    let ran = Ran {
        outcome: part("outcome"),
        exit: u8::try_from(process.code.ok_or("a signal ended it")?).unwrap(),
        kind: result["error"]["kind"].as_str().unwrap_or_default().to_owned(),
        text: part("text"),
        model: part("model"),
        shown: texts.filter_map(|line| line["text"].as_str()).collect(),
        effects: marks.lines().map(str::to_owned).collect(),
        steered: false,
        undelivered: 0,
        requests: fakes.each_ref().map(|fake| fake.requests().len()),
    };
    let messages = session(&env)?;
    check(&schedule.expected, &ran, &messages)
        .map_err(|why| format!("{why}\n{schedule:?}\n{}", process.err))?;
    let retries = lines.iter().filter(|line| line["type"] == "retry").count();
    if retries != process.err.matches("; retry ").count() {
        return Err(format!("every retry is told to people as well: {process:#?}"));
    }
    let fake = FakeModel::strict(vec![Answer::new(schedule.wires[0].answer([text("Here.")]))]);
    let mut after = settings(&schedule, &fakes);
    after["providers"]["one"]["baseUrl"] = fake.url(schedule.wires[0]).into();
    env.settings(&after.to_string());
    let process = env.kli(&["--continue", "-p", "Go on."]);
    match (process.code, process.out.as_str()) {
        (Some(0), "Here.\n") => Ok(()),
        _ => Err(format!("it does not go on: {process:#?}")),
    }
}

/// Reads the session through kli's own store, which must find nothing to repair.
fn session(env: &Env) -> Result<Vec<Message>, String> {
    env.session();
    let store = Store::new(&env.home().join(".local/state/kli"));
    reopened(&store, &env.work()).map(|opened| opened.messages)
}

#[test]
fn the_program_itself_comes_to_what_it_must_under_faults() {
    each_seed(0..40, 8, one);
}
