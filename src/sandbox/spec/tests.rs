use proptest::prelude::*;

use super::*;

#[test]
fn an_empty_object_is_the_default() {
    let spec = parse(b"{}").unwrap();
    assert_eq!(spec, Spec::default());
    assert!(spec.network && spec.state_dir && !spec.nested_userns && !spec.allow_home_workspace);
}

#[test]
fn each_base_is_known_and_paths_are_normalised() {
    for (text, base, rest) in [
        ("/", Base::Root, ""),
        ("//a///b/.", Base::Root, "a/b"),
        ("~/.aws/", Base::Home, ".aws"),
        ("$HOME/.aws", Base::Home, ".aws"),
        ("./", Base::Workspace, ""),
        ("./.env", Base::Workspace, ".env"),
        ("$XDG_RUNTIME_DIR/x", Base::Xdg(Xdg::Runtime), "x"),
        ("$XDG_CONFIG_HOME/x", Base::Xdg(Xdg::Config), "x"),
        ("$XDG_CACHE_HOME/x", Base::Xdg(Xdg::Cache), "x"),
        ("$XDG_STATE_HOME/x", Base::Xdg(Xdg::State), "x"),
        ("$XDG_DATA_HOME/x", Base::Xdg(Xdg::Data), "x"),
        ("/a/$HOME/~/[x]*", Base::Root, "a/$HOME/~/[x]*"),
        ("~/..a", Base::Home, "..a"),
    ] {
        let path = SpecPath::try_from(text.to_owned()).unwrap();
        assert_eq!((path.base, path.rest.as_str()), (base, rest), "{text}");
        assert_eq!(path.text, text);
    }
}

#[test]
fn what_starts_elsewhere_is_refused() {
    for text in
        ["a", "~", "~user/x", "$HOME", "${HOME}/x", "$XDG_BIN_HOME/x", ".", "..", "../x", " /x"]
    {
        let error = SpecPath::try_from(text.to_owned()).unwrap_err();
        assert!(matches!(error, ValueError::Base(_)), "{text}: {error}");
        assert!(error.to_string().contains(text));
    }
    assert_eq!(
        SpecPath::try_from("/a/..".to_owned()),
        Err(ValueError::Parent(Quoted("/a/..".into())))
    );
    assert_eq!(SpecPath::try_from(String::new()), Err(ValueError::EmptyPath));
}

#[test]
fn control_characters_of_a_value_are_escaped_in_the_message() {
    let error = parse(b"{\"denyRead\":[\"\\u001b[31m\"]}").unwrap_err().to_string();
    assert!(error.contains("`\\u{1b}[31m`") && !error.contains('\u{1b}'), "{error}");
}

#[test]
fn the_place_comes_first_and_the_repair_last() {
    for (text, sentence) in [
        ("", "it is empty: write `{}`, which leaves every key at its default"),
        (" \n\t", "it is empty: write `{}`, which leaves every key at its default"),
        ("// x\n{}", "line 1 column 1: a specification has no comments: take it out"),
        ("{\n  /* x */ }", "line 2 column 3: a specification has no comments: take it out"),
        (
            "{\"network\":true // x\n}",
            "line 1 column 17: a specification has no comments: take it out",
        ),
        ("{} # x", "line 1 column 4: a specification has no comments: take it out"),
        ("{\"network\":true,}", "line 1 column 17: a comma before the end: take it out"),
        ("{\"denyEnv\":[\"A\",]}", "line 1 column 17: a comma before the end: take it out"),
        ("{} {}", "line 1 column 4: something is trailing after the object: take it out"),
        ("{network:true}", "line 1 column 2: a key is missing: write it in double quotes"),
        ("{\"network\":}", "line 1 column 12: a value is missing: write one as JSON does"),
        (
            "{\"network\":",
            "line 1 column 11: the text ends before the object does: is the file cut off",
        ),
        ("{\"network\" true}", "line 1 column 12: expected `:`: write it as JSON does"),
        (
            "{\"denyRead\":[\"../x\"]}",
            "line 1 column 20: `denyRead`: `../x` starts at no known place: begin with `/`, `~/`, `./` \
             or one of `$HOME/`, `$XDG_RUNTIME_DIR/`, `$XDG_CONFIG_HOME/`, `$XDG_CACHE_HOME/`, \
             `$XDG_STATE_HOME/`, `$XDG_DATA_HOME/`",
        ),
    ] {
        assert_eq!(parse(text.as_bytes()).unwrap_err().to_string(), sentence, "{text}");
    }
}

