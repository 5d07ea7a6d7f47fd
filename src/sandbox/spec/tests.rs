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
