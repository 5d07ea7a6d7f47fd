//! Law 15 for forms: a key that the launcher hands over is in nothing that a form can read, whatever
//! it makes of what it reads. As an ordinary user and as root.

use std::{fs, process::Stdio};

use serde_json::Value;

use crate::{
    fake_model::{Answer, FakeModel, message, text},
    jail::{World, for_both},
};

use super::{form_within, last_result};

const DECOY: &str = "decoy-of-the-workspace-0123456789";

/// Says texts backwards, so that nobody who looks for a key as it is stands in the way.
const TURN: &str = "(define (turn s) (list->string (reverse (string->list s)))) \
     (define (try f) (with-handler (lambda (e) \"refused\") (turn (f))))";

fn forms(world: &World) -> Vec<String> {
    let home = world.home.display();
    vec![
        TURN.to_owned(),
        "(try (lambda () (read-file \"decoy\")))".to_owned(),
        "(posix-getenv \"ANTHROPIC_API_KEY\")".to_owned(),
        "(posix-getenv \"KLI_SECRETS_FD\")".to_owned(),
        format!("(try (lambda () (read-file \"{home}/keys/anthropic\")))"),
        "(try (lambda () (read-file \"/proc/self/environ\")))".to_owned(),
        "(try (lambda () (read-file \"/proc/self/mem\")))".to_owned(),
        "(try (lambda () (read-file \"/proc/self/cmdline\")))".to_owned(),
        "(try (lambda () (read-file \"/proc/1/environ\")))".to_owned(),
        "(with-handler (lambda (e) \"refused\") \
           (map (lambda (n) (try (lambda () (read-file (string-append \"/proc/self/fd/\" n))))) \
                (list-directory \"/proc/self/fd\")))"
            .to_owned(),
        "(try (lambda () (cadr (run \"sh\" \"-c\" \"cat /proc/[0-9]*/environ; env; set\"))))"
            .to_owned(),
        "(try (lambda () (tool \"read\" \"path\" \"/proc/self/environ\")))".to_owned(),
    ]
}

#[test]
fn a_key_that_the_launcher_hands_over_is_out_of_a_form_s_reach() {
    for_both(|world| {
        for (at, spec) in [
            r#"{"secretEnv":["ANTHROPIC_API_KEY"]}"#,
            r#"{"secrets":{"ANTHROPIC_API_KEY":"~/keys/anthropic"}}"#,
        ]
        .into_iter()
        .enumerate()
        {
            let key = format!("sk-key-of-eval-{at}-{}-{}", std::process::id(), "x".repeat(20));
            let turned: String = key.chars().rev().collect();
            let texts = forms(world);
            let mut script: Vec<Answer> =
                texts.iter().map(|form| form_within("c", form, 60)).collect();
            script.push(Answer::new(message([text("done")])));
            let model = FakeModel::strict(script);
            let settings = serde_json::json!({
                "providers": { "anthropic": { "baseUrl": model.base_url() } }
            });
            world.file("home/.config/kli/settings.json", &settings.to_string());
            world.file("home/project/decoy", DECOY);
            world.file("home/keys/anthropic", if at == 0 { "no key" } else { &key });
            world.spec(spec);
            let kli = world.root.join("kli");
            if !kli.exists() {
                fs::copy(env!("CARGO_BIN_EXE_kli"), &kli).unwrap();
            }
            let words = ["-p", "go", "--output-format", "json"];
            let program = [&[kli.to_str().unwrap()], &words[..]].concat();
            let mut command = world.run_with(&[], &program);
            if at == 0 {
                command.env("ANTHROPIC_API_KEY", &key);
            }
            let output = command.stdin(Stdio::null()).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            for request in model.requests() {
                assert_eq!(request.header("x-api-key"), Some(key.as_str()), "control: it is there");
            }
            let bodies = model.bodies();
            let results: Vec<String> =
                bodies.iter().skip(1).map(|body| last_result(body).0).collect();
            assert_eq!(results.len(), texts.len());
            let decoy: String = DECOY.chars().rev().collect();
            assert!(results[1].contains(&decoy), "control: {}", results[1]);
            assert_eq!((&*results[2], &*results[3]), ("=> #false", "=> #false"));
            // What the process started with may be there to be read, without the key.
            let is_read = results[5].contains("=EMOH");
            assert!(is_read || results[5] == "=> \"refused\"", "{}", results[5]);
            for refused in [6, 8] {
                assert_eq!(results[refused], "=> \"refused\"", "{}", texts[refused]);
            }
            assert!(results[10].contains("=EMOH"), "control: what commands get: {}", results[10]);
            let all = bodies.iter().map(Value::to_string).collect::<String>();
            for said in [all, format!("{output:?}")] {
                assert!(!said.contains(&key) && !said.contains(&turned), "{said}");
            }
        }
    });
}
