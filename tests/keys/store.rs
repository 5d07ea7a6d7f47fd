//! `kli auth`: the file of keys, and `kli-admin`, which writes it.

use std::{
    fs,
    io::{Read as _, Write as _},
    os::{
        fd::{FromRawFd as _, OwnedFd},
        unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
        unix::process::CommandExt as _,
    },
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use rustix::{
    process::Signal,
    termios::{LocalModes, tcgetattr},
};
use serde_json::{Value, json};

use crate::{
    harness::{Env, Ran, wait_for},
    jail::{err, for_both, kill, ok},
};

fn file(env: &Env) -> PathBuf {
    env.home().join(".config/kli/credentials.json")
}

fn set(env: &Env, provider: &str, input: &[u8]) -> Ran {
    env.kli_with_input(&["auth", "set", provider], input)
}

fn stored(env: &Env) -> Value {
    serde_json::from_slice(&fs::read(file(env)).unwrap()).unwrap()
}

#[test]
fn a_key_is_stored_for_its_owner_alone_replaced_and_forgotten() {
    let env = Env::new();
    set(&env, "anthropic", b"sk-one\n").exits(0).says("is stored in `").says("credentials.json");
    assert_eq!(stored(&env), json!({ "version": 1, "keys": { "anthropic": "sk-one" } }));
    let meta = fs::metadata(file(&env)).unwrap();
    assert_eq!(meta.mode() & 0o7777, 0o600);
    assert_eq!(fs::metadata(file(&env).parent().unwrap()).unwrap().mode() & 0o7777, 0o700);
    let ran = set(&env, "anthropic", b"  sk-two\r\n");
    ran.exits(0).says("is replaced in `");
    assert_eq!(stored(&env)["keys"]["anthropic"], "sk-two");
    assert!(!format!("{ran:?}").contains("sk-"), "{ran:?}");
    let status = env.kli(&["auth", "status"]);
    status.exits(0);
    let line = format!("anthropic: the store `{}`\n", file(&env).display());
    assert!(status.out.starts_with(&line) && !status.out.contains("sk-"), "{status:?}");
    assert!(status.out.contains("replay: needs no key\n"), "{status:?}");
    env.kli(&["auth", "forget", "anthropic"]).exits(0).says("is gone from `");
    assert_eq!(stored(&env)["keys"], json!({}));
    env.kli(&["auth", "forget", "anthropic"]).exits(2).says("no key of provider `anthropic`");
    assert!(env.kli(&["auth", "status"]).out.starts_with("anthropic: no key\n"));
    // Nothing is left beside it.
    let names: Vec<_> = fs::read_dir(file(&env).parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["credentials.json"]);
}

#[test]
fn what_is_no_key_of_a_known_provider_is_not_stored() {
    let env = Env::new();
    for (provider, input, part) in [
        ("anthropic", &b""[..], "is empty"),
        ("anthropic", b" \n", "is empty"),
        ("anthropic", b"a\nb\n", "more than one line"),
        ("anthropic", &[b'x'; 5000], "longer than 4096 bytes"),
        ("anthropic", &vec![b'x'; 70_000], "longer than 64 KiB"),
        ("anthropic", b"a\x1b[31m", "a character that no key has"),
        ("replay", b"sk-1", "the provider `replay` needs no key"),
        ("antropic", b"sk-1", "did you mean `anthropic`?"),
    ] {
        let ran = set(&env, provider, input);
        ran.exits(2).says(part);
        assert!(!format!("{ran:?}").contains("sk-1"));
        assert!(!file(&env).exists(), "{part}");
    }
    env.kli(&["auth", "forget", "anthropic"]).exits(2);
    assert!(!file(&env).parent().unwrap().exists(), "nothing is made for a key that is not there");
    set(&env, "anthropic", b"sk-1").exits(0);
}

#[test]
fn a_store_that_others_can_reach_or_that_is_something_else_is_not_used() {
    let env = Env::new();
    let path = file(&env);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let good = r#"{"version": 1, "keys": {"anthropic": "sk-hidden-1"}}"#;
    let remove = || {
        drop(fs::remove_file(&path));
        drop(fs::remove_dir(&path));
    };
    let check = |part: &str| {
        for (words, code) in [
            (&["-p", "hi"][..], 4),
            (&["auth", "set", "anthropic"], 2),
            (&["auth", "forget", "anthropic"], 2),
        ] {
            let ran = env.kli_with_input(words, b"sk-new-1");
            ran.exits(code).says(part);
            assert!(!format!("{ran:?}").contains("hidden"), "{ran:?}");
        }
        let status = env.kli(&["auth", "status"]);
        status.exits(0);
        assert!(status.out.contains(part), "{status:?}");
    };
    for mode in [0o640, 0o604, 0o620, 0o644] {
        remove();
        fs::write(&path, good).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        check(&format!("(mode {mode:o}); run `chmod 600 {}`", path.display()));
        assert_eq!(fs::read_to_string(&path).unwrap(), good);
    }
    for (text, part) in [
        ("", "holds no keys of this version's (line 1, column 0)"),
        ("{\"version\": 1, \"keys\": {\"a\": \"sk-hidden-1\"}", "holds no keys of this version's"),
        ("{\"version\": 1, \"keys\": [\"sk-hidden-1\"]}", "holds no keys of this version's"),
        ("{\"version\": 2, \"keys\": {}}", "holds no keys of this version's"),
        ("{\"version\": 1, \"keys\": {}, \"hidden\": 1}", "holds no keys of this version's"),
    ] {
        remove();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        check(part);
        assert_eq!(fs::read_to_string(&path).unwrap(), text, "what is there is not lost");
    }
    let elsewhere = env.home().join("elsewhere");
    fs::write(&elsewhere, good).unwrap();
    fs::set_permissions(&elsewhere, fs::Permissions::from_mode(0o600)).unwrap();
    remove();
    symlink(&elsewhere, &path).unwrap();
    check("is a symbolic link, not a regular file");
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), good);
    remove();
    fs::create_dir(&path).unwrap();
    check("is a directory, not a regular file");
    remove();
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    check("is a FIFO, not a regular file");
    remove();
    if rustix::process::geteuid().is_root() {
        fs::write(&path, good).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::chown(&path, Some(54_321), None).unwrap();
        check("belongs to user 54321");
        remove();
    }
    set(&env, "anthropic", b"sk-1").exits(0);
}

