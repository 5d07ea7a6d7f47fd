use super::*;
use crate::{config::Scope, display::Code};

fn parse(text: &str) -> Result<Settings, String> {
    Settings::parse("s", text.as_bytes(), Layer::User)
        .map(|(settings, warnings)| {
            assert_eq!(warnings, [], "{text}");
            settings
        })
        .map_err(|error| error.to_string())
}

#[test]
fn bindings_are_one_key_several_or_none() {
    let settings = parse(
        r#"{ "keybindings": { "undo": "Ctrl+Z", "suspend": [], "leave": ["ctrl-x", "ctrl-q"] } }"#,
    )
    .unwrap();
    let map = settings.keymap();
    assert_eq!(map.meaning(Key::ctrl('z')), Some(Key::ctrl('_')));
    assert_eq!(map.meaning(Key::ctrl('q')), Some(Key::ctrl('d')));
    assert_eq!(map.meaning(Key::ctrl('d')), None);
    assert_eq!(map.keys("suspend"), []);
    let shown: Vec<String> =
        settings.shown().iter().map(|shown| format!("{} {}", shown.key, shown.value)).collect();
    assert_eq!(
        shown,
        [
            "keybindings.leave [\"ctrl-x\",\"ctrl-q\"]",
            "keybindings.suspend []",
            "keybindings.undo [\"ctrl-z\"]",
        ]
    );
}

