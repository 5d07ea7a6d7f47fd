use super::*;
use crate::{
    agent::Op,
    display::{Code, Key},
    tui::{key::Typed, state::Level},
};

fn facts(model: &str) -> Facts {
    Facts {
        model: model.to_owned(),
        effort: None,
        windows: vec![(model.to_owned(), Some(1000))],
        profile: "interactive".to_owned(),
        confinement: "no jail".to_owned(),
        level: Level::Open,
        session: Some("abc".to_owned()),
    }
}

fn press(state: &mut State, key: Key) -> Vec<Effect> {
    state.typed(&Typed::Key(key))
}

fn enters(state: &mut State, text: &str) -> Vec<Effect> {
    for c in text.chars() {
        press(state, Key::plain(Code::Char(c)));
    }
    press(state, Key::plain(Code::Enter))
}

fn rows(state: &mut State) -> String {
    state.take_rows().iter().map(|row| row.text() + "\n").collect()
}

#[test]
fn a_key_does_what_it_is_bound_to_and_no_longer_what_it_did() {
    let mut state = State::new(facts("p/m"), 80, 24);
    assert_eq!(press(&mut state, Key::ctrl('l')), [Effect::Redraw], "control");
    let bound = [Key::ctrl('x')];
    state.use_keys(Keymap::new([("redraw", &bound[..]), ("suspend", &[])]));
    assert_eq!(press(&mut state, Key::ctrl('x')), [Effect::Redraw]);
    assert_eq!(press(&mut state, Key::ctrl('l')), []);
    assert_eq!(press(&mut state, Key::ctrl('z')), [], "neither suspends nor undoes");
    enters(&mut state, "/help");
    let help = rows(&mut state);
    assert!(help.contains("Ctrl-X: draw the region anew"), "{help}");
    assert!(help.contains("(no key): suspend"), "{help}");
    // What leaves cannot be taken away.
    press(&mut state, Key::ctrl('c'));
    assert_eq!(press(&mut state, Key::ctrl('c')), [Effect::Quit]);
}

#[test]
fn what_is_typed_goes_through_every_binding() {
    let mut state = State::new(facts("p/m"), 80, 24);
    let all: Vec<Vec<Key>> = crate::display::ACTIONS.iter().map(|_| Vec::new()).collect();
    let names = crate::display::ACTIONS.iter().map(|action| action.name);
    state.use_keys(Keymap::new(names.zip(all.iter().map(Vec::as_slice))));
    let effects = enters(&mut state, "y n a /");
    assert_eq!(effects, [Effect::Tell(Op::Submit("y n a /".to_owned()))]);
}

#[test]
fn a_conversation_that_is_worked_on_is_not_changed() {
    let mut state = State::new(facts("p/m"), 80, 24);
    let effects = enters(&mut state, "/model p/n");
    assert_eq!(effects, [Effect::Ask("model", "p/n".to_owned())], "control");
    state.answered("", "", false);
    enters(&mut state, "work");
    for command in ["model p/n", "effort high", "profile review"] {
        assert_eq!(enters(&mut state, &format!("/{command}")), []);
        let said = rows(&mut state);
        assert!(said.contains("changes the conversation that goes on"), "{said}");
        assert!(said.contains("Esc Esc"), "{said}");
    }
    // What there is can be asked for, and what only looks otherwise can be chosen.
    assert_eq!(enters(&mut state, "/model"), [Effect::Ask("model", String::new())]);
    assert_eq!(enters(&mut state, "/theme dark"), [Effect::Ask("theme", "dark".to_owned())]);
    // A prompt that was faster than the models wins.
    let to = super::super::command::said("model", "");
    let late = Answer { to, change: Some(Change::GoOn), ..Answer::default() };
    assert_eq!(state.answer(late), []);
    assert!(rows(&mut state).contains("nothing was changed"));
}

#[test]
fn no_prompt_runs_under_what_was_just_left() {
    let mut state = State::new(facts("p/m"), 80, 24);
    assert_eq!(enters(&mut state, "/profile read-only").len(), 1);
    // It is typed while a key is fetched for the new one.
    state.composer.set("delete it all");
    let enter = Typed::Key(Key::plain(Code::Enter));
    assert_eq!(state.typed(&enter), []);
    assert_eq!(state.composer.text(), "delete it all", "it stays");
    assert!(!state.is_working());
    assert!(rows(&mut state).contains("still being made ready"));
    // The answer to something else does not end the wait; that of the change does.
    state.composer.take();
    assert_eq!(enters(&mut state, "/doctor").len(), 1);
    state.composer.set("delete it all");
    state.answer(Answer { to: "/doctor ".to_owned(), ..Answer::default() });
    assert_eq!(state.typed(&enter), []);
    // Nor does what nobody asked for, such as a log that ends.
    state.answer(Answer { errors: "a notice".to_owned(), ..Answer::default() });
    assert_eq!(state.typed(&enter), []);
    state.switch(facts("p/m"), "profile: read-only", &[]);
    let sent = Effect::Tell(Op::Submit("delete it all".to_owned()));
    assert_eq!(state.typed(&enter), [sent]);
    // One that failed, or only listed, leaves nothing to wait for.
    for command in ["/profile nothing", "/profile"] {
        let mut state = State::new(facts("p/m"), 80, 24);
        enters(&mut state, command);
        let to =
            super::super::command::said("profile", command.trim_start_matches("/profile").trim());
        state.answer(Answer { to, failed: true, ..Answer::default() });
        enters(&mut state, "/doctor");
        assert_eq!(enters(&mut state, "go").len(), 1, "{command}");
    }
}

#[test]
fn the_same_conversation_goes_on_with_what_was_said_and_spent() {
    let mut state = State::new(facts("p/m"), 80, 24);
    enters(&mut state, "/model p/n");
    let to = "/model p/n".to_owned();
    let ready = Answer { to, change: Some(Change::GoOn), ..Answer::default() };
    assert_eq!(state.answer(ready), [Effect::Begin(SWITCH, String::new())]);
    state.context = Some(500);
    state.spent.usage.input_tokens = 7;
    state.switch(facts("p/n"), "model: p/n", &["a notice".to_owned()]);
    assert_eq!((state.context, state.spent.usage.input_tokens), (Some(500), 7));
    assert_eq!(state.window(), Some(1000));
    assert!(!state.is_moving(), "nothing is waited for");
    let said = rows(&mut state);
    assert!(said.contains("model: p/n") && said.contains("! a notice"), "{said}");
}
