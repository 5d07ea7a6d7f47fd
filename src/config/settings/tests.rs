use std::{collections::BTreeMap, time::Duration};

use crate::config::{
    Kind, Layer, Layers, Provider, ProviderError, Server, Settings, Warning, keys,
};

const FILE: &str = "/c/settings.json";

fn parse(text: &str) -> Result<(Settings, Vec<Warning>), String> {
    Settings::parse(FILE, text.as_bytes(), Layer::User).map_err(|error| error.to_string())
}

fn settings(text: &str, layer: Layer) -> Settings {
    Settings::parse(FILE, text.as_bytes(), layer).unwrap().0
}

const FULL: &str = r#"{
  // Which model.
  "$schema": "https://example.com/kli.json",
  "model": "work/claude-sonnet-4-5/latest",
  "profile": "review",
  "capabilities": ["file/read", { "atom": "file/write", "under": ["src"] },],
  "providers": {
    "work": {
      "kind": "anthropic",
      "baseUrl": "http://127.0.0.1:8080/",
      "keyEnv": "WORK_KEY",
      "keyFile": "~/.keys/team",
      "keyCommand": ["pass", "show", "team key"],
      "headers": { "x-team": "tools" },
    },
    "replay": { "file": "/srv/turns.jsonl" }, /* no key, no network */
  },
  "bash": { "shell": "/bin/dash", "timeout": "2m", "maxTimeout": "10m" },
  "budgets": { "turns": 50, "tokens": 1000000, "time": "1h30m" },
}
"#;

#[test]
fn every_key_is_read_and_knows_its_layer() {
    let (settings, warnings) = parse(FULL).unwrap();
    assert_eq!(warnings, []);
    let model = settings.model.get().unwrap();
    assert_eq!(
        (model.provider.as_str(), model.model.as_str()),
        ("work", "claude-sonnet-4-5/latest")
    );
    assert_eq!(settings.model.layer(), Some(Layer::User));
    assert_eq!(settings.profile.get().unwrap(), "review");
    assert_eq!(settings.capabilities.len(), 1);
    assert_eq!(settings.capabilities[0].0.to_string(), "user settings");
    assert_eq!(settings.capabilities[0].1.entries.len(), 2);
    assert_eq!(settings.bash.shell.get().unwrap(), "/bin/dash");
    assert_eq!(settings.bash.timeout.get(), Some(&Duration::from_mins(2)));
    assert_eq!(settings.bash.max_timeout.get(), Some(&Duration::from_mins(10)));
    assert_eq!(settings.budgets.turns.get(), Some(&50));
    assert_eq!(settings.budgets.tokens.get(), Some(&1_000_000));
    assert_eq!(settings.budgets.time.get(), Some(&Duration::from_mins(90)));
    assert_eq!(
        settings.provider("work").unwrap(),
        Provider::Server(Server {
            kind: Kind::Anthropic,
            base_url: "http://127.0.0.1:8080".into(),
            key_env: Some("WORK_KEY".into()),
            key_file: Some("~/.keys/team".into()),
            key_command: Some(["pass", "show", "team key"].map(str::to_owned).to_vec()),
            headers: BTreeMap::from([("x-team".into(), "tools".into())]),
            models: BTreeMap::new(),
        })
    );
    assert_eq!(
        settings.provider("replay").unwrap(),
        Provider::Replay { file: Some("/srv/turns.jsonl".into()) }
    );
    assert_eq!(settings.secret_variables(), ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "WORK_KEY"]);
}

#[test]
fn a_file_without_a_value_sets_nothing() {
    for text in ["", " \n", "// nothing yet\n", "\u{feff}", "{}", "\u{feff}{ /* x */ }"] {
        assert_eq!(parse(text).unwrap(), (Settings::default(), Vec::new()), "{text:?}");
    }
}

