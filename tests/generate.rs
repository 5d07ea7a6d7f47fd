//! What is made from the program: completions, manual pages, schemas and the reference, and that the
//! copies in the repository are the same.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::harness::Env;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file below a directory.
fn tree(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut open = vec![directory.to_owned()];
    let mut found = BTreeMap::new();
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let bytes = fs::read(&path).unwrap();
                found.insert(path.strip_prefix(directory).unwrap().to_owned(), bytes);
            }
        }
    }
    found
}

fn generated(env: &Env) -> BTreeMap<PathBuf, Vec<u8>> {
    env.kli(&["generate", "share"]).exits(0);
    tree(&env.work().join("share"))
}

/// Compares a part of a document or all of it with what it should be, or writes it anew.
fn drift(path: &Path, wanted: &str) {
    if fs::read_to_string(path).unwrap_or_default() == wanted {
        return;
    }
    if std::env::var_os("KLI_UPDATE_DOCS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, wanted).unwrap();
        return;
    }
    panic!("{} is stale; run the tests once with KLI_UPDATE_DOCS=1", path.display());
}

#[test]
fn the_copies_in_the_repository_are_current() {
    let env = Env::new();
    let files = generated(&env);
    let mut compared = 0;
    for (path, bytes) in &files {
        let text = std::str::from_utf8(bytes).unwrap();
        if let Ok(name) = path.strip_prefix("kli/schema") {
            drift(&root().join("schema").join(name), text);
            compared += 1;
        } else if let Ok(name) = path.strip_prefix("doc/kli") {
            drift(&root().join("docs").join(name), text);
            compared += 1;
        }
    }
    assert!(compared >= 4, "three schemas and a page");
    for name in tree(&root().join("schema")).keys() {
        assert!(
            files.contains_key(&Path::new("kli/schema").join(name)),
            "{} is left over",
            name.display()
        );
    }
}

/// The table of a document between two marks.
fn table(path: &Path, name: &str, rows: &str) {
    let text = fs::read_to_string(path).unwrap();
    let (begin, end) = (format!("<!-- {name}: begin -->\n"), format!("<!-- {name}: end -->"));
    let (head, rest) = text.split_once(&begin).unwrap();
    let (_, tail) = rest.split_once(&end).unwrap();
    drift(path, &format!("{head}{begin}\n{rows}\n{end}{tail}"));
}

/// The name of a type in a schema, for people.
fn kind(schema: &Value) -> String {
    let names =
        |value: &Value| value["$ref"].as_str().map(|r| r.rsplit('/').next().unwrap().to_owned());
    match (&schema["type"], names(schema)) {
        (Value::String(name), _) if name == "array" => {
            format!("array of {}", kind(&schema["items"]))
        }
        (Value::String(name), _) => name.clone(),
        (Value::Array(all), _) => {
            all.iter().map(|v| v.as_str().unwrap()).collect::<Vec<_>>().join(" or ")
        }
        (_, Some(name)) if name == "Arguments" => "object or string".to_owned(),
        (_, Some(name)) if ["Outcome", "FaultKind"].contains(&name.as_str()) => "string".to_owned(),
        _ => "object".to_owned(),
    }
}

