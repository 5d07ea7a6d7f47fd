//! The house rules that no compiler checks: layers, forgotten files, the launcher's crates, drift
//! of generated documents.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files(directory: &str, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![root().join(directory)];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|e| e == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The rooms of each layer, lowest first. A room may import its own room and lower layers.
const LAYERS: &[&[&str]] = &[
    &["message", "authority", "display", "config"],
    &["host"],
    &["model", "tool", "session"],
    &["agent"],
    &["tui", "cli::print"],
    &["cli"],
];

/// Imports that go beside the layers, each with its reason.
fn is_allowed(from: &str, to: &str) -> bool {
    match (from, to) {
        // The scheduler orders calls by the effect that a tool declares; both are pure.
        ("agent", _) => layer(to) <= layer("agent") && to != "config",
        // The printer sees the agent's operations and events, the vocabulary, and its own streams.
        ("cli::print", to) => ["agent", "message", "cli"].contains(&to),
        // The interface sees the same, and is handed everything else.
        ("tui", to) => ["agent", "message", "display"].contains(&to),
        // Settings hand lists of capabilities to authority, and write prices and levels of effort in
        // the vocabulary's words; all are pure.
        ("config", "authority" | "message" | "display") | ("display", "authority") => true,
        // Services do not know each other, nor the settings.
        ("model" | "tool" | "session", to) => layer(to) < layer(from) && to != "config",
        (from, to) => layer(to) < layer(from),
    }
}

fn layer(room: &str) -> usize {
    LAYERS
        .iter()
        .position(|rooms| rooms.contains(&room))
        .unwrap_or_else(|| panic!("`{room}` has no place in the layer table"))
}

fn room(path: &Path) -> String {
    let inner = path.strip_prefix(root().join("src")).unwrap();
    let inner = inner.with_extension("");
    let parts: Vec<&str> = inner.iter().map(|part| part.to_str().unwrap()).collect();
    match parts.as_slice() {
        ["cli", "print", ..] => "cli::print".to_owned(),
        [first, ..] => (*first).to_owned(),
        [] => unreachable!(),
    }
}