#[test]
fn every_error_names_file_line_column_and_key() {
    for (text, expected) in [
        // Syntax.
        (
            "{\n  \"model\": \"a/b\"\n  \"profile\": \"print\"\n}",
            "/c/settings.json:2:17: `model`: expected comma; comments and trailing commas are allowed",
        ),
        ("{\n  \"bash\": { \"timeout\": 5m }\n}", "/c/settings.json:2:25: `bash.timeout`: "),
        ("{ \"bash\": { \"timeout\": '5m' } }", "/c/settings.json:1:24: `bash.timeout`: "),
        ("{ \"model\": ", "/c/settings.json:1:1"),
        ("{ model: \"a/b\" }", "/c/settings.json:1:3: "),
        ("{} {}", "/c/settings.json:1:4: "),
        ("{ \"budgets\": { \"turns\": 0x10 } }", "`budgets.turns`: "),
        // Shapes.
        ("[]", "/c/settings.json:1:1: expected an object, found an array"),
        ("\"x\"", "/c/settings.json:1:1: expected an object, found the string `x`"),
        (
            "{\n\t\"model\": 5\n}",
            "/c/settings.json:2:11: `model`: expected a string, found the number `5`",
        ),
        (
            "{ \"model\": null }",
            "`model`: expected a string, found null; leave the key out instead",
        ),
        ("{ \"bash\": true }", ":1:11: `bash`: expected an object, found `true`"),
        ("{ \"providers\": [] }", "`providers`: expected an object, found an array"),
        ("{ \"providers\": { \"a\": null } }", "`providers.a`: expected an object, found null"),
        ("{ \"budgets\": { \"turns\": \"5\" } }", "expected a whole number, found the string `5`"),
        // Duplicates; the place is the second one.
        (
            "{\n\"model\": \"a/b\",\n \"model\": \"a/c\"\n}",
            ":3:2: `model`: the key is there twice, first in line 2; remove one of them",
        ),
        (
            "{\"bash\":{\"shell\":\"/a\",\"sh\\u0065ll\":\"/b\"}}",
            "`bash.shell`: the key is there twice",
        ),
        (
            "{\"capabilities\":[{\"atom\":\"file/write\",\"atom\":\"file/read\"}]}",
            "`capabilities.atom`: the key is there twice",
        ),
        // Values.
        (
            "{ \"model\": \"son net\" }",
            ":1:12: `model`: `son net` names no model; write it as `PROVIDER/MODEL`",
        ),
        ("{ \"model\": \"/x\" }", "`/x` names no model"),
        ("{ \"model\": \"a/\" }", "`a/` names no model"),
        ("{ \"model\": \"a/b c\" }", "`a/b c` names no model"),
        ("{ \"model\": \"a/b\u{202e}c\" }", "`a/b\\u{202e}c` names no model"),
        (
            "{ \"profile\": \"read only\" }",
            "`profile`: `read only` cannot be a name; use at most 128 letters",
        ),
        ("{ \"models\": { \"a b\": \"x/y\" } }", "`models.a b`: `a b` cannot be a name"),
        ("{ \"models\": { \"a\": [] } }", "`models.a`: the array is empty; name at least one"),
        ("{ \"models\": { \"a\": \"b\" } }", "`models.a`: `b` names no model"),
        ("{ \"models\": { \"a\": null } }", "`models.a`: expected a string, found null"),
        (
            "{ \"profiles\": { \"print\": {} } }",
            "`profiles.print`: `print` is a built-in profile; give this one another name",
        ),
        (
            "{ \"profiles\": { \"x\": { \"settings\": { \"profile\": \"print\" } } } }",
            "`profiles.x.settings.profile`: this key cannot be set in the settings of a profile",
        ),
        (
            "{ \"profiles\": { \"x\": { \"approve\": \"write\" } } }",
            "unknown approval `write`, did you mean `writes`?; it is `never`, `writes` or `all`",
        ),
        ("{ \"denyTools\": \"bash\" }", "`denyTools`: expected an array of strings"),
        ("{ \"denyTools\": [null] }", "`denyTools`: expected a string, found null"),
        ("{ \"session\": { \"enabled\": 1 } }", "expected `true` or `false`, found the number `1`"),
        ("{ \"bash\": { \"passEnv\": \"A\" } }", "`bash.passEnv`: expected an array of strings"),
        (
            "{ \"bash\": { \"env\": { \"A=B\": \"x\" } } }",
            "`bash.env.A=B`: this is not the name of",
        ),
        // A narrowing key that is misspelt is never left out.
        (
            "{ \"capabilites\": [] }",
            ":1:3: `capabilites`: unknown key, did you mean `capabilities`?; mend or remove it",
        ),
        ("{ \"denytools\": [] }", "`denytools`: unknown key, did you mean `denyTools`?"),
        ("{ \"budgets\": { \"turn\": 5 } }", "`budgets.turn`: unknown key, did you mean `turns`?"),
        ("{ \"budget\": { \"turns\": 5 } }", "unknown key, did you mean `budgets`?"),
        ("{ \"profil\": \"read-only\" }", "`profil`: unknown key, did you mean `profile`?"),
        (
            "{ \"profiles\": { \"x\": { \"aprove\": \"all\" } } }",
            "`profiles.x.aprove`: unknown key, did you mean `approve`?",
        ),
        (
            "{ \"policy\": {} }",
            "a policy is no part of the settings; it goes into `/etc/kli/policy",
        ),
        ("{ \"polcy\": {} }", "a policy is no part of the settings"),
        (
            "{ \"providers\": { \"x\": { \"kind\": \"antropic\" } } }",
            "`providers.x.kind`: unknown kind `antropic`, did you mean `anthropic`?",
        ),
        (
            "{ \"providers\": { \"a/b\": {} } }",
            ":1:18: `providers.a/b`: `a/b` cannot name a provider",
        ),
        ("{ \"providers\": { \"\": {} } }", "`` cannot name a provider"),
        (
            "{ \"providers\": { \"x\": { \"baseUrl\": \"api.example.com\" } } }",
            "the address does not start with `https://`",
        ),
        (
            "{ \"providers\": { \"x\": { \"baseUrl\": \"https://\" } } }",
            "the address names no host",
        ),
        ("{ \"providers\": { \"x\": { \"baseUrl\": \"https://h/?a=b\" } } }", "has a query"),
        (
            "{ \"providers\": { \"x\": { \"keyFile\": \"sk-hidden\" } } }",
            "`providers.x.keyFile`: this is not the path of a file; write an absolute path",
        ),
        (
            "{ \"providers\": { \"x\": { \"keyCommand\": \"pass show sk-hidden\" } } }",
            "`providers.x.keyCommand`: the command must be an array of words, the program first",
        ),
        (
            "{ \"providers\": { \"x\": { \"keyCommand\": [] } } }",
            "`providers.x.keyCommand`: the command must be an array of words, the program first",
        ),
        (
            "{ \"providers\": { \"x\": { \"keyCommand\": [\"\"] } } }",
            "`providers.x.keyCommand`: the command must be an array of words, the program first",
        ),
        (
            "{ \"providers\": { \"x\": { \"keyCommand\": [\"bin/sk-hidden\", \"x\"] } } }",
            "`providers.x.keyCommand`: the command must be an array of words, the program first",
        ),
        (
            "{ \"providers\": { \"x\": { \"keyCommand\": [\"./sk-hidden\"] } } }",
            "`providers.x.keyCommand`: the command must be an array of words, the program first",
        ),
        (
            "{ \"providers\": { \"x\": { \"keyCommand\": [\"pass\", 1] } } }",
            "`providers.x.keyCommand`: expected a string, found a number",
        ),
        (
            "{ \"providers\": { \"x\": { \"headers\": { \"a b\": \"c\" } } } }",
            "`providers.x.headers.a b`: the name of the header is not allowed",
        ),
        (
            "{ \"bash\": { \"shell\": \"bash\" } }",
            "`bash.shell`: `bash` depends on where kli is started",
        ),
        (
            "{ \"bash\": { \"timeout\": 90 } }",
            "`bash.timeout`: `90` has no unit; write `90s`, `90m` or `90h`",
        ),
        ("{ \"bash\": { \"timeout\": \"90\" } }", "`90` has no unit"),
        (
            "{ \"bash\": { \"timeout\": [] } }",
            "expected a length of time like `\"90s\"`, found an array",
        ),
        ("{ \"budgets\": { \"time\": \"0s\" } }", "`0s` is no time at all"),
        ("{ \"budgets\": { \"turns\": 0 } }", "`0` is no whole number from 1"),
        ("{ \"budgets\": { \"turns\": -1 } }", "`-1` is no whole number"),
        ("{ \"budgets\": { \"turns\": 1.5 } }", "`1.5` is no whole number"),
        ("{ \"budgets\": { \"tokens\": 99999999999999999999 } }", "is no whole number"),
        // Capabilities: the place is the entry's.
        (
            "{ \"capabilities\": [\n  \"file/read\",\n  \"file/raed\"\n] }",
            "/c/settings.json:3:3: `capabilities`: unknown capability `file/raed`",
        ),
        ("{ \"capabilities\": null }", "`capabilities`: capabilities must be a string or an array"),
        ("{ \"capabilities\": true }", "found `true`"),
        ("{ \"capabilities\": {\"file/read\": true} }", "found an object"),
        ("{ \"capabilities\": [1e999] }", "`capabilities`: this number cannot be read"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.contains(expected), "{text}\n  got      {error}\n  expected {expected}");
        assert!(error.starts_with("/c/settings.json:"), "{error}");
        assert!(!error.contains('\n') && !error.ends_with('.'), "{error}");
    }
}