#[test]
fn the_tables_of_the_headless_page_are_made_from_the_schema() {
    let page = root().join("docs/headless.md");
    let env = Env::new();
    let files = generated(&env);
    let read = |name: &str| -> Value {
        serde_json::from_slice(&files[&PathBuf::from(format!("kli/schema/{name}.schema.json"))])
            .unwrap()
    };
    let row = |name: &str, field: &Value, required: bool| {
        let optional = if required { "" } else { ", may be absent" };
        let words = field["description"].as_str().unwrap().replace('\n', " ");
        format!("| `{name}` | {}{optional} | {words} |\n", kind(field))
    };
    let order = |object: &Value| -> Vec<String> {
        // What is required comes in the order of the lines; the rest behind it.
        let mut names: Vec<String> = object["required"]
            .as_array()
            .unwrap()
            .iter()
            .map(|name| name.as_str().unwrap().to_owned())
            .collect();
        for name in object["properties"].as_object().unwrap().keys() {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        names.retain(|name| name != "type");
        names
    };
    let events = read("events");
    let mut rows = String::from("| `type` | what happened | fields |\n| --- | --- | --- |\n");
    for line in events["oneOf"].as_array().unwrap() {
        let name = line["properties"]["type"]["const"].as_str().unwrap();
        let fields: Vec<String> = match line["$ref"].as_str() {
            Some(_) => vec!["those of the result object, below".to_owned()],
            None => order(line)
                .iter()
                .map(|field| {
                    format!("`{field}`: {}", {
                        let words = line["properties"][field]["description"].as_str().unwrap();
                        words.trim_end_matches('.').replace('\n', " ")
                    })
                })
                .collect(),
        };
        let words = line["description"].as_str().unwrap().replace('\n', " ");
        let row = format!("| `{name}` | {words} | {} |\n", fields.join("<br>"));
        rows.push_str(&row);
    }
    table(&page, "events", &rows);
    let result = &events["$defs"]["RunResult"];
    let mut rows = String::from("| key | value | meaning |\n| --- | --- | --- |\n");
    rows.push_str("| `type` | string | `result` |\n");
    for name in order(result) {
        let required = result["required"].as_array().unwrap().contains(&name.clone().into());
        let mut field = result["properties"][&name].clone();
        if field["anyOf"].is_array() {
            field["type"] = serde_json::json!(["object", "null"]);
        }
        rows.push_str(&row(&name, &field, required));
    }
    table(&page, "result", &rows);
    // The codes are those of the generated reference.
    let reference = fs::read_to_string(root().join("docs/reference/cli.md")).unwrap();
    let codes = reference.split_once("## Exit codes\n\n").unwrap().1.split_once("\n\n").unwrap().0;
    table(&page, "codes", &format!("{codes}\n"));
}

#[test]
fn the_same_program_writes_the_same_files_and_touches_no_others() {
    let env = Env::new();
    let first = generated(&env);
    let share = env.work().join("share");
    fs::write(share.join("man/man1/other.1"), "not ours").unwrap();
    fs::write(share.join("man/man1/kli.1"), "old").unwrap();
    let mut second = generated(&env);
    assert_eq!(second.remove(Path::new("man/man1/other.1")).unwrap(), b"not ours");
    assert_eq!(second, first);
    let mode = fs::metadata(share.join("man/man1/kli.1")).unwrap().permissions().mode();
    assert_eq!(mode & 0o444, 0o444, "packages are read by everybody");
    let text = |path: &str| String::from_utf8(first[Path::new(path)].clone()).unwrap();
    for path in first.keys() {
        assert!(!text(path.to_str().unwrap()).contains(&*env.home().to_string_lossy()));
    }
    // Where a directory cannot be made, the file is named.
    fs::write(env.work().join("file"), "").unwrap();
    env.kli(&["generate", "file"]).exits(2).says("file");
}

#[test]
fn every_command_has_a_page_that_is_well_formed() {
    let files = generated(&Env::new());
    let pages: Vec<(&PathBuf, String)> = files
        .iter()
        .filter(|(path, _)| path.starts_with("man"))
        .map(|(path, bytes)| (path, String::from_utf8(bytes.clone()).unwrap()))
        .collect();
    let names: Vec<&str> =
        pages.iter().map(|(path, _)| path.file_stem().unwrap().to_str().unwrap()).collect();
    for name in ["kli", "kli-admin", "kli-sandbox", "kli-config", "kli-config-show", "kli-doctor"] {
        assert!(names.contains(&name), "{name}");
    }
    assert!(!names.contains(&"kli-generate"), "it is hidden");
    for (path, page) in &pages {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let head = page.lines().find(|line| line.starts_with(".TH")).unwrap();
        assert!(head.starts_with(&format!(".TH {name} 1 \"\" ")), "{head}");
        for section in [".SH NAME", ".SH SYNOPSIS"] {
            assert!(page.contains(section), "{name}: {section}");
        }
        let plain = page.replace("\\-", "-").replace("\\fR", "").replace("\\fB", "");
        // A page that is referred to is there.
        for (at, _) in plain.match_indices("(1)") {
            let word: String = plain[..at]
                .chars()
                .rev()
                .take_while(|c| c.is_ascii_alphabetic() || *c == '-')
                .collect::<Vec<_>>()
                .into_iter()
                .rev()
                .collect();
            assert!(
                word.is_empty() || word == "bwrap" || names.contains(&word.as_str()),
                "{name}: {word}"
            );
        }
        // Every line that begins with a dot is a request that is known.
        for line in page.lines().filter(|line| line.starts_with('.')) {
            let request = line[1..].split(' ').next().unwrap();
            let known =
                ["ie", "el", "TH", "SH", "TP", "RS", "RE", "IP", "br", "nf", "fi", "PP", "SS"];
            assert!(known.contains(&request), "{name}: {line}");
        }
    }
    let kli = &pages.iter().find(|(path, _)| path.ends_with("kli.1")).unwrap().1;
    for part in [".SH \"EXIT STATUS\"", ".SH ENVIRONMENT", ".SH FILES", ".SH \"SEE ALSO\"", "143"] {
        assert!(kli.contains(part), "{part}");
    }
}

#[test]
fn bash_completes_commands_flags_and_values() {
    let env = Env::new();
    // What is broken does not matter, and neither does where it is asked.
    env.settings("{ not json");
    let mut command = env.command(&["completion", "bash"]);
    command.current_dir("/");
    let script = command.output().unwrap();
    assert!(script.status.success());
    let file = env.work().join("kli.bash");
    fs::write(&file, &script.stdout).unwrap();
    let bash = |text: &str| {
        let output = Command::new("bash")
            .args(["--norc", "--noprofile", "-c", text, "bash"])
            .arg(&file)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .output()
            .unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{text}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(bash("bash -n \"$1\""), "");
    // As the shell calls it: the function that `complete` has noted, with the words so far.
    let complete = |words: &[&str]| {
        let text = format!(
            "source \"$1\"; read -r _ _ _ _ _ _ _ _ function _ <<< \"$(complete -p kli)\"; \
             COMP_WORDS=({}); COMP_CWORD={}; \"$function\" kli '{}' '{}'; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" "),
            words.len() - 1,
            words.last().unwrap(),
            words[words.len() - 2],
        );
        bash(&text).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(complete(&["kli", "conf"]), ["config"]);
    assert_eq!(complete(&["kli", "config", "sch"]), ["schema"]);
    assert_eq!(complete(&["kli", "--print-a"]), ["--print-authority"]);
    assert_eq!(complete(&["kli", "--output-format", ""]), ["text", "json", "stream-json"]);
    assert_eq!(complete(&["kli", "gener"]), [""], "what is hidden is not offered");
}

#[test]
fn each_shell_gets_its_own_completions() {
    let env = Env::new();
    for (shell, parts) in [
        ("bash", &["complete -F _kli", "--output-format"][..]),
        ("zsh", &["#compdef kli", "--output-format=", "compdef _kli kli"]),
        ("fish", &["complete -c kli", "-l output-format"]),
    ] {
        let ran = env.kli(&["completion", shell]);
        ran.exits(0);
        for part in parts {
            assert!(ran.out.contains(part) || part.starts_with("complete -F"), "{shell}: {part}");
        }
        assert!(ran.out.contains("print-authority") && !ran.out.contains("generate"), "{shell}");
    }
    env.kli(&["completion", "tcsh"]).exits(2).says("bash, fish, zsh");
    env.kli(&["completion"]).exits(2).says("SHELL");
}

#[test]
fn the_way_to_the_directory_may_lead_up() {
    let env = Env::new();
    fs::create_dir(env.work().join("sub")).unwrap();
    let mut command = env.command(&["generate", "../share"]);
    assert!(command.current_dir(env.work().join("sub")).status().unwrap().success());
    assert_eq!(tree(&env.work().join("share")), generated(&Env::new()));
}