#[test]
fn several_at_once_lose_nothing() {
    let env = Env::new();
    let names: Vec<String> = (0..12).map(|number| format!("gw{number}")).collect();
    let providers: serde_json::Map<String, Value> = names
        .iter()
        .map(|name| (name.clone(), json!({ "kind": "anthropic", "baseUrl": "http://127.0.0.1:9" })))
        .collect();
    env.settings(&json!({ "providers": providers }).to_string());
    let children: Vec<_> = names
        .iter()
        .map(|name| {
            let mut command = env.command(&["auth", "set", name]);
            let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
            let key = format!("sk-{name}");
            child.stdin.take().unwrap().write_all(key.as_bytes()).unwrap();
            child
        })
        .collect();
    for child in children {
        Ran::from(child.wait_with_output().unwrap()).exits(0);
    }
    let wanted: serde_json::Map<String, Value> =
        names.iter().map(|name| (name.clone(), json!(format!("sk-{name}")))).collect();
    assert_eq!(stored(&env)["keys"], Value::Object(wanted));
}

struct Terminal {
    master: fs::File,
    slave: OwnedFd,
}

impl Terminal {
    fn new() -> Self {
        let (mut master, mut slave) = (-1, -1);
        let (name, modes, size) = (std::ptr::null_mut(), std::ptr::null(), std::ptr::null());
        #[expect(unsafe_code, reason = "the standard library makes no terminals")]
        // SAFETY: both numbers are written by the call and owned by nobody else.
        unsafe {
            assert_eq!(libc::openpty(&raw mut master, &raw mut slave, name, modes, size), 0);
            Self { master: fs::File::from_raw_fd(master), slave: OwnedFd::from_raw_fd(slave) }
        }
    }

    fn echoes(&self) -> bool {
        tcgetattr(&self.slave).unwrap().local_modes.contains(LocalModes::ECHO)
    }
}

