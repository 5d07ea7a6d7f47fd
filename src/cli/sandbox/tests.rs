//! No key of a specification is passed over in silence by any kind.

use clap::ValueEnum as _;

use super::*;

/// A value for each key that is not its default.
const OTHER: [(&str, &str); 23] = [
    ("network", "false"),
    ("nestedUserns", "true"),
    ("writablePaths", r#"["~/x"]"#),
    ("readOnlyPaths", r#"["./x"]"#),
    ("denyRead", r#"["/etc/hostname"]"#),
    ("denyReadGlobs", r#"["/etc/*.pem"]"#),
    ("denyEnv", r#"["LANG"]"#),
    ("passEnv", r#"["LANG"]"#),
    ("env", r#"{"A":"b"}"#),
    ("git", r#""unprotected""#),
    ("protect", "[]"),
    ("allowSockets", r#"["/run/x"]"#),
    ("localPorts", "[1]"),
    ("envFiles", r#"{"A":"~/a"}"#),
    ("allowNixDaemon", "true"),
    ("allowHomeWorkspace", "true"),
    ("allowAbstractSockets", "true"),
    ("secrets", r#"{"A":"~/a"}"#),
    ("secretEnv", r#"["A"]"#),
    ("allowUserNamespaces", "true"),
    ("stateDir", "false"),
    ("tmp", r#""host-subdir""#),
    ("limits", r#"{"tasks":9}"#),
];

#[test]
fn a_key_changes_every_recipe_or_is_said_not_to_be_kept() {
    assert_eq!(OTHER.len() + 1, spec::KEYS.len(), "`version` is the one without another value");
    for kind in RecipeKind::value_variants() {
        let text = |spec: &Spec| make(*kind, spec).unwrap().files[0].1.clone();
        let plain = text(&Spec::default());
        for (key, value) in OTHER {
            assert!(spec::KEYS.contains(&key), "{key}");
            let spec = spec::parse(format!(r#"{{"{key}":{value}}}"#).as_bytes()).unwrap();
            assert_ne!(text(&spec), plain, "{}: `{key}` leaves no trace", kind.name());
        }
    }
}

#[test]
fn no_place_of_a_template_is_left_and_none_is_read_in_a_value() {
    for kind in RecipeKind::value_variants() {
        let spec =
            spec::parse(br#"{"env":{"A":"@RUN@ @HIDDEN@"},"denyRead":["./@NOTES@"]}"#).unwrap();
        let text = make(*kind, &spec).unwrap().files[0].1.clone();
        let places: Vec<&str> = text
            .split('@')
            .filter(|part| {
                !part.is_empty() && part.bytes().all(|b| b.is_ascii_uppercase() || b == b'_')
            })
            .collect();
        assert!(
            places.iter().all(|place| ["RUN", "HIDDEN", "NOTES"].contains(place)),
            "{places:?}"
        );
    }
}
