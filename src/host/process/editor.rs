//! The person's own editor on a text: a private file, a child that has the terminal, and nothing left
//! behind however it ends.
//!
//! It is no command of the agent's: it runs in kli's own session and process group, so that the
//! terminal's signals (Ctrl-Z) reach both, and it needs no grant but that for kli's own files.

#![expect(clippy::disallowed_methods, reason = "this is an edge: it starts the person's editor")]

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read},
    os::{
        fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd},
        unix::process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use rustix::{
    io::{Errno, FdFlags},
    process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid},
};

use crate::{
    authority::Grant,
    host::{
        HostError,
        state::{Directory, create_dir, create_new_dir, open_read, remove_tree, write_atomic},
    },
};

/// The directory of the texts that are being edited, below the state directory.
const PLACE: &str = "editing";
/// The name of the file: editors choose their mode by its end.
const NAME: &str = "prompt.md";
/// The longest text that is taken back, in bytes.
const LONGEST: u64 = 16 << 20;
/// How long an editor has to end after each of TERM and KILL.
const GRACE: Duration = Duration::from_millis(400);
/// What an editor is when nobody has said, in this order.
const DEFAULTS: [&str; 4] = ["sensible-editor", "nano", "vim", "vi"];
/// What makes a value a line for the shell rather than the name of a program, as in git (run-command.c,
/// `prepare_shell_cmd`).
const FOR_A_SHELL: &[u8] = b"|&;<>()$`\\\"' \t\n*?[#~=%";

/// What became of an editor.
#[derive(Debug, PartialEq, Eq)]
pub enum Became {
    /// It was stopped.
    Stopped,
    /// It has ended well, and this is the text.
    Text(String),
    /// It has ended with this exit code, so the text is not to be taken.
    Left(i32),
    /// A signal has ended it.
    Killed(i32),
    /// It has ended, and why there is no text.
    Failed(String),
}

/// An editor that runs. Dropping it ends it and removes its file.
#[derive(Debug)]
pub struct Editor {
    pid: Pid,
    ended: mpsc::Receiver<()>,
}

/// Returns the editor that these variables name: `VISUAL`, else `EDITOR`, else the first of the usual
/// ones that is on the path.
///
/// # Errors
/// A sentence when there is none.
pub fn choose(var: impl Fn(&str) -> Option<OsString>) -> Result<OsString, String> {
    let said = ["VISUAL", "EDITOR"]
        .into_iter()
        .filter_map(&var)
        .find(|value| !value.as_encoded_bytes().iter().all(u8::is_ascii_whitespace));
    if let Some(said) = said {
        return Ok(said);
    }
    let path = var("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    DEFAULTS
        .into_iter()
        .find(|name| {
            std::env::split_paths(&path).filter(|place| place.is_absolute()).any(|place| {
                rustix::fs::access(place.join(name), rustix::fs::Access::EXEC_OK).is_ok()
            })
        })
        .map(OsString::from)
        .ok_or_else(|| "no editor is known; set `VISUAL` or `EDITOR`".to_owned())
}

/// Removes what runs that were killed left of texts that they had an editor on: the directories that
/// neither a run nor its editor has. What cannot be removed is there the next time.
pub fn sweep(grant: &Grant, state: &Path) {
    let Ok(Some(above)) = Directory::open(state, &[OsStr::new(PLACE)]) else { return };
    for name in above.names().unwrap_or_default() {
        // A link or a file is none of kli's.
        let Ok(Some(left)) = above.below(&name) else { continue };
        if left.try_lock() {
            drop(above.remove_directory(grant, &name));
        }
    }
}

/// Starts an editor on a text, with the terminal as its input and output. `tell` is called on a thread
/// of its own with what becomes of it; after anything but [`Became::Stopped`] its file is gone.
///
/// # Errors
/// When the file cannot be made, or the editor cannot be started; nothing is left then.
pub fn start(
    grant: &Grant,
    state: &Path,
    editor: &OsStr,
    text: &str,
    terminal: &OwnedFd,
    mut tell: impl FnMut(Became) + Send + 'static,
) -> Result<Editor, HostError> {
    let place = Place::make(grant, state)?;
    let file = place.directory.join(NAME);
    write_atomic(grant, &file, text.as_bytes())?;
    let fail = |error: io::Error| HostError::io("start the editor on", &file, error);
    let mut command = command(editor, &file);
    for_terminal(&mut command, terminal).map_err(fail)?;
    hand_on(&mut command, place.lock.as_fd().as_raw_fd());
    let child = command.spawn().map_err(fail)?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let Some(pid) = pid else { return Err(fail(io::Error::from(Errno::SRCH))) };
    let (end, ended) = mpsc::channel();
    let watch = move || {
        loop {
            // Not reaped before its file is gone: until then the number is its own.
            let look = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
            match waitid(WaitId::Pid(pid), look) {
                Err(Errno::INTR) => {}
                Ok(Some(status)) if status.stopped() => {
                    let seen = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
                    let _seen = waitid(WaitId::Pid(pid), seen);
                    tell(Became::Stopped);
                }
                other => {
                    let became = ended_as(other.ok().flatten(), &file);
                    drop(place);
                    tell(became);
                    // Whoever waits for it may be gone.
                    let _gone = end.send(());
                    let _reaped = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED);
                    return;
                }
            }
        }
    };
    thread::Builder::new()
        .name("kli-editor".to_owned())
        .spawn(watch)
        .map_err(|error| HostError::io("watch the editor on", &state.join(PLACE), error))?;
    Ok(Editor { pid, ended })
}

