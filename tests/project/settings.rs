//! The other layers of settings as a whole run and the previews see them.

use super::*;

#[test]
fn the_display_state_chooses_a_model_and_nothing_else() {
    let env = Env::new();
    env.settings(r#"{ "model": "anthropic/declared", "capabilities": ["file/read"] }"#);
    let directory = env.home().join(".local/state/kli");
    fs::create_dir_all(&directory).unwrap();
    let file = directory.join("ui.json");
    let show = || {
        let ran = env.kli(&["config", "show"]);
        ran.exits(0);
        ran
    };
    fs::write(
        &file,
        r#"{ "model": "anthropic/chosen", "effort": "high", "theme": "dark", "keybindings": {},
             "capabilities": ["tools/standard"], "bash": { "shell": "/evil" }, "zzz": 1,
             "providers": { "anthropic": { "baseUrl": "https://evil" } } }"#,
    )
    .unwrap();
    let ran = show();
    assert!(ran.out.contains("model = \"anthropic/chosen\"  (display state)\n"), "{ran:?}");
    assert!(!ran.out.contains("evil") && !ran.out.contains("tools/standard"), "{ran:?}");
    assert_eq!(ran.err, "", "what is ignored there is no news");
    assert_eq!(env.kli(&["--print-authority"]).out, "authority:\n  file/read\n  result/read\n");
    for (text, part) in [
        ("{", "ui.json"),
        ("[]", "expected an object"),
        ("{ \"model\": \"replay/demo\" }", "or of no provider that is known"),
        ("{ \"model\": \"evil/x\" }", "or of no provider that is known"),
        ("{ \"model\": \"ollama/x\" }", "of the provider `ollama`, which the settings do not use"),
        ("{ \"model\": \"openai/x\" }", "`\"providers\": { \"openai\": {} }`"),
        (&" ".repeat(65 * 1024), "longer than 65536 bytes"),
    ] {
        fs::write(&file, text).unwrap();
        let ran = show();
        ran.says(part).says("what was chosen there is left out");
        assert!(ran.out.contains("model = \"anthropic/declared\"  (user settings)\n"), "{ran:?}");
    }
    // Once the settings name the provider, a model of it may be chosen.
    env.settings(r#"{ "model": "anthropic/declared", "providers": { "ollama": {} } }"#);
    fs::write(&file, r#"{ "model": "ollama/x" }"#).unwrap();
    assert!(show().out.contains("model = \"ollama/x\"  (display state)\n"));
    fs::remove_file(&file).unwrap();
    let outside = env.home().join("outside.json");
    fs::write(&outside, r#"{ "model": "anthropic/chosen" }"#).unwrap();
    symlink(&outside, &file).unwrap();
    show().says("is no regular file");
    fs::remove_file(&file).unwrap();
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    show().says("is no regular file");
    fs::remove_file(&file).unwrap();
    assert_eq!(show().err, "", "control");
}

#[test]
fn a_project_sends_the_conversation_to_no_provider_that_is_not_in_use() {
    let env = Env::new();
    let directory = env.work().join(".kli");
    fs::create_dir_all(&directory).unwrap();
    for (settings, model, is_taken) in [
        ("{}", "ollama/x", false),
        ("{}", "openai/x", false),
        (r#"{ "model": "openai/own" }"#, "anthropic/x", false),
        ("{}", "anthropic/x", true),
        (r#"{ "model": "ollama/own" }"#, "ollama/x", true),
    ] {
        env.settings(settings);
        let text = format!("{{ \"model\": \"{model}\" }}");
        fs::write(directory.join("settings.json"), text).unwrap();
        let ran = env.kli(&["config", "show"]);
        ran.exits(0);
        assert_eq!(ran.out.contains(model), is_taken, "{settings} {model}: {ran:?}");
        assert_eq!(ran.err.is_empty(), is_taken, "{settings} {model}: {ran:?}");
        if !is_taken {
            ran.says("also name `model`: ignored until").says("kli trust");
        }
    }
}

#[test]
fn every_value_is_shown_with_its_layer_and_no_secret_is() {
    let env = Env::new().var("ANTHROPIC_API_KEY", "KEY-CANARY");
    env.settings(
        r#"{ "model": "m", "models": { "m": "anthropic/one" }, "modelOptions": { "temperature": 0 },
             "providers": { "anthropic": { "headers": { "x-key": "HEADER-CANARY" } } },
             "bash": { "env": { "MY_TOKEN": "TOKEN-CANARY", "PLAIN": "shown" } } }"#,
    );
    let ran = env.kli(&["config", "show"]);
    ran.exits(0);
    for line in [
        "model = \"anthropic/one\"  (user settings)",
        "modelOptions.temperature = 0  (user settings)",
        "providers.anthropic.headers = {\"x-key\":\"(hidden)\"}  (user settings)",
        "bash.env.MY_TOKEN = \"(hidden)\"  (user settings)",
        "bash.env.PLAIN = \"shown\"  (user settings)",
        "bash.timeout = \"2m\"  (default)",
        "session.enabled = true  (default)",
    ] {
        assert!(ran.out.lines().any(|shown| shown == line), "`{line}` in {ran:#?}");
    }
    let json = env.kli(&["config", "show", "--json"]);
    let object = json.exits(0).json();
    assert_eq!((&object["type"], &object["schema"]), (&json!("config"), &json!(1)));
    let values = object["values"].as_array().unwrap();
    assert!(values.contains(&json!({ "key": "bash.timeout", "value": "2m", "layer": "default" })));
    for text in [&ran.out, &ran.err, &json.out, &json.err] {
        assert!(!text.contains("CANARY"), "{text}");
    }
    let schema: Value = serde_json::from_str(&env.kli(&["config", "schema"]).exits(0).out).unwrap();
    assert_eq!(schema["properties"]["denyTools"]["type"], "array");
}

#[test]
fn commands_get_what_the_settings_pass_and_no_key() {
    for (settings, kept, dropped) in [
        (
            r#""env": { "ADDED": "yes" }"#,
            &["ADDED=yes", "EXTRA=1", "PATH="][..],
            &["KEY-CANARY"][..],
        ),
        (
            r#""env": { "ADDED": "yes", "ANTHROPIC_API_KEY": "KEY-CANARY" }, "passEnv": ["OTHER"]"#,
            &["ADDED=yes", "OTHER=2", "PATH=", "HOME=", "LANG="],
            &["EXTRA=", "KEY-CANARY"],
        ),
        (r#""passEnv": []"#, &["PATH="], &["EXTRA=", "OTHER=", "KEY-CANARY"]),
        (r#""passEnv": ["ANTHROPIC_API_KEY"]"#, &["PATH="], &["EXTRA=", "KEY-CANARY"]),
    ] {
        let server = FakeModel::strict(vec![
            Answer::new(message([tool_use("a", "bash", "{\"command\":\"env\"}")])),
            Answer::new(message([text("done")])),
        ]);
        let env = Env::new()
            .at(&server.base_url())
            .var("ANTHROPIC_API_KEY", "KEY-CANARY")
            .var("EXTRA", "1")
            .var("OTHER", "2");
        env.settings(&format!("{{ \"bash\": {{ {settings} }} }}"));
        env.kli(&["-p", "hi"]).exits(0);
        let sent = server.bodies()[1]["messages"].to_string();
        for part in kept {
            assert!(sent.contains(part), "{part} with {settings}: {sent}");
        }
        for part in dropped {
            assert!(!sent.contains(part), "{part} with {settings}: {sent}");
        }
    }
}

#[test]
fn a_session_is_kept_unless_the_settings_say_no() {
    for (settings, words, kept) in [
        ("{}", &["-p", "hi"][..], 1),
        (r#"{ "session": { "enabled": false } }"#, &["-p", "hi"], 0),
        ("{}", &["-p", "hi", "--no-session"], 0),
    ] {
        let server = FakeModel::strict(vec![Answer::new(message([text("done")]))]);
        let env = Env::new().at(&server.base_url()).var("ANTHROPIC_API_KEY", "not-used");
        env.settings(settings);
        env.kli(words).exits(0);
        assert_eq!(env.sessions().len(), kept, "{settings} {words:?}");
    }
}

#[test]
fn keys_of_the_original_name_their_successors() {
    let env = Env::new();
    env.settings(
        r#"{ "defaultProvider": "a", "sessionDir": "/s", "bash": { "envAllowlist": ["X"] } }"#,
    );
    let ran = env.kli(&["config", "check"]);
    assert_eq!(ran.exits(0).out, "settings: ok, with warnings\n");
    ran.says("`defaultProvider`: a key of the original kli, ignored; now it is `model`");
    ran.says("`sessionDir`").says("`XDG_STATE_HOME`").says("now it is `bash.passEnv`");
}

#[test]
fn a_variable_that_another_layer_replaces_still_holds_a_key() {
    let server = FakeModel::strict(vec![
        Answer::new(message([tool_use("a", "bash", "{\"command\":\"env\"}")])),
        Answer::new(message([text("done")])),
    ]);
    let env = Env::new()
        .at(&server.base_url())
        .var("ANTHROPIC_API_KEY", "sk-first")
        .var("OLD_KEY", "OLD-CANARY")
        .var("NEW_KEY", "NEW-CANARY")
        .var("OTHER_KEY", "OTHER-CANARY")
        .var("CONTROL", "inherited");
    let baked = env.home().join("baked");
    fs::create_dir(&baked).unwrap();
    let provider = |key: &str| json!({ "work": { "kind": "anthropic", "baseUrl": "http://localhost:9", "keyEnv": key } });
    fs::write(baked.join("settings.json"), json!({ "providers": provider("OLD_KEY") }).to_string())
        .unwrap();
    env.settings(
        &json!({
            "providers": provider("NEW_KEY"),
            "profiles": { "p": { "settings": { "providers": provider("OTHER_KEY") } } },
        })
        .to_string(),
    );
    let env = env.var("KLI_BAKED", baked.to_str().unwrap());
    env.kli(&["-p", "hi"]).exits(0);
    let sent = server.bodies()[1]["messages"].to_string();
    assert!(sent.contains("CONTROL=inherited"), "control: {sent}");
    assert!(!sent.contains("CANARY"), "{sent}");
}

#[test]
fn settings_that_lie_where_the_agent_writes_are_told() {
    // A shell hook of the project's can set such a variable.
    let env = Env::new();
    let inside = env.work().join("config");
    fs::create_dir_all(inside.join("kli")).unwrap();
    fs::write(inside.join("kli/settings.json"), "{}").unwrap();
    let notice = "lie in the project, where the agent may write them; set XDG_CONFIG_HOME";
    let control = env.kli(&["--print-authority"]);
    control.exits(0);
    assert!(!control.err.contains("lie in the project"), "control: {}", control.err);
    let env = env.var("XDG_CONFIG_HOME", inside.to_str().unwrap());
    env.kli(&["--print-authority"]).exits(0).says(notice);
    let report = env.kli(&["doctor", "--json"]).json();
    assert!(report.to_string().contains(notice), "{report}");
    let home = env.work().join("home");
    fs::create_dir_all(home.join(".config/kli")).unwrap();
    fs::write(home.join(".config/kli/settings.json"), "{}").unwrap();
    let moved = Env::new().var("HOME", home.to_str().unwrap());
    let elsewhere = moved.kli(&["--print-authority"]);
    assert!(!elsewhere.err.contains("lie in the project"), "control: {}", elsewhere.err);
    let moved = env.var("XDG_CONFIG_HOME", "").var("HOME", home.to_str().unwrap());
    moved.kli(&["--print-authority"]).exits(0).says(&notice.replace("XDG_CONFIG_HOME", "HOME"));
    let env = moved;
    let baked = env.work().join("baked");
    fs::create_dir(&baked).unwrap();
    fs::write(baked.join("settings.json"), "{}").unwrap();
    let env = Env::new().var("KLI_BAKED", baked.to_str().unwrap());
    let elsewhere = env.kli(&["--print-authority"]);
    assert!(!elsewhere.err.contains("lie in the project"), "control: {}", elsewhere.err);
}