#[test]
fn the_kernel_s_trees_are_in_no_list() {
    for text in ["/proc", "/proc/1", "/dev/null"] {
        assert!(SpecPath::try_from(text.to_owned()).unwrap().check_denied().is_err(), "{text}");
    }
    for text in ["/", "/proc/sys", "/sys", "/dev/kvm", "/run", "/home"] {
        assert!(SpecPath::try_from(text.to_owned()).unwrap().check_writable().is_err(), "{text}");
    }
    for text in ["/processes", "/run/x", "/home/x", "~/"] {
        assert!(SpecPath::try_from(text.to_owned()).unwrap().check_writable().is_ok(), "{text}");
    }
}

#[test]
fn a_pattern_matches_names_or_prefixes() {
    let pattern = |text: &str| EnvPattern::try_from(text.to_owned()).unwrap();
    assert!(pattern("AWS_*").matches(b"AWS_"));
    assert!(pattern("AWS_*").matches(b"AWS_KEY\xff"));
    assert!(!pattern("AWS_*").matches(b"AWS"));
    assert!(pattern("TOKEN").matches(b"TOKEN"));
    assert!(!pattern("TOKEN").matches(b"TOKENS") && !pattern("TOKEN").matches(b"token"));
    for text in ["", "*", "A*B", "**", "A=B", "A\0"] {
        assert!(EnvPattern::try_from(text.to_owned()).is_err(), "{text:?}");
    }
}

