//! One table: what the jail keeps from the process, tried through every tool. Inside, the kernel
//! refuses each attempt and its effect is absent; outside, the same attempts succeed. As an ordinary
//! user and as root.

use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    process::{Child, Output},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde_json::{Value, json};

use crate::jail::{Who, World, for_both};

const SECRET: &str = "machine secret-of-the-host";
const TOKEN: &str = "token-of-the-host";
const GREETING: &str = "greeting-of-the-host";
const TOOLS: [&str; 6] = ["read", "search", "write", "edit", "bash", "eval"];

/// One call.
struct Attempt {
    arguments: Value,
    /// The result inside, to the letter, without what kli's own remarks add behind it.
    inside: String,
    /// Whether only the beginning of the result is in `inside`.
    is_beginning: bool,
    /// What the result outside must hold: that the attempt succeeds there, or how far it comes. Without
    /// it the attempt cannot succeed there either.
    outside: Option<String>,
}

fn attempt(arguments: Value, inside: impl Into<String>, outside: impl Into<String>) -> Attempt {
    let outside = Some(outside.into());
    Attempt { arguments, inside: inside.into(), is_beginning: false, outside }
}

/// An attempt that has its control in another of the same cell.
fn further(arguments: Value, inside: impl Into<String>) -> Attempt {
    Attempt { arguments, inside: inside.into(), is_beginning: false, outside: None }
}

struct Row {
    what: &'static str,
    /// One cell a tool, in the order of [`TOOLS`].
    cells: [Vec<Attempt>; TOOLS.len()],
}

fn form(text: impl Into<String>) -> Value {
    json!({ "form": text.into() })
}

fn command(text: impl Into<String>) -> Value {
    json!({ "command": text.into() })
}

fn path(path: impl std::fmt::Display) -> Value {
    json!({ "path": path.to_string() })
}

fn look_for(pattern: &str, path: &str) -> Value {
    json!({ "pattern": pattern, "path": path })
}

fn write(path: &str, content: &str) -> Value {
    json!({ "path": path, "content": content })
}

fn edit(path: &str, old: &str, new: &str) -> Value {
    json!({ "path": path, "edits": [{ "old": old, "new": new }] })
}

/// How a file that is hidden looks: in a hidden directory it is not there, by itself it is empty.
struct Hidden {
    read: String,
    search: String,
    write: String,
    edit: String,
    cat: String,
    read_file: String,
    listed: &'static str,
    run_cat: String,
    delete: String,
}

/// The attempts on a file that is hidden: first all that look, then all that write.
fn hidden(what: &'static str, file: &str, says: &Hidden) -> Row {
    let (directory, name) = file.rsplit_once('/').unwrap();
    let listed =
        format!("(if (member \"{name}\" (list-directory \"{directory}\")) 'there 'absent)");
    Row {
        what,
        cells: [
            vec![attempt(path(file), &says.read, SECRET)],
            vec![attempt(look_for("secret-of", file), &says.search, "secret-of-the-host")],
            vec![attempt(write(file, "by-write\n"), &says.write, "replaced")],
            vec![attempt(edit(file, "by-write", "by-edit"), &says.edit, "1 edit applied")],
            vec![
                attempt(command(format!("cat '{file}'")), &says.cat, "by-edit"),
                attempt(
                    command(format!("echo by-bash >'{file}'")),
                    format!("bash: line 1: {file}: Read-only file system\n[exit status 1]"),
                    "exit status 0",
                ),
            ],
            vec![
                attempt(form(format!("(read-file \"{file}\")")), &says.read_file, "by-bash"),
                attempt(
                    form(format!("(write-file \"{file}\" \"by-eval\")")),
                    &says.write,
                    "replaced",
                ),
                attempt(form(listed), says.listed, "=> there"),
                attempt(form(format!("(cadr (run \"cat\" \"{file}\"))")), &says.run_cat, "by-eval"),
                attempt(form(format!("(delete-file \"{file}\")")), &says.delete, "(no value)"),
            ],
        ],
    }
}

