//! Every exit code, in every format, and which one wins.

use super::*;

/// Runs a script in the three formats; returns the result objects after the codes were compared.
#[track_caller]
fn in_every_format(
    name: &str,
    script: impl Fn() -> Vec<Answer>,
    words: &[&str],
    code: i32,
) -> Value {
    let mut results = Vec::new();
    for format in ["text", "json", "stream-json"] {
        let server = FakeModel::start(script());
        let env = Env::new().at(&server.base_url());
        let ran = env.kli(&[words, &["--output-format", format]].concat());
        assert_eq!(ran.code, Some(code), "{name} as {format}: {ran:#?}");
        if code != 0 {
            assert!(!ran.err.is_empty(), "{name} as {format}: people are told as well");
        }
        let ran = Ran { out: ran.out.replace(&server.address().to_string(), "SERVER"), ..ran };
        match format {
            "text" => assert!(!ran.out.contains("\"type\""), "{name}: {ran:#?}"),
            "json" => results.push(ran.json()),
            _ => results.extend(checked(&ran.out).pop()),
        }
    }
    for result in &mut results {
        Schema::read("result").check(result);
        for varying in ["session", "durationMs"] {
            result[varying] = Value::Null;
        }
    }
    assert_eq!(results[0], results[1], "{name}: one object in both formats");
    results.pop().unwrap()
}

fn down() -> Answer {
    Answer::refusal(400, "invalid_request_error", "no such model")
}

#[test]
fn each_code_is_the_same_in_every_format() {
    let hi: &[&str] = &["-p", "hi"];
    let empty = || vec![Answer::new(message([]))];
    let cut = || vec![Answer::new(message_stopped([text("half")], "max_tokens"))];
    let result = in_every_format("done", || vec![says("done")], hi, 0);
    assert_eq!((&result["outcome"], &result["error"]), (&json!("ok"), &Value::Null));
    let result = in_every_format("empty", empty, hi, 1);
    assert_eq!(
        (&result["outcome"], &result["error"]["kind"]),
        (&json!("error"), &json!("provider"))
    );
    let result = in_every_format("cut", cut, hi, 1);
    assert_eq!((&result["outcome"], &result["text"]), (&json!("incomplete"), &json!("half")));
    assert_eq!(result["error"]["kind"], "provider");
    let result = in_every_format("usage", Vec::new, &["-p", "hi", "--max-turns", "0"], 2);
    assert_eq!((&result["outcome"], &result["error"]["kind"]), (&json!("error"), &json!("config")));
    let denied = || vec![bash("true"), says("no")];
    let result = in_every_format("denied", denied, &["-p", "hi", "--no-bash"], 3);
    assert_eq!((&result["outcome"], &result["error"]), (&json!("denied"), &Value::Null));
    assert_eq!(result["denied"][0]["atom"], "process/exec");
    let result = in_every_format("provider", || vec![down()], hi, 4);
    assert_eq!(result["error"]["kind"], "provider");
    let key = || vec![Answer::refusal(401, "authentication_error", "invalid x-api-key")];
    assert_eq!(in_every_format("key", key, hi, 4)["error"]["kind"], "auth");
    let turns = || vec![bash("true"), says("never")];
    let result = in_every_format("budget", turns, &["-p", "hi", "--max-turns", "1"], 5);
    assert_eq!(
        (&result["outcome"], &result["error"]["kind"]),
        (&json!("budget"), &json!("config"))
    );
}

#[test]
fn where_several_codes_apply_the_order_is_fixed() {
    let words: &[&str] = &["-p", "hi", "--no-bash"];
    // 3 over 1: denied, and then an empty answer.
    let result = in_every_format(
        "denied and empty",
        || vec![bash("true"), Answer::new(message([]))],
        words,
        3,
    );
    assert_eq!(result["outcome"], "error");
    // 4 over 3: denied, and then the provider declines.
    in_every_format("denied and declined", || vec![bash("true"), down()], words, 4);
    // 5 over 3: denied, and then no turn is left.
    in_every_format(
        "denied and used up",
        || vec![bash("true"), bash("true")],
        &["-p", "hi", "--no-bash", "--max-turns", "2"],
        5,
    );
}

#[test]
fn a_signal_wins_over_what_happened_before() {
    for format in ["text", "json", "stream-json"] {
        for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
            let silent = says("never said").hang_after(20);
            let server = FakeModel::strict(vec![bash("true"), silent]);
            let env = Env::new().at(&server.base_url());
            let words = ["-p", "hi", "--no-bash", "--output-format", format];
            let child = env.command(&words).spawn().unwrap();
            wait_for("the second request", || (server.requests().len() == 2).then_some(()));
            kill(i32::try_from(child.id()).unwrap(), signal);
            let ran = Ran::from(child.wait_with_output().unwrap());
            ran.exits(code);
            let result = match format {
                "text" => continue,
                "json" => ran.json(),
                _ => checked(&ran.out).pop().unwrap(),
            };
            assert_eq!(result["outcome"], "interrupted");
            assert_eq!(result["denied"][0]["atom"], "process/exec", "what happened is still told");
        }
    }
}
