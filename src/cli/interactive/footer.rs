//! The confinement as the footer says it: in words, with the level that its colour comes from.

use serde_json::Value;

use crate::{authority::Confinement, tui::state::Level};

/// Returns the confinement in a few words: `jail: net on · 3 hidden · ~/src/x`.
pub(super) fn words(
    confinement: Confinement,
    plan: Option<Value>,
    workspace: &str,
) -> (String, Level) {
    match confinement {
        Confinement::KliSandbox => {
            let plan = plan.unwrap_or_default();
            let network = match plan.get("network").and_then(Value::as_bool) {
                Some(true) => "net on",
                Some(false) => "net off",
                None => "net unknown",
            };
            let hidden = plan
                .get("hiddenPaths")
                .and_then(Value::as_u64)
                .map_or_else(String::new, |count| format!(" · {count} hidden"));
            (format!("jail: {network}{hidden} · {workspace}"), Level::Jailed)
        }
        Confinement::Outer(_) => {
            (format!("{} · {workspace}", confinement.label()), Level::Unverified)
        }
        Confinement::None => (format!("no jail · {workspace}"), Level::Open),
        Confinement::Unknown => (format!("confinement unknown · {workspace}"), Level::Unverified),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_confinement_has_its_words_and_its_level() {
        let of = |confinement, plan| words(confinement, plan, "~/x");
        let jail = |plan: Value| of(Confinement::KliSandbox, Some(plan));
        for (said, words, level) in [
            (
                jail(json!({ "network": true, "hiddenPaths": 3 })),
                "jail: net on · 3 hidden · ~/x",
                Level::Jailed,
            ),
            (
                jail(json!({ "network": false, "hiddenPaths": 0 })),
                "jail: net off · 0 hidden · ~/x",
                Level::Jailed,
            ),
            (of(Confinement::KliSandbox, None), "jail: net unknown · ~/x", Level::Jailed),
            (
                of(Confinement::Outer("docker"), None),
                "outer: docker, unverified · ~/x",
                Level::Unverified,
            ),
            (of(Confinement::Unknown, None), "confinement unknown · ~/x", Level::Unverified),
            (of(Confinement::None, None), "no jail · ~/x", Level::Open),
        ] {
            assert_eq!(said, (words.to_owned(), level));
        }
        // What a plan of another kind may say makes no jail.
        let plan = Some(json!({ "network": false }));
        assert_eq!(of(Confinement::None, plan), ("no jail · ~/x".to_owned(), Level::Open));
    }
}