#[test]
fn what_is_no_text_or_too_much_is_an_error_with_a_place() {
    let error = Settings::parse(FILE, b"{\n \"a\xff\": 1}", Layer::User).unwrap_err().to_string();
    assert_eq!(error, "/c/settings.json:2:4: the file is not UTF-8 here; save it as UTF-8");
    let large = vec![b' '; super::MAX_BYTES + 1];
    let error = Settings::parse(FILE, &large, Layer::User).unwrap_err().to_string();
    assert!(error.contains("has 1048577 bytes, at most 1048576 are read"), "{error}");
    assert!(Settings::parse(FILE, &large[1..], Layer::User).is_ok(), "control: the bound itself");
    for deep in ["[".repeat(100_000), "{\"bash\":".repeat(20_000)] {
        let error = parse(&deep).unwrap_err();
        assert!(error.contains("nesting depth"), "{}", error.len());
    }
}

#[test]
fn a_secret_in_the_wrong_place_is_not_repeated() {
    for text in [
        r#"{ "providers": { "x": { "keyEnv": "sk-SECRET" } } }"#,
        r#"{ "providers": "SECRET" }"#,
        r#"{ "providers": { "x": "SECRET" } }"#,
        r#"{ "providers": { "x": { "headers": "SECRET" } } }"#,
        r#"{ "providers": { "x": { "headers": { "a": "SECRET\n" } } } }"#,
        r#"{ "providers": { "x": { "baseUrl": "https://u:SECRET@h" } } }"#,
    ] {
        let error = parse(text).unwrap_err();
        assert!(!error.contains("SECRET"), "{error}");
    }
    let (_, warnings) = parse(r#"{ "providers": { "x": { "apiKey": "SECRET" } } }"#).unwrap();
    assert!(!warnings[0].to_string().contains("SECRET"));
    let (settings, _) =
        parse(r#"{ "providers": { "anthropic": { "headers": { "x-key": "SECRET" } } } }"#).unwrap();
    let provider = settings.provider("anthropic").unwrap();
    assert!(!format!("{settings:?} {provider:?}").contains("SECRET"));
    assert!(matches!(provider, Provider::Server(server) if server.headers["x-key"] == "SECRET"));
}

#[test]
fn unknown_keys_warn_with_the_nearest_name_and_are_ignored() {
    for (text, expected) in [
        (
            "{\n  \"modle\": 5\n}",
            "/c/settings.json:2:3: `modle`: unknown key, ignored; did you mean `model`?",
        ),
        ("{ \"Model\": \"a/b\" }", "`Model`: unknown key, ignored; did you mean `model`?"),
        (
            "{ \"bash\": { \"maxTimout\": 5 } }",
            ":1:13: `bash.maxTimout`: unknown key, ignored; did you mean `maxTimeout`?",
        ),
        (
            "{ \"providers\": { \"x\": { \"baseURL\": 5 } } }",
            "`providers.x.baseURL`: unknown key, ignored; did you mean `baseUrl`?",
        ),
        ("{ \"zzzzzzzz\": {} }", "`zzzzzzzz`: unknown key, ignored"),
        ("{ \"mcpServers\": {} }", "`mcpServers`: not part of this version, ignored"),
        (
            "{ \"defaultModel\": 5 }",
            "`defaultModel`: a key of the original kli, ignored; now it is `model`",
        ),
        (
            "{ \"bash\": { \"envAllowlist\": [] } }",
            "`bash.envAllowlist`: a key of the original kli, ignored; now it is `bash.passEnv`",
        ),
        ("{ \"a\\u001b[2J\": {} }", "`a\\u{1b}[2J`: unknown key, ignored"),
    ] {
        let (settings, warnings) = parse(text).unwrap();
        let shown: Vec<String> = warnings.iter().map(ToString::to_string).collect();
        assert!(shown.len() == 1 && shown[0].contains(expected), "{text}: {shown:?}");
        assert_eq!(settings.model.get(), None);
    }
    let (_, warnings) = parse("{ \"zzzzzzzz\": {} }").unwrap();
    assert_eq!(warnings[0].nearest, None, "nothing is near");
}

#[test]
fn later_layers_win_and_capabilities_meet() {
    let baked = settings(
        r#"{ "model": "a/b", "capabilities": ["file/read", "file/write"], "bash": { "timeout": "1m" },
            "providers": { "p": { "kind": "anthropic", "baseUrl": "https://one", "keyEnv": "K" } } }"#,
        Layer::Baked,
    );
    let user = settings(
        r#"{ "model": "p/d", "capabilities": "file/read", "budgets": { "turns": 3 },
            "providers": { "p": { "baseUrl": "https://two" } } }"#,
        Layer::User,
    );
    let merged = user.over(baked);
    assert_eq!(merged.model.get().unwrap().to_string(), "p/d");
    assert_eq!(merged.model.layer(), Some(Layer::User));
    assert_eq!(merged.bash.timeout.layer(), Some(Layer::Baked));
    assert_eq!(merged.budgets.turns.layer(), Some(Layer::User));
    assert!(merged.budgets.any() && !Settings::default().budgets.any());
    let sources: Vec<String> = merged.capabilities.iter().map(|(s, _)| s.to_string()).collect();
    assert_eq!(sources, ["baked settings", "user settings"]);
    let provider = &merged.providers["p"];
    assert_eq!(provider.kind.get(), Some(&Kind::Anthropic));
    assert_eq!(provider.base_url.get().unwrap(), "https://two");
    assert_eq!(
        (provider.base_url.layer(), provider.key_env.layer()),
        (Some(Layer::User), Some(Layer::Baked))
    );
}

