use std::ffi::OsStr;

use proptest::prelude::*;

use super::*;

fn fits_one(pattern: &str, name: &[u8]) -> bool {
    Pattern::new(pattern).unwrap().matches(0, OsStr::from_bytes(name))
}

#[test]
fn a_form_means_whole_names() {
    for (pattern, yes, no) in [
        ("*.pem", &["a.pem", ".pem", "x.y.pem"][..], &["pem", "a.pem2", "a.PEM"][..]),
        ("id_*", &["id_rsa", "id_"], &["xid_", "id"]),
        ("?", &["a", "ü", "."], &["", "ab"]),
        ("[a-c]x", &["ax", "cx"], &["dx", "x", "-x"]),
        ("[!a-c]", &["d", "ü"], &["a", ""]),
        ("[^a]", &["b"], &["a"]),
        ("[]]", &["]"], &["["]),
        ("[a-]", &["a", "-"], &["b"]),
        ("[\\]-a]", &["]", "a", "^"], &["b"]),
        ("\\*", &["*"], &["a", "\\*"]),
        ("a*b*c", &["abc", "aXbYc", "abbcc", "abcbc"], &["ab", "acb", "abcd"]),
        ("*", &["", "a", ".env"], &[]),
        ("*a", &["a", "aa", "ba"], &["ab"]),
        ("[[]", &["["], &["]"]),
    ] {
        for name in yes {
            assert!(fits_one(pattern, name.as_bytes()), "{pattern} {name}");
        }
        for name in no {
            assert!(!fits_one(pattern, name.as_bytes()), "{pattern} {name}");
        }
    }
    assert!(fits_one("a?b", b"a\xffb"), "a byte that is no character counts as one");
    assert!(!fits_one("?", b"\xff\xfe"));
}

#[test]
fn what_could_mean_something_else_is_refused() {
    for (pattern, error) in [
        ("[a", PatternError::Open),
        ("[", PatternError::Open),
        ("[a\\", PatternError::Open),
        ("[z-a]", PatternError::Range),
        ("[[:alpha:]]", PatternError::Named),
        ("*.{pem,key}", PatternError::Braces),
        ("a\\", PatternError::Escape),
        ("a**", PatternError::Stars),
        ("x/***", PatternError::Stars),
    ] {
        assert_eq!(Pattern::new(pattern), Err(error), "{pattern}");
    }
}

#[test]
fn two_stars_are_any_number_of_directories() {
    let pattern = Pattern::new("a/**/**/b").unwrap();
    assert_eq!((pattern.len(), pattern.literals(), pattern.is_empty()), (3, 1, false));
    let mut states = Vec::new();
    pattern.open(1, &mut states);
    assert_eq!(states, [1, 2]);
    let below = Pattern::new("a/**").unwrap();
    assert_eq!(below.part(2), Some(&Part::Form(vec![Token::Many])));
    assert_eq!(Pattern::new("a\\*b").unwrap().part(0), Some(&Part::Literal("a*b".into())));
    assert!(Pattern::new("").unwrap().is_empty());
}

/// The same by trying everything.
fn slow(tokens: &[Token], name: &[u32]) -> bool {
    match (tokens.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((Token::Many, rest)), _) => (0..=name.len()).any(|n| slow(rest, &name[n..])),
        (Some((token, rest)), Some((first, after))) => {
            fits(std::slice::from_ref(token), &[*first]) && slow(rest, after)
        }
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,20}", name in "\\PC{0,20}") {
        if let Ok(pattern) = Pattern::new(&text) {
            for state in 0..pattern.len() {
                pattern.matches(state, OsStr::new(&name));
            }
        }
    }

    #[test]
    fn the_quick_way_agrees_with_the_slow_one(
        text in "[ab*?]{1,8}", name in "[ab]{0,10}",
    ) {
        let text = text.replace("**", "*").replace("**", "*").replace("**", "*");
        let Ok(Part::Form(tokens)) = part(&text) else { return Ok(()) };
        let name = characters(name.as_bytes());
        prop_assert_eq!(fits(&tokens, &name), slow(&tokens, &name));
    }

    #[test]
    fn an_escaped_name_means_itself(name in "[^/\0]{1,12}") {
        let escaped: String = name.chars().flat_map(|c| ['\\', c]).collect();
        let pattern = Pattern::new(&escaped).unwrap();
        prop_assert!(pattern.matches(0, OsStr::new(&name)));
        let longer = format!("{name}x");
        prop_assert!(!pattern.matches(0, OsStr::new(&longer)));
    }
}