#[test]
fn a_binding_that_cannot_be_names_the_value_and_the_repair() {
    for (bindings, part) in [
        (
            r#""udno": "ctrl-x""#,
            "s:1:20: `keybindings.udno`: unknown action `udno`, did you mean `undo`?",
        ),
        (r#""undo": "ctrl-""#, "`keybindings.undo`: unknown key `ctrl-`"),
        (r#""undo": ["ctrl-x", "enter"]"#, "`enter` always sends, so nothing else can be bound"),
        (r#""undo": "ctrl-c""#, "`ctrl-c` always interrupts and leaves"),
        (r#""undo": "y""#, "`y` types a character"),
        (r#""undo": null"#, "expected a string, found null"),
        (r#""undo": [1]"#, "expected a string"),
        (
            r#""undo": "ctrl-x", "redo": ["alt-r", "ctrl-x"]"#,
            "`ctrl-x` is bound to `undo` and to `redo`",
        ),
        (
            r#""undo": ["alt-1","alt-2","alt-3","alt-4","alt-5","alt-6","alt-7","alt-8","alt-9"]"#,
            "the array has 9 entries, at most 8 are read",
        ),
    ] {
        let error = parse(&format!("{{ \"keybindings\": {{ {bindings} }} }}")).unwrap_err();
        assert!(error.contains(part), "{bindings}: {error}");
    }
}

#[test]
fn a_key_belongs_to_the_strongest_layer_that_binds_it() {
    let of = |text: &str, layer| {
        Settings::parse_scoped("s", text.as_bytes(), layer, Scope::Whole).unwrap().settings
    };
    let user = of(r#"{ "keybindings": { "undo": "ctrl-x", "redo": "ctrl-q" } }"#, Layer::User);
    let display = of(r#"{ "keybindings": { "leave": "ctrl-x" } }"#, Layer::Display);
    let map = display.over(user).keymap();
    assert_eq!(map.keys("leave"), [Key::ctrl('x')]);
    assert_eq!((map.keys("undo"), map.keys("redo")), (&[][..], &[Key::ctrl('q')][..]));
    assert_eq!(map.meaning(Key::ctrl('x')), Some(Key::ctrl('d')));
}

#[test]
fn a_theme_builds_on_another_and_is_found_by_its_name() {
    let settings = parse(
        r#"{ "theme": "mine", "themes": { "mine": { "base": "dark",
             "colors": { "error": "bold #ff0000", "dim": "plain" } } } }"#,
    )
    .unwrap();
    let theme = settings.chosen_theme();
    let look = |role| theme.look(role).map(|look| look.to_string());
    assert_eq!(look(Role::Error).as_deref(), Some("bold #ff0000"));
    assert_eq!(look(Role::Dim).as_deref(), Some("plain"));
    let dark = Theme::built_in("dark").unwrap();
    assert_eq!(theme.look(Role::Prompt), dark.look(Role::Prompt));
    assert!(settings.check_theme().is_ok());
    for (text, part) in [
        (r#""dark": {}"#, "`dark` is a built-in theme; give this one another name"),
        (r#""m": { "base": "drak" }"#, "`drak` is no theme to build on, did you mean `dark`?"),
        (r#""m": { "base": "none" }"#, "`none` is no theme to build on"),
        (r#""m": { "colors": { "eror": "red" } }"#, "unknown role `eror`, did you mean `error`?"),
        (r#""m": { "colors": { "error": "redd" } }"#, "`redd` is neither a colour"),
        (r#""m": { "colors": { "error": "red on red" } }"#, "cannot be seen"),
        (r#""m": { "colors": "red" }"#, "expected an object"),
        (r#""a/b": {}"#, "`a/b` cannot be a name"),
    ] {
        let error = parse(&format!("{{ \"themes\": {{ {text} }} }}")).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
    let strange = parse(r#"{ "theme": "drak" }"#).unwrap();
    let error = strange.check_theme().unwrap_err().to_string();
    assert_eq!(
        error,
        "unknown theme `drak` (from user settings), did you mean `dark`?; the themes are `auto`, \
         `dark`, `light`, `none`"
    );
    let mut written = strange.clone();
    assert_eq!(written.drop_strange_theme(&settings).as_deref(), Some("drak"));
    assert_eq!(written.drop_strange_theme(&settings), None, "it is gone");
    assert!(written.check_theme().is_ok());
}

#[test]
fn keys_of_a_project_are_not_looked_at_and_its_theme_is() {
    let text = br#"{ "keybindings": { "no such": 1 }, "themes": 3, "theme": "light" }"#;
    let parsed = Settings::parse_scoped("s", text, Layer::Project, Scope::Project).unwrap();
    assert_eq!(parsed.ignored, ["keybindings", "themes"]);
    assert_eq!(parsed.settings.theme.get().map(String::as_str), Some("light"));
    let parsed = Settings::parse_scoped("s", text, Layer::Display, Scope::Display);
    assert!(parsed.is_err(), "control: the display state may bind keys");
}

#[test]
fn a_display_state_holds_what_was_chosen_and_nothing_else() {
    let none = Settings::default();
    let mut settings = parse(
        r#"{ "model": "a/b", "capabilities": [], "providers": { "a": { "kind": "openai",
             "baseUrl": "https://x" } }, "bash": { "shell": "/x" }, "profile": "review" }"#,
    )
    .unwrap();
    let key = |c| Key::ctrl(c);
    for choice in [
        Choice::Model(Some("anthropic/one".to_owned())),
        Choice::Effort(Some("high".to_owned())),
        Choice::Theme(Some("dark".to_owned())),
        Choice::Keys("undo", Some(vec![key('x'), Key::plain(Code::PageUp)])),
        Choice::Keys("redo", Some(Vec::new())),
    ] {
        settings.choose_in(&choice, Layer::Display, &none).unwrap();
    }
    let text = settings.display_text();
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&text).unwrap(),
        serde_json::json!({
            "model": "anthropic/one", "effort": "high", "theme": "dark",
            "keybindings": { "undo": ["ctrl-x", "page-up"], "redo": [] },
        })
    );
    // It is read as it was written, and every part of it can be taken back.
    let mut read = Settings::parse_scoped("s", text.as_bytes(), Layer::Display, Scope::Display)
        .unwrap()
        .settings;
    assert_eq!(read.display_text(), text);
    assert_eq!(read.owner_of(key('x'), "redo"), Some("undo"));
    assert_eq!(read.owner_of(key('x'), "undo"), None);
    for choice in [
        Choice::Model(None),
        Choice::Effort(None),
        Choice::Theme(None),
        Choice::Keys("undo", None),
        Choice::Keys("redo", None),
    ] {
        read.choose_in(&choice, Layer::Display, &none).unwrap();
    }
    assert_eq!(read.display_text(), "{}\n");
    for (choice, part) in [
        (Choice::Model(Some("a b".to_owned())), "names no model"),
        (Choice::Effort(Some("hihg".to_owned())), "did you mean `high`?"),
        (Choice::Profile(Some("a/b".to_owned())), "cannot be a name"),
    ] {
        let error = read.choose_in(&choice, Layer::Display, &none).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}
