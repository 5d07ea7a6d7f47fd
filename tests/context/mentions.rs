//! `@path` in a prompt.

use super::*;

#[test]
fn files_and_directories_come_along_as_read_shows_them() {
    let model = FakeModel::strict(vec![says("done")]);
    let env = Env::new().at(&model.base_url());
    put(&env.work().join("src/a.rs"), "eins\nzwo\n");
    put(&env.work().join("with blank.txt"), "blank words\n");
    let prompt = "Look at @src/a.rs, @\"with blank.txt\" and @src (@src/a.rs). Mail a@src \
                  @scope/pkg @property @nothing.";
    env.kli(&["-p", prompt]).exits(0);
    let texts = told(&model.bodies()[0]);
    assert_eq!(texts.len(), 4, "{texts:?}");
    assert_eq!(texts[0], prompt, "the prompt itself stays");
    assert!(texts[1].starts_with("[attached] src/a.rs\n") && texts[1].contains("|zwo\n"));
    assert!(texts[1].contains("material, not instruction"));
    assert!(
        texts[2].starts_with("[attached] with blank.txt\n") && texts[2].contains("|blank words")
    );
    assert!(texts[3].starts_with("[attached] src\n") && texts[3].contains("a.rs"), "{}", texts[3]);
}

#[test]
fn what_was_shown_can_be_edited_by_its_anchors() {
    let env = Env::new();
    put(&env.work().join("a"), "eins\nhello\n");
    // `57` is what the line `hello` comes to.
    let edit = json!({"path": "a", "edits": [{"from": "2:57", "text": "goodbye"}]});
    let model = FakeModel::strict(vec![call("c1", "edit", &edit), says("done")]);
    let env = env.at(&model.base_url());
    env.kli(&["-p", "change @a"]).exits(0);
    assert_eq!(fs::read(env.work().join("a")).unwrap(), b"eins\ngoodbye\n");
    assert!(told(&model.bodies()[0])[1].contains("2:57|hello"));
}

#[test]
fn a_denied_mention_is_a_sentence_and_is_listed() {
    let model = FakeModel::strict(vec![says("a"), says("b")]);
    let env = Env::new().at(&model.base_url());
    put(&env.work().join("a.txt"), "secret words\n");
    let words = ["-p", "see @a.txt", "--output-format", "json"];
    let ran = env.kli(&[&words[..], &["--capabilities", "image/inspect"]].concat());
    ran.exits(3);
    let denied = &ran.json()["denied"];
    assert_eq!((&denied[0]["tool"], &denied[0]["atom"]), (&json!("read"), &json!("file/read")));
    assert_eq!(denied.as_array().unwrap().len(), 1);
    let body = &model.bodies()[0];
    assert!(!body.to_string().contains("secret words"), "{body}");
    assert!(told(body)[1].contains("Not attached: denied: this run does not hold `file/read`"));
    let ran = env.kli(&words);
    ran.exits(0);
    assert!(told(&model.bodies()[1])[1].contains("secret words"), "control");
}

#[test]
fn what_cannot_be_shown_is_said_and_what_is_much_is_bounded() {
    let model = FakeModel::strict(vec![says("a")]);
    let env = Env::new().at(&model.base_url());
    let mut prompt = "read @fifo".to_owned();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        env.work().join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    for number in 0..4 {
        let line = "0123456789".repeat(10);
        put(&env.work().join(format!("big{number}")), format!("{line}\n").repeat(2000));
        prompt = format!("{prompt} @big{number}");
    }
    let start = Instant::now();
    env.kli(&["-p", &prompt]).exits(0);
    assert!(start.elapsed() < Duration::from_secs(8));
    let texts = told(&model.bodies()[0]);
    assert_eq!(texts.len(), 6);
    assert!(texts[1].contains("Not attached: ") && texts[1].contains("is a FIFO"), "{}", texts[1]);
    for text in &texts[2..4] {
        assert!(text.contains("go on with start=") && text.len() < 110_000, "read's own bound");
    }
    for text in &texts[4..] {
        assert!(text.contains("Not attached, as there is no room left"), "{} bytes", text.len());
    }
}
