use super::*;
use crate::config::keys::Shape;

fn read(text: &str) -> Settings {
    Settings::parse("s", text.as_bytes(), Layer::User).unwrap().0
}

use crate::config::Layer;

const EVERY: &str = r#"{ "model": "a/b", "models": { "m": "a/b" }, "modelOptions": { "t": 0 },
    "providers": { "p": { "kind": "anthropic", "baseUrl": "https://h", "keyEnv": "K",
                          "keyFile": "/k", "headers": { "x": "SECRET" }, "file": "/f",
                          "keyCommand": ["pass", "SECRET"],
                          "models": { "a/b:7b": { "maxOutput": 5, "options": { "seed": 1 }, "contextWindow": 9,
                              "effort": "low", "efforts": ["low", "max"], "price": { "input": 0.25,
                              "output": 3, "cacheRead": 0, "cacheWrite": 1.5 } } } } },
    "capabilities": ["file/read", { "atom": "file/write", "under": ["x"] }], "denyTools": ["bash"],
    "profile": "q",
    "profiles": { "q": { "extends": "print", "approve": "all",
                         "settings": { "bash": { "env": { "MY_TOKEN": "SECRET" } } } } },
    "bash": { "shell": "/s", "timeout": "90s", "maxTimeout": "1h1ms", "passEnv": null,
              "env": { "PLAIN": "one", "API_KEY": "SECRET", "URL": "https://u:SECRET@h",
                       "X": "SECRET0123456789abcdef", "Y": "sk-SECRET" } },
    "budgets": { "turns": 1, "tokens": 2, "time": "3m", "cost": 0.25, "repeats": 9 },
    "compaction": { "enabled": false, "threshold": 50, "keep": 7, "window": 8000 }, "session": { "enabled": false },
    "log": "/l", "context": ["A.md"], "effort": "high", "theme": "mine",
    "themes": { "mine": { "colors": { "error": "bold red" } } }, "keybindings": { "undo": "ctrl-x" } }"#;

#[test]
fn every_key_that_is_set_is_shown_and_no_secret_is() {
    let shown = read(EVERY).shown();
    for row in crate::config::keys::SETTINGS {
        let leaf = !matches!(row.shape, Shape::Object | Shape::Later)
            && !matches!(row.shape, Shape::Named | Shape::NamedFreely)
            && row.name != "$schema";
        let found = shown.iter().any(|shown| shown.row.name == row.name);
        assert_eq!(found, leaf, "`{}`", row.name);
    }
    let all: Vec<String> = shown.iter().map(|s| format!("{} = {}", s.key, s.value)).collect();
    let text = all.join("\n");
    assert!(!text.contains("SECRET"), "{text}");
    for line in [
        "bash.timeout = \"1m30s\"",
        "bash.maxTimeout = \"1h1ms\"",
        "bash.env.PLAIN = \"one\"",
        "bash.env.X = \"(hidden)\"",
        "providers.p.headers = {\"x\":\"(hidden)\"}",
        "profiles.q.settings.bash.env.MY_TOKEN = \"(hidden)\"",
        "bash.passEnv = null",
        "providers.p.keyCommand = [\"pass\",\"(hidden)\"]",
        "providers.p.models.a/b:7b.maxOutput = 5",
        "providers.p.models.a/b:7b.efforts = [\"low\",\"max\"]",
        "providers.p.models.a/b:7b.price.input = 0.25",
        "providers.p.models.a/b:7b.price.output = 3",
        "effort = \"high\"",
        "themes.mine.colors = {\"error\":\"bold red\"}",
        "keybindings.undo = [\"ctrl-x\"]",
    ] {
        assert!(all.iter().any(|shown| shown == line), "{line} is not in {text}");
    }
}

#[test]
fn defaults_are_shown_where_nothing_is_set() {
    let shown = Settings::default().effective();
    let value = |key: &str| {
        let shown = shown.iter().find(|shown| shown.key == key).unwrap();
        assert_eq!(shown.layer(), "default");
        shown.value.clone()
    };
    assert_eq!(value("model"), "anthropic/claude-sonnet-4-5");
    assert_eq!(value("bash.timeout"), "2m");
    assert_eq!(value("session.enabled"), true);
    let set = read(EVERY).effective();
    assert!(set.iter().all(|shown| shown.layer() == "user settings"), "control");
}
