use std::fs;
use std::os::unix::fs::symlink;

use super::*;

fn read_at(path: &Path) -> Result<Vec<u8>, String> {
    read(&fs::canonicalize(path.parent().unwrap()).unwrap().join(path.file_name().unwrap()))
}

#[test]
fn one_line_end_is_taken_off_and_nothing_else() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file");
    for (text, value) in [
        ("x", "x"),
        ("x\n", "x"),
        ("x\r\n", "x"),
        ("x\n\n", "x\n"),
        (" x \n", " x "),
        ("", ""),
        ("\n", ""),
        ("a\nb\n", "a\nb"),
    ] {
        fs::write(&file, text).unwrap();
        assert_eq!(read_at(&file).unwrap(), value.as_bytes(), "{text:?}");
    }
    fs::write(&file, b"\xff\xfe\n").unwrap();
    assert_eq!(read_at(&file).unwrap(), b"\xff\xfe", "a variable is bytes");
    fs::write(&file, "x".repeat(LIMIT)).unwrap();
    assert_eq!(read_at(&file).unwrap().len(), LIMIT);
    fs::write(&file, "x".repeat(LIMIT + 1)).unwrap();
    assert!(read_at(&file).unwrap_err().contains("larger than 65536 bytes"));
    fs::write(&file, "a\0b").unwrap();
    assert!(read_at(&file).unwrap_err().contains("NUL"));
}

#[test]
fn a_link_that_came_since_the_plan_is_not_followed() {
    let place = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(place.path()).unwrap();
    fs::create_dir(root.join("real")).unwrap();
    fs::write(root.join("real/file"), "SECRET").unwrap();
    symlink("real", root.join("link")).unwrap();
    symlink("file", root.join("real/other")).unwrap();
    for path in ["link/file", "real/other"] {
        let error = read(&root.join(path)).unwrap_err();
        assert!(error.contains("has changed since"), "{path}: {error}");
    }
    assert_eq!(read(&root.join("real/file")).unwrap(), b"SECRET", "control");
}

#[test]
fn the_specification_wins_over_the_caller_s_pipe_and_that_over_its_environment() {
    let place = tempfile::tempdir().unwrap();
    let file = fs::canonicalize(place.path()).unwrap().join("key");
    fs::write(&file, "from-file\n").unwrap();
    let handed = Handed {
        env_files: Vec::new(),
        secrets: vec![("A".into(), file.clone())],
        secret_env: vec!["A".into(), "B".into(), "C".into()],
    };
    let environment: Vec<(OsString, OsString)> =
        [("A", "env"), ("B", "env"), ("C", "env"), ("D", "env")]
            .map(|(name, value)| (name.into(), value.into()))
            .to_vec();
    let caller = Keys([("A".into(), "pipe".into()), ("B".into(), "pipe".into())].into());
    let found = keys(&handed, &environment, caller).unwrap();
    let pairs: Vec<(&str, &str)> =
        found.0.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(pairs, [("A", "from-file"), ("B", "pipe"), ("C", "env")]);
    assert!(!format!("{found:?}").contains("from-file"), "{found:?}");

    for (text, part) in [("\n", "is empty"), (" \n", "is empty")] {
        fs::write(&file, text).unwrap();
        let error = keys(&handed, &[], Keys::default()).unwrap_err().to_string();
        assert!(error.contains(part) && error.starts_with("`secrets`: `A`: `"), "{error}");
    }
    fs::write(&file, b"sk-\xff").unwrap();
    let error = keys(&handed, &[], Keys::default()).unwrap_err().to_string();
    assert!(error.contains("is not UTF-8") && !error.contains("sk-"), "{error}");
}

#[test]
fn a_pipe_carries_all_of_it_and_its_other_end_is_closed() {
    assert!(Keys::default().pipe().unwrap().is_none());
    let value = "v".repeat(60_000);
    let sent = Keys([("A".into(), value.clone())].into());
    let mut text = String::new();
    File::from(sent.pipe().unwrap().unwrap()).read_to_string(&mut text).unwrap();
    let back: BTreeMap<String, String> = serde_json::from_str(&text).unwrap();
    assert_eq!(back["A"], value);
    let large = Keys([("A".into(), "v".repeat(LIMIT))].into());
    assert!(matches!(large.pipe(), Err(SecretsError::TooLarge)));
}