#[test]
fn a_typed_key_is_not_shown_and_the_terminal_is_as_before() {
    for (typed, signal, code) in [
        (&b"sk-typed\n"[..], None, 0),
        (b"sk-hal", Some(Signal::INT), 130),
        (b"sk-hal", Some(Signal::TERM), 143),
        (b"\x04", None, 2),
    ] {
        let env = Env::new();
        let mut terminal = Terminal::new();
        assert!(terminal.echoes(), "control");
        let mut command = env.command(&["auth", "set", "anthropic"]);
        command.stdin(terminal.slave.try_clone().unwrap());
        let child = command.spawn().unwrap();
        drop(command);
        wait_for("the echo to go off", || (!terminal.echoes()).then_some(()));
        terminal.master.write_all(typed).unwrap();
        if let Some(signal) = signal {
            std::thread::sleep(Duration::from_millis(50));
            kill(i32::try_from(child.id()).unwrap(), signal);
        }
        let ran = Ran::from(child.wait_with_output().unwrap());
        ran.exits(code).says("key of provider `anthropic` (not shown): ");
        assert!(terminal.echoes(), "{ran:?}");
        let Terminal { mut master, slave } = terminal;
        drop(slave);
        let mut shown = Vec::new();
        // A terminal whose other end is closed reads as EIO.
        let _closed = master.read_to_end(&mut shown);
        assert!(!String::from_utf8_lossy(&shown).contains("sk-"), "{shown:?}");
        if code == 0 {
            assert_eq!(stored(&env)["keys"]["anthropic"], "sk-typed");
        } else {
            assert!(!file(&env).exists());
        }
    }
}

#[test]
fn inside_a_jail_the_other_name_is_pointed_to() {
    for_both(|world| {
        let kli = world.root.join("kli");
        if fs::hard_link(env!("CARGO_BIN_EXE_kli"), &kli).is_err() {
            fs::copy(env!("CARGO_BIN_EXE_kli"), &kli).unwrap();
        }
        let kli = kli.display().to_string();
        for command in ["set", "forget"] {
            let run = |inside: bool| {
                let script = format!("echo sk-1 | '{kli}' auth {command} anthropic");
                if inside { world.inside(&script) } else { world.plainly(&script) }
            };
            let refused = run(true);
            assert_eq!(refused.status.code(), Some(2), "{refused:?}");
            let hint = format!("outside it, run `kli-admin auth {command} anthropic`");
            assert!(err(&refused).contains("cannot be written inside the jail"), "{refused:?}");
            assert!(err(&refused).contains(&hint), "{refused:?}");
            let store = world.home.join(".config/kli/credentials.json");
            assert_eq!(store.exists(), command == "forget");
            ok(&run(false));
        }
    });
}

#[test]
fn under_its_other_name_it_asks_no_model() {
    let env = Env::new().var("ANTHROPIC_API_KEY", "sk-not-used");
    let name = env.home().join("kli-admin");
    symlink(env!("CARGO_BIN_EXE_kli"), &name).unwrap();
    let plain = env.command(&[]);
    let admin = |program: &str, name: Option<&str>, words: &[&str]| {
        let mut command = Command::new(program);
        if let Some(name) = name {
            command.arg0(name);
        }
        for (name, value) in plain.get_envs() {
            command.env(name, value.unwrap());
        }
        command.args(words).current_dir(env.work()).stdin(Stdio::null());
        Ran::from(command.output().unwrap())
    };
    let link = name.display().to_string();
    for (program, own) in [(link.as_str(), None), (env!("CARGO_BIN_EXE_kli"), Some("kli-admin"))] {
        for words in [&["version"][..], &["--version"]] {
            let ran = admin(program, own, words);
            ran.exits(0);
            assert!(ran.out.starts_with("kli-admin "), "{ran:?}");
        }
        for (words, part) in [
            (&["-p", "hi"][..], "takes no prompt"),
            (&["hi there"], "takes no prompt"),
            (&["demo"], "use `kli demo`"),
            (&[], "kli-admin --help"),
        ] {
            let ran = admin(program, own, words);
            ran.exits(2).says(part);
            assert_eq!(ran.out, "");
        }
        let ran = admin(program, own, &["--print-authority", "--read-only"]);
        ran.exits(0);
        assert!(ran.out.starts_with("authority: universal except"), "{ran:?}");
        let ran = admin(program, own, &["auth", "status"]);
        ran.exits(0);
        assert!(ran.out.contains("the variable `ANTHROPIC_API_KEY`"), "{ran:?}");
        let ran = admin(program, own, &["--help"]);
        ran.exits(0);
        assert!(ran.out.contains("auth") && !ran.out.contains("demo"), "{ran:?}");
    }
    assert!(env.sessions().is_empty());
    // Control: under its own name it knows more.
    assert!(env.kli(&["--help"]).out.contains("demo"));
}