fn command(editor: &OsStr, file: &Path) -> Command {
    if editor.as_encoded_bytes().iter().any(|byte| FOR_A_SHELL.contains(byte)) {
        // As git does: the value is split by the shell, the file is an argument of its own.
        // One command takes the shell's place, so that a signal reaches the editor itself.
        let is_one = !editor.as_encoded_bytes().iter().any(|byte| b"|&;<>()`\n=#".contains(byte));
        let mut line = OsString::from(if is_one { "exec " } else { "" });
        line.push(editor);
        line.push(" \"$@\"");
        let mut command = Command::new("sh");
        command.arg("-c").arg(line).arg(editor).arg(file);
        command
    } else {
        let mut command = Command::new(editor);
        command.arg(file);
        command
    }
}

fn for_terminal(command: &mut Command, terminal: &OwnedFd) -> io::Result<()> {
    command
        .stdin(Stdio::from(terminal.try_clone()?))
        .stdout(Stdio::from(terminal.try_clone()?))
        .stderr(Stdio::from(terminal.try_clone()?));
    Ok(())
}

/// Lets the editor have the lock on its directory as well: it may outlive a kli that is killed, and its
/// file is not taken from it then.
fn hand_on(command: &mut Command, lock: RawFd) {
    #[expect(unsafe_code, reason = "only here can a descriptor be handed to this child alone")]
    // SAFETY: fcntl is safe after fork, and whoever spawns the command holds the descriptor meanwhile.
    unsafe {
        command.pre_exec(move || {
            rustix::io::fcntl_setfd(BorrowedFd::borrow_raw(lock), FdFlags::empty())?;
            Ok(())
        });
    }
}

fn ended_as(status: Option<rustix::process::WaitIdStatus>, file: &Path) -> Became {
    let Some(status) = status else {
        return Became::Failed("how the editor ended is not known; nothing has changed".to_owned());
    };
    if let Some(signal) = status.terminating_signal() {
        return Became::Killed(signal);
    }
    match status.exit_status() {
        Some(0) => read(file).map_or_else(Became::Failed, Became::Text),
        code => Became::Left(code.unwrap_or(-1)),
    }
}

/// Reads what was written: a regular file, not through a link, of bounded length and UTF-8. The line
/// break that editors put at the end is none of the text.
fn read(file: &Path) -> Result<String, String> {
    let bytes = open_read(file).map_err(|error| error.sentence()).and_then(|open: File| {
        let mut bytes = Vec::new();
        open.take(LONGEST + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| format!("cannot read `{}`: {error}", file.display()))?;
        Ok(bytes)
    })?;
    if bytes.len() as u64 > LONGEST {
        return Err(format!("the edited text has more than {LONGEST} bytes; nothing has changed"));
    }
    let text = String::from_utf8(bytes)
        .map_err(|_| "the edited text is not UTF-8; nothing has changed".to_owned())?;
    let text = text.replace("\r\n", "\n");
    Ok(text.strip_suffix('\n').unwrap_or(&text).to_owned())
}

/// A directory for one text and for what editors leave beside it.
struct Place {
    grant: Grant,
    directory: PathBuf,
    /// Locked: [`sweep`] leaves it alone.
    lock: Directory,
}