fn hidden_file(file: &str) -> Row {
    hidden(
        "denied file",
        file,
        &Hidden {
            read: "(empty file)".into(),
            search: "[no hits in 1 file]".into(),
            write: format!("cannot write `{file}`: read-only file system"),
            edit: format!("`{file}` is an empty file; use write"),
            cat: "(no output)\n[exit status 0]".into(),
            read_file: "=> \"\"".into(),
            listed: "=> there",
            run_cat: "=> \"(no output)\\n[exit status 0]\"".into(),
            delete: format!("cannot remove `{file}`: read-only file system"),
        },
    )
}

fn in_hidden_directory(file: &str) -> Row {
    let absent = format!("cannot open `{file}`: no such file or directory");
    hidden(
        "denied directory",
        file,
        &Hidden {
            read: absent.clone(),
            search: absent.clone(),
            write: format!("cannot create a file beside `{file}`: read-only file system"),
            edit: absent.clone(),
            cat: format!("cat: {file}: No such file or directory\n[exit status 1]"),
            read_file: absent,
            listed: "=> absent",
            run_cat: format!("=> \"cat: {file}: No such file or directory\\n[exit status 1]\""),
            // It is looked at first, to be kept for an undo.
            delete: format!("cannot remove `{file}`: no such file or directory"),
        },
    )
}

/// The variable, where processes are asked for it: a process of the host that has it, process 1, and
/// kli itself. The last form shows that inside there are no others.
fn variable(holder: u32, who: Who) -> Row {
    let process = format!("/proc/{holder}");
    let holder = format!("{process}/environ");
    let (first, own) = ("/proc/1/environ", "/proc/self/environ");
    let shut = "cannot open `/proc/N/environ`: permission denied";
    let gone = "cannot open `/proc/N`: no such file or directory";
    // kli is not dumpable: what `/proc` tells of it belongs to the host's root.
    let is_open = who == Who::Root && rustix::process::geteuid().is_root();
    let of_own =
        |arguments: Value, open: &str| further(arguments, if is_open { open } else { shut });
    Row {
        what: "denied variable",
        cells: [
            vec![
                attempt(path(&holder), gone, TOKEN),
                further(path(first), shut),
                Attempt {
                    is_beginning: is_open,
                    ..of_own(path(own), &format!("1:6a|A_PAD={}", "x".repeat(200)))
                },
            ],
            vec![
                attempt(look_for(TOKEN, &holder), gone, "[hits in binary files, not shown: 1 file"),
                further(look_for(TOKEN, first), shut),
                of_own(
                    look_for(TOKEN, own),
                    "[no hits in 1 file]\n\
                     [binary, searched up to the first NUL only: 1 file (/proc/N/environ)]",
                ),
            ],
            vec![
                attempt(
                    write(&holder, "TOKEN=by-write"),
                    "cannot create the directory `/proc/N`: no such file or directory",
                    "/environ`: ",
                ),
                further(write(first, "TOKEN=by-write"), shut),
                of_own(
                    write(own, "TOKEN=by-write"),
                    "cannot write `/proc/N/environ`: permission denied",
                ),
            ],
            vec![
                attempt(edit(&holder, TOKEN, "by-edit"), gone, "/environ`: "),
                further(edit(first, TOKEN, "by-edit"), shut),
                of_own(
                    edit(own, TOKEN, "by-edit"),
                    "nothing was changed in `/proc/self/environ`\nedits[0]: `old` is not in the file, \
                     nor is anything like it; read the file again",
                ),
            ],
            vec![
                attempt(command("printenv TOKEN"), "(no output)\n[exit status 1]", TOKEN),
                attempt(
                    command("cat /proc/[0-9]*/environ 2>&1 | tr '\\0' '\\n' | grep -a TOKEN="),
                    "(no output)\n[exit status 1]",
                    TOKEN,
                ),
                attempt(
                    command(format!("cat {holder}")),
                    "cat: /proc/N/environ: No such file or directory\n[exit status 1]",
                    TOKEN,
                ),
            ],
            vec![
                attempt(form("(posix-getenv \"TOKEN\")"), "=> #false", TOKEN),
                attempt(
                    form("(cadr (run \"printenv\" \"TOKEN\"))"),
                    "=> \"(no output)\\n[exit status 1]\"",
                    TOKEN,
                ),
                attempt(form(format!("(read-file \"{holder}\")")), gone, TOKEN),
                further(form(format!("(read-file \"{first}\")")), shut),
                attempt(
                    form(
                        "(filter (lambda (name) (char-digit? (string-ref name 0))) \
                         (list-directory \"/proc\"))",
                    ),
                    "=> (\"1/\" \"2/\")",
                    format!("\"{}/\"", process.trim_start_matches("/proc/")),
                ),
            ],
        ],
    }
}