#[test]
fn the_nearest_key_is_named() {
    for (key, known) in [
        ("writeablePaths", Some("writablePaths")),
        ("DENYREAD", Some("denyRead")),
        ("denyreads", Some("denyRead")),
        ("nestedUserNs", Some("nestedUserns")),
        ("zzzzzzzzzzzzzzzzz", None),
    ] {
        let text = unknown_key(key);
        match known {
            Some(known) => assert!(text.contains(&format!("did you mean `{known}`?")), "{text}"),
            None => assert!(text.contains("the keys are"), "{text}"),
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_give_a_verdict_and_a_sentence(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Err(error) = parse(&bytes) {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn any_name_below_a_base_is_kept_byte_for_byte(name in "[^/\0]{1,40}") {
        prop_assume!(name != "." && name != "..");
        let text = serde_json::json!({ "denyRead": [format!("~/{name}")] }).to_string();
        let spec = parse(text.as_bytes()).unwrap();
        prop_assert_eq!(&spec.deny_read[0].rest, &name);
    }
}

/// The sentence for which a text is refused, without the place.
fn refusal(text: &str) -> String {
    let error = parse(text.as_bytes()).unwrap_err().to_string();
    error.split_once(": ").unwrap().1.to_owned()
}

#[test]
fn what_one_key_sets_another_may_not_remove() {
    for (text, sentence) in [
        (
            r#"{"env":{"A_B":"x"},"denyEnv":["A_*"]}"#,
            "`env` sets `A_B` and `denyEnv` removes it: take it out of one of them",
        ),
        (
            r#"{"denyEnv":["A"],"envFiles":{"A":"/a"}}"#,
            "`envFiles` sets `A` and `denyEnv` removes it: take it out of one of them",
        ),
        (
            r#"{"env":{"A":"x"},"envFiles":{"A":"/a"}}"#,
            "`env` and `envFiles` both set `A`: take it out of one of them",
        ),
        (
            r#"{"env":{"A":"x"},"secretEnv":["A"]}"#,
            "`env` sets `A` for every program inside and `secretEnv` keeps it from them: take it out \
             of one of them",
        ),
        (
            r#"{"envFiles":{"A":"/a"},"secrets":{"A":"/a"}}"#,
            "`envFiles` sets `A` for every program inside and `secrets` keeps it from them: take it \
             out of one of them",
        ),
        (
            r#"{"env":{"KLI_SECRETS_FD":"9"}}"#,
            "`env`: `KLI_SECRETS_FD` is the launcher's own: take it out",
        ),
        (
            r#"{"secretEnv":["KLI_SECRETS_FD"]}"#,
            "`secretEnv`: `KLI_SECRETS_FD` is the launcher's own: take it out",
        ),
        (
            r#"{"secretEnv":["A-B"]}"#,
            "`secretEnv`: `A-B` is no name of a key: it may only have letters, digits and `_`, and \
             no digit first",
        ),
    ] {
        assert_eq!(refusal(text), sentence, "{text}");
    }
    // What is no contradiction: a file for a key whose variable is moved or removed, too.
    for text in [
        r#"{"secrets":{"A":"/a"},"secretEnv":["A"]}"#,
        r#"{"secrets":{"A":"/a"},"denyEnv":["A"]}"#,
        r#"{"secretEnv":["A"],"denyEnv":["A"]}"#,
        r#"{"passEnv":["A*"],"denyEnv":["AB"],"env":{"AC":"x"}}"#,
    ] {
        assert!(parse(text.as_bytes()).is_ok(), "{text}");
    }
}

#[test]
fn values_outside_a_key_s_range_are_refused_with_the_key() {
    for (text, sentence) in [
        (
            r#"{"git":"readonly"}"#,
            "`git`: `readonly` is not known, write one of `commit`, `read-only`, `unprotected`",
        ),
        (r#"{"tmp":"disk"}"#, "`tmp`: `disk` is not known, write one of `private`, `host-subdir`"),
        (r#"{"localPorts":[0]}"#, "`localPorts`: 0 is no TCP port: write a number from 1 to 65535"),
        (
            r#"{"localPorts":[65536]}"#,
            "`localPorts`: 65536 is no TCP port: write a number from 1 to 65535",
        ),
        (
            r#"{"limits":{"task":1}}"#,
            "`limits`: unknown key `task`, the keys are `tasks`, `memory`, `fileSize`",
        ),
        (
            r#"{"writablePaths":["@cargoo"]}"#,
            "`writablePaths`: `@cargoo` names no caches: `@cargo`, `@go`, `@nix`, `@npm`, `@pip` and `@uv` are known; a directory of that name is `./@…`",
        ),
        (r#"{"protect":["../x"]}"#, "`protect`: `./../x` contains `..`: write the path without it"),
        (
            r#"{"protect":["/etc/x"]}"#,
            "`protect`: `/etc/x` is not in the workspace: write a name in it, such as `.envrc` or `sub/file`",
        ),
        (
            r#"{"env":{"A=B":"x"}}"#,
            "`env`: `A=B` is no variable name: it may not be empty or contain `=`, `*` or NUL",
        ),
        (r#"{"env":{"A":"x","A":"y"}}"#, "`env`: the variable `A` is there twice"),
        (
            r#"{"secretEnv":["A*"]}"#,
            "`secretEnv`: `A*` is no variable name: it may not be empty or contain `=`, `*` or NUL",
        ),
        (
            r#"{"passEnv":["*"]}"#,
            "`passEnv`: `*` would name every variable: name a prefix such as `AWS_*`, or take the key out",
        ),
    ] {
        assert_eq!(refusal(text), sentence, "{text}");
    }
}

#[test]
fn caches_stand_for_their_directories_and_for_no_program() {
    let names = ["@cargo", "@go", "@nix", "@npm", "@pip", "@uv"];
    let text = serde_json::json!({ "writablePaths": names }).to_string();
    let spec = parse(text.as_bytes()).unwrap();
    let shown = |path: &SpecPath| format!("{} {:?} {}", path.text, path.base, path.rest);
    let found: Vec<String> = spec.writable_paths.iter().map(shown).collect();
    assert_eq!(
        found,
        [
            "@cargo Home .cargo/registry",
            "@cargo Home .cargo/git",
            "@go Xdg(Cache) go-build",
            "@go Home go/pkg",
            "@nix Xdg(Cache) nix",
            "@npm Home .npm/_cacache",
            "@npm Home .npm/_logs",
            "@pip Xdg(Cache) pip",
            "@uv Xdg(Cache) uv",
        ]
    );
    // Names on PATH and files that steer the next build.
    for held in ["/bin", ".cargo/config", ".cargo/credentials", ".npmrc", "pip.conf", "go/bin"] {
        assert!(!found.iter().any(|path| path.contains(held)), "{held}");
    }
}

#[test]
fn a_pattern_that_cannot_be_read_is_refused_where_it_is_written() {
    for (pattern, words) in [
        ("~/[a", "a `[` has no `]`: write `\\[` for the character itself"),
        (
            "~/a**",
            "`**` stands for whole directories: let it be alone between slashes, or write one `*`",
        ),
        ("/proc/*", "the jail has a `/proc` and a `/dev` of its own, take the entry out"),
    ] {
        let text = serde_json::json!({ "denyReadGlobs": [pattern] }).to_string();
        let sentence = refusal(&text);
        assert!(sentence.starts_with(&format!("`denyReadGlobs`: `{pattern}`")), "{sentence}");
        assert!(sentence.ends_with(words), "{sentence}");
    }
    let spec = parse(br#"{"denyReadGlobs":["~/**/*.pem","./[!a]\\["]}"#).unwrap();
    assert_eq!(spec.deny_read_globs.len(), 2);
}