#[test]
fn values_that_do_not_go_together_name_both_layers() {
    let baked = settings(r#"{ "bash": { "maxTimeout": "1m" } }"#, Layer::Baked);
    let user = settings(r#"{ "bash": { "timeout": "90s" } }"#, Layer::User);
    assert!(baked.check().is_ok() && user.check().is_ok(), "control: each by itself");
    let error = user.over(baked).check().unwrap_err().to_string();
    assert_eq!(
        error,
        "`bash.timeout` (90s, from user settings) is longer than `bash.maxTimeout` (60s, from baked); raise `bash.maxTimeout` or lower `bash.timeout`"
    );
}

#[test]
fn the_environment_sets_the_address_of_the_built_in_provider_only() {
    let user = settings(
        r#"{ "providers": { "anthropic": { "baseUrl": "https://one" },
             "mine": { "kind": "anthropic", "baseUrl": "https://mine" } } }"#,
        Layer::User,
    );
    let environment = Settings::from_environment("anthropic", Some("http://127.0.0.1:1/")).unwrap();
    let merged = environment.over(user);
    let address = |name| match merged.provider(name).unwrap() {
        Provider::Server(server) => (server.base_url, server.key_env),
        Provider::Replay { .. } => panic!("no replay"),
    };
    assert_eq!(
        address("anthropic"),
        ("http://127.0.0.1:1".into(), Some("ANTHROPIC_API_KEY".into()))
    );
    // The built-in provider's key is not sent to another address.
    assert_eq!(address("mine"), ("https://mine".into(), None));
    assert_eq!(Settings::from_environment("anthropic", Some(" ")).unwrap(), Settings::default());
    assert_eq!(Settings::from_environment("anthropic", None).unwrap(), Settings::default());
    let error = Settings::from_environment("anthropic", Some("localhost")).unwrap_err().to_string();
    assert!(error.contains("write it like `https://"), "{error}");
}