/// Places outside everything writable. What only reads is given what a writer would take, and a name
/// that it would have to make; that the place itself is in its reach is shown by the last call.
fn outside(outside: &Path) -> Row {
    let there = outside.join("there").display().to_string();
    let at = |name: &str| outside.join(name).display().to_string();
    let read_only = |at: &str| format!("cannot create a file beside `{at}`: read-only file system");
    let absent = |at: &str| format!("cannot open `{at}`: no such file or directory");
    let in_shell = |what: &str| format!("{what}: Read-only file system");
    Row {
        what: "write outside",
        cells: [
            vec![
                attempt(
                    write(&at("by-read"), "x"),
                    "unknown argument `content`; known are `path`, `start`, `end`",
                    "unknown argument `content`",
                ),
                attempt(path(at("by-read")), absent(&at("by-read")), absent(&at("by-read"))),
                attempt(path(&there), "1:6b|one", "1:6b|one"),
            ],
            vec![
                attempt(
                    json!({ "pattern": "x", "path": at("by-search"), "content": "x" }),
                    "unknown argument `content`; known are `pattern`, `path`, `glob`, `context`, \
                     `ignore_case`",
                    "unknown argument `content`",
                ),
                attempt(
                    look_for("x", &at("by-search")),
                    absent(&at("by-search")),
                    absent(&at("by-search")),
                ),
                attempt(look_for("one", &there), format!("{there}:1:6b|one"), "1:6b|one"),
            ],
            vec![attempt(write(&at("by-write"), "x"), read_only(&at("by-write")), "created")],
            vec![attempt(
                edit(&there, "one", "two"),
                format!("cannot write `{there}`: read-only file system"),
                "1 edit applied",
            )],
            vec![attempt(
                command(format!("echo x >'{}'", at("by-bash"))),
                in_shell(&format!("bash: line 1: {}", at("by-bash"))) + "\n[exit status 1]",
                "exit status 0",
            )],
            vec![
                attempt(
                    form(format!("(write-file \"{}\" \"x\")", at("by-eval"))),
                    read_only(&at("by-eval")),
                    "created",
                ),
                attempt(
                    form(format!("(run \"touch\" \"{}\")", at("by-run"))),
                    format!(
                        "=> (1 \"{}\\n[exit status 1]",
                        in_shell(&format!("touch: cannot touch '{}'", at("by-run")))
                    ),
                    "=> (0 ",
                ),
                attempt(
                    form(format!("(delete-file \"{}\")", at("doomed"))),
                    format!("cannot remove `{}`: read-only file system", at("doomed")),
                    "(no value)",
                ),
            ],
        ],
    }
}

/// What the jail makes of a socket of the host.
enum Socket {
    /// Below an overlay: its name is there, nobody listens behind it.
    Cut,
    /// An empty file lies on it.
    Masked,
}

