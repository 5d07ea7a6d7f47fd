use crate::{
    agent::{
        Budgets, Outcome, Summary,
        step::{Action, Input, Retry, Why},
        turn::Turn,
    },
    message::Message,
    model::{Class, Delta, ModelError},
};

fn machine() -> Turn {
    let mut turn = Turn::new("a/one".to_owned(), Vec::new(), Budgets::default(), Retry::default());
    turn.step(Input::Did("before".into()));
    turn
}

fn ended(actions: &[Action]) -> &Summary {
    let end =
        actions.iter().find_map(|it| if let Action::Finish(end) = it { Some(end) } else { None });
    end.unwrap()
}

fn failed() -> Input {
    let message = "busy".to_owned();
    Input::Failed(ModelError { class: Class::Retry { after: None }, message, network: false })
}

#[test]
fn a_prompt_of_which_nothing_came_leaves_the_conversation_with_what_went_along() {
    for waits in [false, true] {
        let mut turn = machine();
        turn.step(Input::News("put back".into()));
        turn.step(Input::Reference("a file".into()));
        turn.step(Input::Submit("remove all".into()));
        assert_eq!(turn.history().len(), 4, "control");
        turn.step(Input::Delta(Delta::Begun));
        if waits {
            turn.step(failed());
        }
        turn.step(Input::Steer("now".into()));
        let end = turn.step(Input::Stop(Why::TakeBack));
        assert!(end.contains(&Action::RecordWithdrawn(3)), "{end:?}");
        let summary = ended(&end);
        assert_eq!((summary.outcome, summary.exit), (Outcome::Interrupted, 130));
        assert!(summary.withdrawn);
        assert_eq!(summary.undelivered, ["now"]);
        assert_eq!(turn.history(), [Message::user("before")]);
        // What is true without it is told with the next one, and once.
        turn.step(Input::Submit("list".into()));
        let said = ["before", "list", "put back"].map(Message::user);
        assert_eq!(turn.history(), said);
    }
}

#[test]
fn a_prompt_of_which_something_came_and_one_that_is_only_interrupted_stay() {
    let piece = || Input::Delta(Delta::Text("I".into()));
    let thought = || Input::Delta(Delta::Thinking("hm".into()));
    let steered = || Input::Steer("and".into());
    let cases: [(Vec<Input>, Why); 5] = [
        (vec![piece()], Why::TakeBack),
        (vec![thought()], Why::TakeBack),
        (vec![failed(), steered(), Input::RetryDue], Why::TakeBack),
        (Vec::new(), Why::Interrupt),
        (Vec::new(), Why::Terminate),
    ];
    for (inputs, why) in cases {
        let mut turn = machine();
        turn.step(Input::Submit("look".into()));
        for input in inputs.clone() {
            turn.step(input);
        }
        let end = turn.step(Input::Stop(why.clone()));
        assert!(!ended(&end).withdrawn, "{inputs:?} {why:?}");
        assert!(!end.iter().any(|it| matches!(it, Action::RecordWithdrawn(_))));
        assert!(turn.history().contains(&Message::user("look")));
    }
    // Idle: nothing to take back.
    assert!(machine().step(Input::Stop(Why::TakeBack)).is_empty());
}