#[test]
fn imports_point_down() {
    let mut checked = 0;
    let mut wrong = Vec::new();
    for file in files("src", "rs") {
        let from = room(&file);
        if ["lib", "bin"].contains(&from.as_str()) {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let mut targets = BTreeSet::new();
        for (at, _) in text.match_indices("crate::") {
            let rest = &text[at + "crate::".len()..];
            if let Some(group) = rest.strip_prefix('{') {
                // `use crate::{a::…, b::{…}, c}`: the names at depth one.
                let mut depth = 0_i32;
                let mut name = String::new();
                for c in group.chars() {
                    match c {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => {
                            targets.insert(std::mem::take(&mut name));
                            continue;
                        }
                        _ => {}
                    }
                    name.push(c);
                }
                targets.insert(name);
            } else {
                targets.insert(
                    rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect(),
                );
            }
        }
        for target in targets {
            let to = target.trim().split("::").next().unwrap_or_default().trim().to_owned();
            if to.is_empty() || to == from {
                continue;
            }
            checked += 1;
            let fine =
                if from == "sandbox" { false } else { to == "sandbox" || is_allowed(&from, &to) };
            if !fine {
                wrong.push(format!("{} imports crate::{to}", file.display()));
            }
        }
    }
    assert!(checked > 20, "the reader of imports found only {checked}");
    assert!(wrong.is_empty(), "imports that point up or sideways:\n{}", wrong.join("\n"));
}

#[test]
fn every_test_file_is_listed() {
    let main = fs::read_to_string(root().join("tests/main.rs")).unwrap();
    for entry in fs::read_dir(root().join("tests")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if path.extension().is_some_and(|e| e == "rs") && name != "main" {
            assert!(
                main.contains(&format!("mod {name};")),
                "tests/{name}.rs is not in tests/main.rs"
            );
        }
    }
}

#[test]
fn the_launcher_builds_from_a_short_list_of_crates() {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--no-default-features", "-e", "normal"])
        .args(["--prefix", "none", "--format", "{p}"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let text = String::from_utf8(tree.stdout).unwrap();
    let crates: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.split(' ').next())
        .filter(|name| *name != "kli")
        .collect();
    assert!(crates.contains("serde_json"), "control: the list is read");
    assert!(crates.len() <= 25, "{} crates: {crates:?}", crates.len());
    for heavy in ["clap", "tokio", "reqwest", "hyper", "steel-core"] {
        assert!(!crates.contains(heavy), "{heavy} is in the launcher");
    }
}

/// Compares a part of a document, between its two marks, with what the code says.
fn part_is_current(file: &str, mark: &str, wanted: &str) {
    let path = root().join(file);
    let text = fs::read_to_string(&path).unwrap();
    let (begin, end) = (format!("<!-- {mark}: begin -->\n"), format!("<!-- {mark}: end -->"));
    let from = text.find(&begin).unwrap_or_else(|| panic!("{file} has no `{begin}`")) + begin.len();
    let to = text.find(&end).unwrap_or_else(|| panic!("{file} has no `{end}`"));
    if &text[from..to] != wanted {
        if std::env::var_os("KLI_UPDATE_DOCS").is_some() {
            fs::write(&path, format!("{}{wanted}{}", &text[..from], &text[to..])).unwrap();
            return;
        }
        panic!("{file} is stale; run the tests once with KLI_UPDATE_DOCS=1");
    }
}

/// Compares a generated file with what the code says.
fn file_is_current(file: &str, wanted: &str) {
    let path = root().join(file);
    if fs::read_to_string(&path).ok().as_deref() == Some(wanted) {
        return;
    }
    if std::env::var_os("KLI_UPDATE_DOCS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, wanted).unwrap();
        return;
    }
    panic!("{file} is stale; run the tests once with KLI_UPDATE_DOCS=1");
}

#[test]
fn generated_documents_are_current() {
    use kli::config::{keys, policy_schema, schema_text, settings_schema};

    part_is_current("docs/authority.md", "atoms", &kli::authority::atom_table());
    #[cfg(feature = "lisp")]
    part_is_current("docs/eval.md", "procedures", &kli::tool::eval::procedures::table());
    part_is_current("docs/settings.md", "keys", &keys::markdown(keys::SETTINGS));
    part_is_current("docs/settings.md", "policy", &keys::markdown(keys::POLICY));
    part_is_current("docs/terminal.md", "keys", &kli::display::key_table());
    part_is_current("docs/terminal.md", "roles", &kli::display::role_table());
    file_is_current("schema/settings.schema.json", &schema_text(&settings_schema()));
    file_is_current("schema/policy.schema.json", &schema_text(&policy_schema()));
}

#[test]
fn a_key_of_the_specification_has_one_name_in_rust_nix_and_the_documents() {
    let keys: BTreeSet<&str> =
        kli::sandbox::spec::KEYS.into_iter().filter(|key| *key != "version").collect();
    let nix = fs::read_to_string(root().join("nix/spec.nix")).unwrap();
    let list = nix.split_once("keys = [").unwrap().1.split_once(']').unwrap().0;
    assert_eq!(list.split('"').skip(1).step_by(2).collect::<BTreeSet<_>>(), keys);
    // That the options are these keys is an evaluation test of the Nix side.
    let text = fs::read_to_string(root().join("docs/confinement.md")).unwrap();
    for key in keys {
        assert!(text.contains(&format!("\n| `{key}` |")), "docs/confinement.md has no row `{key}`");
    }
}

/// What the table says how to get back is there: every option of its last column is a key.
#[test]
fn every_option_that_restores_the_plain_line_exists() {
    let text = fs::read_to_string(root().join("docs/confinement.md")).unwrap();
    let (_, part) = text.split_once("## Differences from the plain bubblewrap line").unwrap();
    let mut named = BTreeSet::new();
    let mut rows = 0;
    for row in part.lines().filter(|line| line.starts_with("| ")).skip(2) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        assert_eq!(cells.len(), 4, "{row}");
        rows += 1;
        let option = cells[3].trim();
        if option == "none" {
            continue;
        }
        let words: Vec<&str> = option.split('`').skip(1).step_by(2).collect();
        assert!(!words.is_empty(), "an option or `none`: {row}");
        // A value stands behind `=`.
        let mut rest = option;
        for word in words {
            let (before, after) = rest.split_once(&format!("`{word}`")).unwrap();
            if !before.trim_end().ends_with('=') {
                assert!(kli::sandbox::spec::KEYS.contains(&word), "no key `{word}`: {row}");
                named.insert(word);
            }
            rest = after;
        }
    }
    assert!(rows >= 20 && named.len() >= 10, "{rows} rows, {named:?}");
}

#[test]
fn the_options_of_nix_mean_what_the_launcher_means_by_default() {
    use kli::sandbox::spec::{Spec, parse};

    let nix = fs::read_to_string(root().join("nix/eval-tests.nix")).unwrap();
    let rendered = nix.split_once("''{").unwrap().1.split_once("}'';").unwrap().0;
    let mut spec = parse(format!("{{{rendered}}}").as_bytes()).unwrap();
    // What the Nix side adds of its own: the keys of the providers that kli knows.
    let keys: Vec<String> =
        std::mem::take(&mut spec.secret_env).into_iter().map(|it| it.0).collect();
    assert_eq!(keys, kli::config::names::SECRET);
    assert_eq!(spec, Spec::default());
}

#[test]
fn the_change_log_has_an_unreleased_part() {
    let text = fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
    assert!(text.contains("## Unreleased"));
}

#[test]
fn files_stay_readable_in_size() {
    for file in files("src", "rs") {
        let lines = fs::read_to_string(&file).unwrap().lines().count();
        assert!(lines <= 700, "{} has {lines} lines: split it", file.display());
    }
}

#[test]
fn a_stage_fails_with_the_first_of_its_commands() {
    use std::os::unix::fs::PermissionsExt;

    let directory = tempfile::tempdir().unwrap();
    let cargo = directory.path().join("cargo");
    let run = |body: &str| {
        fs::write(&cargo, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).unwrap();
        let path = std::env::var("PATH").unwrap();
        Command::new("bash")
            .arg(root().join("scripts/test"))
            .arg("clippy")
            .env("PATH", format!("{}:{path}", directory.path().display()))
            .output()
            .unwrap()
    };
    let fails = run(r#"case "$*" in *--all-targets*) exit 101 ;; esac"#);
    let said = String::from_utf8_lossy(&fails.stderr);
    assert_eq!(fails.status.code(), Some(1), "{said}");
    assert!(said.contains("== clippy FAILED") && !said.contains("all ok"), "{said}");
    let control = run("exit 0");
    let said = String::from_utf8_lossy(&control.stderr);
    assert!(control.status.success() && said.contains("== all ok: clippy"), "control: {said}");
}