/// The attempts on the host's sockets. Only what connects can come through; the others could show what
/// is behind a name, or take it away.
fn sockets(cut: &str, masked: &str) -> Row {
    let connect = "perl -MSocket -e 'socket(S,AF_UNIX,SOCK_STREAM,0); \
         connect(S,sockaddr_un($ARGV[0])) or die \"$!\\n\"; print <S>'";
    let in_form = "(cadr (run \"perl\" \"-MSocket\" \"-e\" \"socket(S,AF_UNIX,SOCK_STREAM,0); \
         connect(S,sockaddr_un($ARGV[0])) or die \\\"$!\\\\n\\\"; print <S>\"";
    let mut cells = [const { Vec::new() }; TOOLS.len()];
    for (at, socket) in [(cut, Socket::Cut), (masked, Socket::Masked)] {
        let kind = format!("`{at}` is a socket, not a regular file or a directory");
        let say = |cut: &str, masked: &str| match socket {
            Socket::Cut => cut.to_owned(),
            Socket::Masked => masked.to_owned(),
        };
        let refused = say("Connection refused", "Permission denied");
        let status = say("111", "13");
        let attempts = [
            vec![attempt(path(at), say(&kind, "(empty file)"), &kind)],
            vec![attempt(look_for(".", at), say(&kind, "[no hits in 1 file]"), &kind)],
            vec![attempt(
                write(at, "x"),
                say(&kind, &format!("cannot write `{at}`: permission denied")),
                &kind,
            )],
            vec![attempt(
                edit(at, "one", "two"),
                say(&kind, &format!("`{at}` is an empty file; use write")),
                &kind,
            )],
            vec![attempt(
                command(format!("{connect} '{at}' 2>&1")),
                format!("{refused}\n[exit status {status}]"),
                GREETING,
            )],
            vec![
                attempt(
                    form(format!("{in_form} \"{at}\"))")),
                    format!("=> \"{refused}\\n[exit status {status}]\""),
                    GREETING,
                ),
                attempt(form(format!("(read-file \"{at}\")")), say(&kind, "=> \"\""), &kind),
                attempt(
                    form(format!("(delete-file \"{at}\")")),
                    format!("cannot remove `{at}`: read-only file system"),
                    "(no value)",
                ),
            ],
        ];
        for (cell, attempts) in cells.iter_mut().zip(attempts) {
            cell.extend(attempts);
        }
    }
    Row { what: "host socket", cells }
}

/// Lays the world out, and a recording that tries every cell.
fn lay_out(world: &World, rows: &[Row]) -> PathBuf {
    world.file("home/.netrc", SECRET);
    world.file("home/.aws/credentials", SECRET);
    world.file("outside/there", "one\n");
    world.file("outside/doomed", "x");
    let mut lines = Vec::new();
    for row in rows {
        for (tool, cell) in TOOLS.iter().zip(&row.cells) {
            for Attempt { arguments, .. } in cell {
                lines.push(
                    json!({ "calls": [{ "name": tool, "arguments": arguments }] }).to_string(),
                );
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

/// Returns what a result says by itself: without kli's remarks on the sandbox and the engine's
/// picture of the place, and with every process numbered N.
fn bare(result: &str) -> String {
    let text = result.rsplit("^^^^^ ").next().unwrap();
    let end = ["\nsandbox: ", "\n[sandbox: ", "\\n[sandbox: "]
        .iter()
        .filter_map(|remark| text.find(remark))
        .min()
        .unwrap_or(text.len());
    let mut parts = text[..end].split("/proc/");
    let mut bare = parts.next().unwrap().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
        bare += if rest.len() < part.len() { "/proc/N" } else { "/proc/" };
        bare += rest;
    }
    bare
}

/// Compares each result with what its cell wants; `masked` is the socket under a mask.
#[track_caller]
fn compare(world: &World, rows: &[Row], masked: &str, results: &[String], inside: bool) {
    let mut results = results.iter();
    for row in rows {
        for (tool, cell) in TOOLS.iter().zip(&row.cells) {
            for attempt in cell {
                let text = results.next().unwrap();
                let at = format!(
                    "{} through {tool} by {:?}, {}: {text}",
                    row.what, world.who, attempt.arguments
                );
                if inside {
                    let said = bare(text);
                    if attempt.is_beginning {
                        assert!(said.starts_with(&attempt.inside), "{at}");
                    } else {
                        assert_eq!(said, attempt.inside, "{at}");
                    }
                    for taken in [SECRET, TOKEN, GREETING] {
                        assert!(!text.contains(taken), "{at}");
                    }
                    // Who meets a mask on a socket reads which option keeps the socket.
                    let masked = attempt.arguments["path"] == masked;
                    assert!(!masked || text.contains("`allowSockets` keeps"), "{at}");
                } else if let Some(wanted) = &attempt.outside {
                    assert!(text.contains(wanted), "control: {at}");
                }
            }
        }
    }
    assert_eq!(results.next(), None);
}

/// A socket that greets whoever comes, and counts them.
fn greet(path: &Path) -> Arc<AtomicUsize> {
    let listener = UnixListener::bind(path).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    let came = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&came);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            counted.fetch_add(1, Ordering::Relaxed);
            // Whoever came may be gone already.
            drop(stream.unwrap().write_all(GREETING.as_bytes()));
        }
    });
    came
}

/// What is longer than where a NUL makes a file binary, so that the variables behind it are shown.
fn pad() -> String {
    "x".repeat(9000) + "\n"
}