#[test]
fn providers_are_built_in_or_say_what_they_lack() {
    let none = Settings::default();
    assert_eq!(
        none.provider("anthropic").unwrap(),
        Provider::Server(Server {
            kind: Kind::Anthropic,
            base_url: "https://api.anthropic.com".into(),
            key_env: Some("ANTHROPIC_API_KEY".into()),
            key_file: None,
            key_command: None,
            headers: BTreeMap::new(),
            models: BTreeMap::new(),
        })
    );
    assert_eq!(none.provider("replay").unwrap(), Provider::Replay { file: None });
    for (text, name, expected) in [
        (
            "{}",
            "antropic",
            "unknown provider `antropic`, did you mean `anthropic`?; known are `anthropic`, `ollama`, `openai`, `replay`",
        ),
        (
            "{}",
            "zzzzzzzzz",
            "unknown provider `zzzzzzzzz`; known are `anthropic`, `ollama`, `openai`, `replay`",
        ),
        (r#"{"providers":{"x":{}}}"#, "x", "provider `x` has no kind; add"),
        (r#"{"providers":{"x":{"kind":"anthropic"}}}"#, "x", "provider `x` has no address; add"),
        (
            r#"{"providers":{"anthropic":{"baseUrl":"https://h/v1/"}}}"#,
            "anthropic",
            "the address of provider `anthropic` ends in `/v1` (from user settings); leave `/v1` out",
        ),
    ] {
        let error: ProviderError = settings(text, Layer::User).provider(name).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}

/// The document's example is read without a warning.
#[test]
fn the_documented_example_is_read() {
    let document = include_str!("../../../docs/settings.md");
    let example = document
        .split("```jsonc\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .expect("docs/settings.md has an example");
    let (settings, warnings) = parse(example).unwrap();
    assert_eq!(warnings, []);
    let layers = Layers { files: vec![settings], default_profile: "print", ..Layers::default() };
    let effective = layers.settle().unwrap();
    let name = &effective.settings.model.get().unwrap().provider;
    effective.settings.provider(name).unwrap();
    for key in keys::SETTINGS.iter().filter(|key| key.shape != keys::Shape::Later) {
        let row = format!("| `{}` |", key.name);
        assert!(document.contains(&row), "docs/settings.md lacks the row {row}");
    }
    for key in keys::below(keys::SETTINGS, "").iter().filter(|key| key.shape == keys::Shape::Later)
    {
        assert!(document.contains(&format!("`{}`", key.name)), "`{}` is not named", key.name);
    }
    for (name, about) in crate::config::names::ALL {
        let row = format!("| `{name}` | {about} |");
        assert!(document.contains(&row), "docs/settings.md lacks the row {row}");
    }
}

#[test]
fn layers_merge_key_by_key_and_a_null_option_takes_one_out() {
    let user = settings(
        r#"{ "model": "fast", "models": { "fast": "a/b", "slow": "a/c" }, "modelOptions": { "t": 1, "u": 2 },
            "bash": { "env": { "A": "1", "B": "1" } }, "denyTools": ["bash"] }"#,
        Layer::User,
    );
    let later = settings(
        r#"{ "model": "x/y", "models": { "fast": ["a/d", "a/e"] }, "modelOptions": { "t": null },
            "bash": { "env": { "B": "2" }, "passEnv": ["C"] }, "denyTools": ["write"] }"#,
        Layer::Flag,
    );
    let merged = later.over(user.clone());
    // A model in full replaces an alias, and the other way round.
    assert_eq!((merged.model.get().unwrap().to_string(), merged.alias.get()), ("x/y".into(), None));
    assert_eq!(user.over(merged.clone()).alias.get().unwrap(), "fast");
    assert_eq!(merged.models["fast"].get().unwrap().len(), 2);
    assert_eq!(merged.models["slow"].layer(), Some(Layer::User));
    assert_eq!(merged.model_options().keys().collect::<Vec<_>>(), ["u"]);
    assert_eq!(merged.bash.env["A"].get().unwrap(), "1");
    assert_eq!(merged.bash.env["B"].get().unwrap(), "2");
    let denied: Vec<&str> =
        merged.deny_tools.iter().flat_map(|(_, names)| names).map(String::as_str).collect();
    assert_eq!(denied, ["bash", "write"]);
}

#[test]
fn a_variables_value_is_not_repeated() {
    for text in [
        r#"{ "bash": { "env": "SECRET" } }"#,
        r#"{ "bash": { "env": { "A": 5, "B": "SECRET" } } }"#,
        r#"{ "bash": { "env": { "A": ["SECRET"] } } }"#,
        r#"{ "bash": { "env": { "A": "SECRET\u0000" } } }"#,
        r#"{ "profiles": { "p": { "settings": { "bash": { "env": "SECRET" } } } } }"#,
        r#"{ "profiles": { "p": { "settings": { "providers": { "x": "SECRET" } } } } }"#,
    ] {
        let error = parse(text).unwrap_err();
        assert!(!error.contains("SECRET"), "{error}");
    }
    let (settings, _) = parse(r#"{ "bash": { "env": { "A": "SECRET" } } }"#).unwrap();
    assert!(!format!("{settings:?}").contains("SECRET"));
    assert_eq!(settings.bash.env["A"].get().unwrap(), "SECRET", "control");
}
