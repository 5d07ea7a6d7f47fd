//! The blocks of the README and of docs/: each is run, parsed or looked up. A block in a language
//! that nothing checks fails.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use crate::harness::Env;

struct Block {
    file: PathBuf,
    language: String,
    text: String,
}

fn blocks() -> Vec<Block> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = vec![root.join("README.md")];
    files.extend(fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path()));
    files.retain(|path| path.extension().is_some_and(|e| e == "md"));
    files.sort();
    let mut found = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let Some(language) = line.strip_prefix("```") else { continue };
            let text: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            found.push(Block {
                file: file.clone(),
                language: language.to_owned(),
                text: text.join("\n") + "\n",
            });
        }
    }
    found
}

fn of(language: &str) -> Vec<Block> {
    let found: Vec<Block> = blocks().into_iter().filter(|b| b.language == language).collect();
    assert!(!found.is_empty(), "control: there are blocks of `{language}`");
    found
}

#[test]
fn every_block_is_in_a_language_that_is_checked() {
    for block in blocks() {
        // nix: built and run by the stage `nix` of scripts/test; jsonl: tests/model.rs.
        let known = ["console", "sh", "json", "jsonc", "jsonl", "nix"];
        assert!(
            known.contains(&block.language.as_str()),
            "{}: a block in `{}`:\n{}",
            block.file.display(),
            block.language,
            block.text
        );
    }
}

/// Compares line by line; `…` stands for anything within a line.
fn matches(wanted: &str, got: &str) -> bool {
    let (wanted, got): (Vec<&str>, Vec<&str>) = (wanted.lines().collect(), got.lines().collect());
    wanted.len() == got.len()
        && wanted.iter().zip(&got).all(|(wanted, got)| {
            let mut rest = *got;
            let mut parts = wanted.split('…');
            let Some(after) = rest.strip_prefix(parts.next().unwrap_or_default()) else {
                return false;
            };
            rest = after;
            for part in parts {
                match (part.is_empty(), rest.find(part)) {
                    (true, _) => rest = "",
                    (false, Some(at)) => rest = &rest[at + part.len()..],
                    (false, None) => return false,
                }
            }
            rest.is_empty()
        })
}

#[test]
fn console_blocks_print_what_they_say() {
    let programs = Path::new(env!("CARGO_BIN_EXE_kli")).parent().unwrap().to_owned();
    for block in of("console") {
        let env = Env::new();
        let mut commands: Vec<(String, String)> = Vec::new();
        for line in block.text.lines() {
            match (line.strip_prefix("$ "), commands.last_mut()) {
                (Some(command), _) => commands.push((command.to_owned(), String::new())),
                (None, Some((_, output))) => {
                    output.push_str(line);
                    output.push('\n');
                }
                (None, None) => panic!("{}: output before a command", block.file.display()),
            }
        }
        // One shell for the block, as a person has one: a `cd` holds for the lines after it.
        let script: Vec<&str> = commands.iter().map(|(command, _)| command.as_str()).collect();
        let script = format!("exec 2>&1\n{}\n", script.join("\nprintf '\\036'\n"));
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", programs.display());
        let output = Command::new("bash")
            .args(["-c", &script])
            // A person tries this in the home, which the jail shows wherever it lies.
            .current_dir(env.home())
            .env_clear()
            .env("HOME", env.home())
            .env("PATH", path)
            .env("LANG", "C.UTF-8")
            .output()
            .unwrap();
        let got = String::from_utf8(output.stdout).unwrap();
        let got: Vec<&str> = got.split('\u{1e}').collect();
        assert_eq!(got.len(), commands.len(), "{}: {got:?}", block.file.display());
        for ((command, wanted), got) in commands.iter().zip(got) {
            assert!(
                matches(wanted, got),
                "{}: `{command}` printed\n{got}\nand not\n{wanted}",
                block.file.display()
            );
        }
    }
}

#[test]
fn the_comparison_can_fail() {
    assert!(matches("a … c\n", "a b c\n") && matches("x…\n", "xyz\n") && matches("", ""));
    assert!(
        !matches("a … c\n", "a b d\n") && !matches("a\n", "a\nb\n") && !matches("…b\n", "abc\n")
    );
}

#[test]
fn settings_blocks_are_valid() {
    let mut checked = 0;
    for block in blocks().iter().filter(|b| ["json", "jsonc"].contains(&b.language.as_str())) {
        let env = Env::new();
        fs::write(env.work().join("block.json"), &block.text).unwrap();
        let ran = env.kli(&["config", "check", "block.json"]);
        ran.exits(0);
        assert_eq!(ran.out, "settings: ok\n", "{}: {}", block.file.display(), ran.err);
        checked += 1;
    }
    assert!(checked >= 2);
}

#[test]
fn commands_of_sh_blocks_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for block in of("sh") {
        for line in block.text.lines().filter(|line| !line.trim().is_empty()) {
            let word = line.split(' ').next().unwrap();
            // nix: run by the stage `nix` of scripts/test.
            let ours = ["kli", "kli-sandbox", "cargo", "nix"].contains(&word);
            let script = fs::metadata(root.join(word))
                .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0);
            assert!(ours || script, "{}: `{line}`", block.file.display());
            // Flags of ours are real: the help knows each.
            if word == "kli" || word == "kli-sandbox" {
                let kli = line.split_once("-- kli ").map_or(line, |(_, rest)| rest);
                let help = Env::new().kli(&["--help"]).out;
                for flag in kli.split(' ').filter(|word| word.starts_with("--")) {
                    assert!(help.contains(flag) || flag == "--spec", "{flag} in `{line}`");
                }
            }
        }
    }
}