/// A process of the host that has the variable.
struct Holder(Child);

impl Holder {
    fn start(world: &World) -> Self {
        let mut command = world.command("sleep");
        let child = command.arg("300").env("A_PAD", pad()).env("TOKEN", TOKEN).spawn().unwrap();
        let holder = Self(child);
        let all = crate::harness::wait_for("the holder's environment", || {
            let all = holder.environment();
            all.contains(TOKEN).then_some(all)
        });
        assert!(all.contains(TOKEN));
        // Numbers that processes inside have, too.
        assert!(holder.0.id() > 2);
        holder
    }

    fn environment(&self) -> String {
        let bytes = fs::read(format!("/proc/{}/environ", self.0.id())).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn what_the_jail_keeps_is_kept_from_every_tool() {
    for_both(|world| {
        let sockets_at = [world.home.join("service.sock"), world.root.join("outside/service.sock")];
        let came = sockets_at.each_ref().map(|at| greet(at));
        let inodes = sockets_at.each_ref().map(|at| fs::metadata(at).unwrap().ino());
        let count = || came.each_ref().map(|came| came.load(Ordering::Relaxed));
        let holder = Holder::start(world);
        let environment = holder.environment();
        let home = world.home.display();
        let [cut, masked] = sockets_at.each_ref().map(|at| at.display().to_string());
        let rows = [
            hidden_file(&format!("{home}/.netrc")),
            in_hidden_directory(&format!("{home}/.aws/credentials")),
            variable(holder.0.id(), world.who),
            outside(&world.root.join("outside")),
            sockets(&cut, &masked),
        ];
        let what = rows.each_ref().map(|row| row.what);
        assert_eq!(
            what,
            ["denied file", "denied directory", "denied variable", "write outside", "host socket"]
        );
        let has_control = |cell: &Vec<Attempt>| cell.iter().any(|it| it.outside.is_some());
        let tried = rows.iter().flat_map(|row| &row.cells).filter(|cell| has_control(cell)).count();
        assert_eq!(tried, 30, "every cell is tried, and has a control");

        let kli = lay_out(world, &rows);
        let words = ["-p", "go", "--model", "replay/x", "--output-format", "stream-json"];
        world.spec(r#"{ "denyRead": ["~/.netrc", "~/.aws"], "denyEnv": ["TOKEN"] }"#);
        let program = [&[kli.to_str().unwrap()], &words[..]].concat();
        let mut command = world.run_with(&[], &program);
        let ran = command.env("A_PAD", pad()).env("TOKEN", TOKEN).output().unwrap();
        compare(world, &rows, &masked, &results(&ran), true);
        let names = |directory: &str| {
            let mut names: Vec<String> = fs::read_dir(world.root.join(directory))
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        assert_eq!(names("outside"), ["doomed", "service.sock", "there"]);
        assert_eq!(names("home/.aws"), ["credentials"]);
        for file in ["home/.netrc", "home/.aws/credentials"] {
            assert_eq!(fs::read_to_string(world.root.join(file)).unwrap(), SECRET);
        }
        assert_eq!(fs::read_to_string(world.root.join("outside/there")).unwrap(), "one\n");
        assert_eq!(holder.environment(), environment);
        assert_eq!(count(), [0, 0], "nobody came to the host's sockets");
        for (at, inode) in sockets_at.iter().zip(inodes) {
            assert_eq!(fs::metadata(at).unwrap().ino(), inode);
            let mut said = String::new();
            UnixStream::connect(at).unwrap().read_to_string(&mut said).unwrap();
            assert_eq!(said, GREETING, "control: somebody listens");
        }

        // The control: the same recording without the jail.
        let mut command = world.command(&kli);
        let ran = command.args(words).env("A_PAD", pad()).env("TOKEN", TOKEN).output().unwrap();
        compare(world, &rows, &masked, &results(&ran), false);
        assert_eq!(names("outside"), ["by-bash", "by-eval", "by-run", "by-write", "there"]);
        assert!(names("home/.aws").is_empty() && !world.home.join(".netrc").exists());
        assert_eq!(fs::read_to_string(world.root.join("outside/there")).unwrap(), "two\n");
        assert_eq!(count(), [3, 3], "the test, bash, and the form");
    });
}