impl Place {
    fn make(grant: &Grant, state: &Path) -> Result<Self, HostError> {
        let above = state.join(PLACE);
        create_dir(grant, &above)?;
        loop {
            let name = OsString::from(format!("{:016x}", fastrand::u64(..)));
            let directory = above.join(&name);
            create_new_dir(grant, &directory)?;
            // Until it is locked another start may take it for a left one.
            let lock = Directory::open(state, &[OsStr::new(PLACE), &name])?;
            let Some(lock) = lock.filter(Directory::try_lock) else { continue };
            if Directory::open(state, &[OsStr::new(PLACE), &name])?.is_some() {
                return Ok(Self { grant: Grant::own_state(state), directory, lock });
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What cannot be removed is for the user alone.
        drop(remove_tree(&self.grant, &self.directory));
    }
}

impl Editor {
    /// Lets it go on after it was stopped.
    pub fn go_on(pid: Pid) {
        let _gone = kill_process(pid, Signal::CONT);
    }

    /// Returns its process, for [`Editor::go_on`].
    pub fn pid(&self) -> Pid {
        self.pid
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        for signal in [Signal::TERM, Signal::KILL] {
            // Told when it has ended, so the number is its own still.
            if !matches!(self.ended.try_recv(), Err(mpsc::TryRecvError::Empty)) {
                return;
            }
            let _gone = kill_process(self.pid, signal);
            let _gone = kill_process(self.pid, Signal::CONT);
            if self.ended.recv_timeout(GRACE).is_ok() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    struct World {
        place: tempfile::TempDir,
        terminal: OwnedFd,
    }

    impl World {
        fn new() -> Self {
            let terminal = fs::File::options().read(true).write(true).open("/dev/null").unwrap();
            Self { place: tempfile::tempdir().unwrap(), terminal: terminal.into() }
        }

        fn script(&self, text: &str) -> OsString {
            let path = self.place.path().join("an editor");
            fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            // As a person writes a path with a blank, and with a word behind it.
            format!("'{}' --wait", path.display()).into()
        }

        fn edit(
            &self,
            editor: &OsStr,
            text: &str,
        ) -> (Result<Editor, HostError>, mpsc::Receiver<Became>) {
            let state = self.place.path().join("state");
            let (tell, told) = mpsc::channel();
            let started = start(
                &Grant::own_state(&state),
                &state,
                editor,
                text,
                &self.terminal,
                move |became| drop(tell.send(became)),
            );
            (started, told)
        }

        fn left(&self) -> usize {
            fs::read_dir(self.place.path().join("state").join(PLACE)).unwrap().count()
        }
    }

    const SOON: Duration = Duration::from_secs(20);

    #[test]
    fn the_text_comes_back_and_nothing_is_left() {
        let world = World::new();
        let editor = world.script(
            "[ \"$1\" = --wait ] || exit 9\nstat -c '%a' \"$2\" > \"$0.mode\"\ncat \"$2\" > \"$0.seen\"\n\
             printf 'new\\r\\ntext\\n' > \"$2.new\"; mv \"$2.new\" \"$2\"; touch \"$2~\"",
        );
        let (started, told) = world.edit(&editor, "old");
        let running = started.unwrap();
        assert_eq!(told.recv_timeout(SOON), Ok(Became::Text("new\ntext".to_owned())));
        assert_eq!(world.left(), 0);
        drop(running);
        let seen =
            |end: &str| fs::read_to_string(world.place.path().join(format!("an editor.{end}")));
        assert_eq!(seen("seen").unwrap(), "old");
        assert_eq!(seen("mode").unwrap(), "600\n");
    }

    #[test]
    fn an_end_that_is_not_well_gives_no_text() {
        let world = World::new();
        for (script, wanted) in [
            ("echo changed > \"$2\"; exit 3", Became::Left(3)),
            (
                "printf '\\377' > \"$2\"",
                Became::Failed("the edited text is not UTF-8; nothing has changed".to_owned()),
            ),
        ] {
            let editor = world.script(script);
            let (started, told) = world.edit(&editor, "old");
            let running = started.unwrap();
            assert_eq!(told.recv_timeout(SOON), Ok(wanted), "{script}");
            assert_eq!(world.left(), 0, "{script}");
            drop(running);
        }
        // The shell that split the line may have stood in between.
        let editor = world.script("kill -TERM $$");
        let (started, told) = world.edit(&editor, "old");
        let running = started.unwrap();
        let became = told.recv_timeout(SOON).unwrap();
        assert!(matches!(became, Became::Killed(15) | Became::Left(143)), "{became:?}");
        assert_eq!(world.left(), 0);
        drop(running);
        // A link in the place of the file is not followed.
        let secret = world.place.path().join("secret");
        fs::write(&secret, "secret").unwrap();
        let editor = world.script(&format!("ln -sf '{}' \"$2\"", secret.display()));
        let (started, told) = world.edit(&editor, "old");
        let _running = started.unwrap();
        match told.recv_timeout(SOON).unwrap() {
            Became::Failed(sentence) => assert!(!sentence.contains("secret\n"), "{sentence}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(fs::read_to_string(&secret).unwrap(), "secret", "control: it is there still");
        assert_eq!(world.left(), 0);
    }

    #[test]
    fn one_that_cannot_start_is_said_and_leaves_nothing() {
        let world = World::new();
        let (started, _told) = world.edit(OsStr::new("/no/such/editor"), "old");
        let error = started.map(drop).unwrap_err();
        assert_eq!(error.errno(), Some(libc::ENOENT));
        assert_eq!(world.left(), 0);
    }

    #[test]
    fn dropping_it_ends_it_and_removes_its_file() {
        let world = World::new();
        let editor = world.script("trap '' TERM; touch \"$0.up\"; while :; do sleep 0.05; done");
        let (started, told) = world.edit(&editor, "old");
        let running = started.unwrap();
        let start = std::time::Instant::now();
        while !world.place.path().join("an editor.up").exists() {
            assert!(start.elapsed() < SOON, "it does not start");
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(world.left(), 1, "control");
        drop(running);
        assert_eq!(told.recv_timeout(SOON), Ok(Became::Killed(9)));
        assert_eq!(world.left(), 0);
    }

    #[test]
    fn what_a_killed_run_left_is_swept_and_what_somebody_has_is_not() {
        let world = World::new();
        let state = world.place.path().join("state");
        let grant = Grant::own_state(&state);
        sweep(&grant, &state);
        let make = |name: &str| {
            let place = state.join(PLACE).join(name);
            fs::create_dir_all(&place).unwrap();
            fs::write(place.join(NAME), "a draft").unwrap();
            fs::write(place.join("prompt.md~"), "an editor's own").unwrap();
            place
        };
        let (left, held) = (make("left"), make("held"));
        let lock = Directory::open(&state, &[OsStr::new(PLACE), OsStr::new("held")]);
        let lock = lock.unwrap().unwrap();
        assert!(lock.try_lock());
        // What somebody else put there is no way out.
        let outside = world.place.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "").unwrap();
        std::os::unix::fs::symlink(&outside, state.join(PLACE).join("link")).unwrap();
        std::os::unix::fs::symlink(outside.join("kept"), make("linked").join("to")).unwrap();
        fs::write(state.join(PLACE).join("file"), "").unwrap();
        sweep(&grant, &state);
        assert!(!left.exists() && held.join(NAME).exists());
        assert!(outside.join("kept").exists() && !state.join(PLACE).join("linked").exists());
        drop(lock);
        sweep(&grant, &state);
        assert!(!held.exists(), "control");
        // One that runs has its own, and its editor has it after it.
        let editor = world.script("touch \"$0.up\"; until [ -e \"$0.go\" ]; do sleep 0.02; done");
        let (started, told) = world.edit(&editor, "old");
        let running = started.unwrap();
        let beside = |end: &str| world.place.path().join(format!("an editor.{end}"));
        let start = std::time::Instant::now();
        while !beside("up").exists() {
            assert!(start.elapsed() < SOON, "it does not start");
            thread::sleep(Duration::from_millis(5));
        }
        sweep(&grant, &state);
        fs::write(beside("go"), "").unwrap();
        assert_eq!(told.recv_timeout(SOON), Ok(Became::Text("old".to_owned())));
        drop(running);
    }

    #[test]
    fn the_editor_is_chosen_by_its_variables_and_else_by_the_path() {
        let place = tempfile::tempdir().unwrap();
        let program = place.path().join("vi");
        fs::write(&program, "").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let path = place.path().as_os_str().to_owned();
        let with = |set: &[(&str, &str)]| {
            choose(|name| match set.iter().find(|(known, _)| *known == name) {
                Some((_, value)) => Some(OsString::from(value)),
                None if name == "PATH" => Some(path.clone()),
                None => None,
            })
        };
        assert_eq!(with(&[("VISUAL", "code -w"), ("EDITOR", "ed")]).unwrap(), "code -w");
        assert_eq!(with(&[("VISUAL", " "), ("EDITOR", "ed")]).unwrap(), "ed");
        assert_eq!(with(&[]).unwrap(), "vi");
        let none = with(&[("PATH", "/no/such/place:relative")]).unwrap_err();
        assert_eq!(none, "no editor is known; set `VISUAL` or `EDITOR`");
    }
}
