//! One table: what the jail keeps from the process, tried through every tool. Inside, the kernel
//! refuses each attempt and its effect is absent; outside, the same attempts succeed. As an ordinary
//! user and as root.

use std::{
    fs,
    io::Write as _,
    os::unix::net::UnixListener,
    process::Output,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde_json::{Value, json};

use crate::jail::{World, for_both};

const SECRET: &str = "machine secret-of-the-host";
const TOKEN: &str = "token-of-the-host";
const GREETING: &str = "greeting-of-the-host";
const TOOLS: [&str; 6] = ["read", "search", "write", "edit", "bash", "eval"];

/// What a cell of the table holds.
enum Cell {
    /// Calls, each with one of the texts that its result must hold inside, and one that it must hold
    /// outside.
    Tried(Vec<(Value, &'static [&'static str], &'static str)>),
    /// Why the tool has no way to try it.
    Senseless(&'static str),
}

use Cell::{Senseless, Tried};

struct Row {
    what: &'static str,
    cells: [Cell; 6],
}

/// A name that is hidden is not there, or it is empty, as the kernel's mechanism has it.
const HIDDEN: &[&str] = &["no such file", "No such file", "(empty", "=> \"\"", "(no output)"];
const NOT_FOUND: &[&str] = &["no hits", "no such file", "not there"];
const READ_ONLY: &[&str] = &["read-only file system", "Read-only file system"];
/// An edit reads first.
const NOTHING_TO_EDIT: &[&str] =
    &["no such file", "read-only file system", "empty file", "not found", "no match"];
const NO_NAME: &[&str] = &["no such file", "read-only file system"];
const NOT_SET: &[&str] = &["=> #false", "(no output)"];
const NO_SOCKET: &[&str] =
    &["No such file", "Connection refused", "Permission denied", "not permitted"];

fn form(text: &str) -> Value {
    json!({ "form": text })
}

fn command(text: &str) -> Value {
    json!({ "command": text })
}

/// The attempts on a file that is hidden: first all that look, then all that write.
fn hidden(what: &'static str, file: &str) -> Row {
    let (directory, name) = file.rsplit_once('/').unwrap();
    Row {
        what,
        cells: [
            Tried(vec![(json!({ "path": file }), HIDDEN, SECRET)]),
            Tried(vec![(
                json!({ "pattern": "secret-of", "path": file }),
                NOT_FOUND,
                "secret-of-the-host",
            )]),
            Tried(vec![(json!({ "path": file, "content": "by-write\n" }), READ_ONLY, "replaced")]),
            Tried(vec![(
                json!({ "path": file, "edits": [{ "old": "by-write", "new": "by-edit" }] }),
                NOTHING_TO_EDIT,
                "1",
            )]),
            Tried(vec![
                (command(&format!("cat '{file}'")), HIDDEN, "by-edit"),
                (command(&format!("echo by-bash >'{file}'")), READ_ONLY, "exit status 0"),
            ]),
            Tried(vec![
                (form(&format!("(read-file \"{file}\")")), HIDDEN, "by-bash"),
                (form(&format!("(write-file \"{file}\" \"by-eval\")")), READ_ONLY, "replaced"),
                (
                    form(&format!(
                        "(if (member \"{name}\" (list-directory \"{directory}\")) (read-file \"{file}\") \"\")"
                    )),
                    HIDDEN,
                    "by-eval",
                ),
                (form(&format!("(cadr (run \"cat\" \"{file}\"))")), HIDDEN, "by-eval"),
                (form(&format!("(delete-file \"{file}\")")), NO_NAME, "(no value)"),
            ]),
        ],
    }
}

fn table(world: &World, socket: &str) -> Vec<Row> {
    let home = world.home.display();
    let outside = world.root.join("outside");
    let outside = outside.display();
    let connect = "perl -MSocket -e 'socket(S,AF_UNIX,SOCK_STREAM,0); \
         connect(S,sockaddr_un($ARGV[0])) or die \"$!\\n\"; print <S>'";
    let in_form = "(cadr (run \"perl\" \"-MSocket\" \"-e\" \"socket(S,AF_UNIX,SOCK_STREAM,0); \
         connect(S,sockaddr_un($ARGV[0])) or die \\\"$!\\\\n\\\"; print <S>\"";
    let no_variable = "a variable is no file, and kli's environment is data that it does not show";
    let no_socket = "it opens files; a socket cannot be opened, only connected to";
    vec![
        hidden("denied file", &format!("{home}/.netrc")),
        hidden("denied directory", &format!("{home}/.aws/credentials")),
        Row {
            what: "denied variable",
            cells: [
                Senseless(no_variable),
                Senseless(no_variable),
                Senseless("nothing is written into a variable of another process"),
                Senseless("nothing is written into a variable of another process"),
                Tried(vec![(command("printenv TOKEN"), NOT_SET, TOKEN)]),
                Tried(vec![
                    (form("(posix-getenv \"TOKEN\")"), NOT_SET, TOKEN),
                    (form("(cadr (run \"printenv\" \"TOKEN\"))"), &["(no output)"], TOKEN),
                ]),
            ],
        },
        Row {
            what: "write outside",
            cells: [
                Senseless("it writes nothing"),
                Senseless("it writes nothing"),
                Tried(vec![(
                    json!({ "path": format!("{outside}/by-write"), "content": "x" }),
                    READ_ONLY,
                    "created",
                )]),
                Tried(vec![(
                    json!({ "path": format!("{outside}/there"), "edits": [{ "old": "one", "new": "two" }] }),
                    READ_ONLY,
                    "two",
                )]),
                Tried(vec![(
                    command(&format!("echo x >'{outside}/by-bash'")),
                    READ_ONLY,
                    "exit status 0",
                )]),
                Tried(vec![
                    (
                        form(&format!("(write-file \"{outside}/by-eval\" \"x\")")),
                        READ_ONLY,
                        "created",
                    ),
                    (form(&format!("(run \"touch\" \"{outside}/by-run\")")), READ_ONLY, "=> (0 "),
                    (form(&format!("(delete-file \"{outside}/doomed\")")), READ_ONLY, "(no value)"),
                ]),
            ],
        },
        Row {
            what: "host socket",
            cells: [
                Senseless(no_socket),
                Senseless(no_socket),
                Senseless(no_socket),
                Senseless(no_socket),
                Tried(vec![(command(&format!("{connect} '{socket}' 2>&1")), NO_SOCKET, GREETING)]),
                Tried(vec![(form(&format!("{in_form} \"{socket}\"))")), NO_SOCKET, GREETING)]),
            ],
        },
    ]
}

/// Lays the world out, and a recording that tries every cell.
fn lay_out(world: &World, rows: &[Row]) -> std::path::PathBuf {
    world.file("home/.netrc", SECRET);
    world.file("home/.aws/credentials", SECRET);
    world.file("outside/there", "one\n");
    world.file("outside/doomed", "x");
    let mut lines = Vec::new();
    for row in rows {
        for (tool, cell) in TOOLS.iter().zip(&row.cells) {
            if let Tried(calls) = cell {
                for (arguments, ..) in calls {
                    lines.push(
                        json!({ "calls": [{ "name": tool, "arguments": arguments }] }).to_string(),
                    );
                }
            }
        }
    }
    lines.push(json!({ "text": "done" }).to_string());
    let file = world.file("recording.jsonl", &lines.join("\n"));
    let settings = json!({ "providers": { "replay": { "file": file } } });
    world.file("home/.config/kli/settings.json", &settings.to_string());
    let kli = world.root.join("kli");
    fs::copy(env!("CARGO_BIN_EXE_kli"), &kli).unwrap();
    kli
}

/// Returns the results of a run, in order.
#[track_caller]
fn results(output: &Output) -> Vec<String> {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|line| line["type"] == "toolResult")
        .map(|line| line["text"].as_str().unwrap().to_owned())
        .collect()
}

/// Compares each result with what its cell wants, and returns how many calls there were.
#[track_caller]
fn compare(world: &World, rows: &[Row], results: &[String], inside: bool) {
    let mut results = results.iter();
    for row in rows {
        for (tool, cell) in TOOLS.iter().zip(&row.cells) {
            match cell {
                Senseless(why) => assert!(!why.is_empty()),
                Tried(calls) => {
                    for (arguments, refusals, seen) in calls {
                        let text = results.next().unwrap();
                        let at = format!(
                            "{} through {tool} by {:?}, {arguments}: {text}",
                            row.what, world.who
                        );
                        if inside {
                            assert!(refusals.iter().any(|part| text.contains(part)), "{at}");
                            for taken in [SECRET, TOKEN, GREETING] {
                                assert!(!text.contains(taken), "{at}");
                            }
                        } else {
                            assert!(text.contains(seen), "control: {at}");
                        }
                    }
                }
            }
        }
    }
    assert_eq!(results.next(), None);
}

#[test]
fn what_the_jail_keeps_is_kept_from_every_tool() {
    for_both(|world| {
        let socket = world.home.join("service.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let came = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&came);
        fs::set_permissions(&socket, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                counted.fetch_add(1, Ordering::Relaxed);
                // Whoever came may be gone already.
                drop(stream.unwrap().write_all(GREETING.as_bytes()));
            }
        });
        let rows = table(world, &socket.display().to_string());
        assert_eq!(rows.len(), 5);
        let kli = lay_out(world, &rows);
        let words = ["-p", "go", "--model", "replay/x", "--output-format", "stream-json"];

        world.spec(r#"{ "denyRead": ["~/.netrc", "~/.aws"], "denyEnv": ["TOKEN"] }"#);
        let program = [&[kli.to_str().unwrap()], &words[..]].concat();
        let ran = world.run_with(&[], &program).env("TOKEN", TOKEN).output().unwrap();
        compare(world, &rows, &results(&ran), true);
        let names = |directory: &str| {
            let mut names: Vec<String> = fs::read_dir(world.root.join(directory))
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        assert_eq!(names("outside"), ["doomed", "there"]);
        assert_eq!(names("home/.aws"), ["credentials"]);
        for file in ["home/.netrc", "home/.aws/credentials"] {
            assert_eq!(fs::read_to_string(world.root.join(file)).unwrap(), SECRET);
        }
        assert_eq!(fs::read_to_string(world.root.join("outside/there")).unwrap(), "one\n");
        assert_eq!(came.load(Ordering::Relaxed), 0, "nobody came to the host's socket");

        // The control: the same recording without the jail.
        let ran = world.command(&kli).args(words).env("TOKEN", TOKEN).output().unwrap();
        compare(world, &rows, &results(&ran), false);
        assert_eq!(names("outside"), ["by-bash", "by-eval", "by-run", "by-write", "there"]);
        assert!(names("home/.aws").is_empty() && !world.home.join(".netrc").exists());
        assert_eq!(fs::read_to_string(world.root.join("outside/there")).unwrap(), "two\n");
        assert_eq!(came.load(Ordering::Relaxed), 2);
    });
}
