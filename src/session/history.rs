//! What was said in a workspace, for the next time somebody wants to say it again: one entry a line,
//! apart from the sessions.
//!
//! The file is data: a confined run can have written anything there. What is no entry is passed over,
//! and what an entry says is only ever shown, free of control characters, and written where a person
//! sees it before it is sent.

use std::{
    ffi::{OsStr, OsString},
    io::{Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{
    authority::Grant,
    host::{
        HostError, environment,
        state::{Directory, Lines},
    },
};

use super::log::stamp;

/// The directory of all histories, below the state directory.
const HISTORY: &str = "history";
/// The most entries that are handed out, and that a file keeps when it is made shorter.
const ENTRIES: usize = 1000;
/// The same in bytes.
const BYTES: u64 = 1 << 20;
/// The longest entry that is kept, in bytes.
const LONGEST: usize = 64 << 10;
/// How often a lock is asked for that somebody else has, and how long is waited in between.
const TRIES: u32 = 40;
const PAUSE: Duration = Duration::from_millis(5);

/// The history of one workspace.
#[derive(Clone, Debug)]
pub struct History {
    root: PathBuf,
    name: OsString,
    most: u64,
}

#[derive(Serialize)]
struct Written<'a> {
    at: &'a str,
    text: &'a str,
}

#[derive(Deserialize)]
struct Entry {
    text: String,
}

impl History {
    /// Returns the history of a workspace below a state directory. Nothing is created.
    pub fn new(state_dir: &Path, workspace: &Path) -> Self {
        let mut name = super::store::key(workspace);
        name.push(".jsonl");
        Self { root: state_dir.to_owned(), name, most: BYTES }
    }

    /// Returns what was said, the oldest first: at most a thousand, from the last two megabytes of the
    /// file. A line that is no entry is passed over.
    ///
    /// # Errors
    /// When the file is there and cannot be read, or is no regular file.
    pub fn read(&self) -> Result<Vec<String>, HostError> {
        let Some(directory) = Directory::open(&self.root, &[OsStr::new(HISTORY)])? else {
            return Ok(Vec::new());
        };
        match directory.read(&self.name) {
            Err(error) if error.errno() == Some(libc::ENOENT) => Ok(Vec::new()),
            Err(error) => Err(error),
            Ok(file) => Ok(self.entries(file)?.into_iter().map(|(_, text)| text).collect()),
        }
    }

    /// The entries, each with its line.
    fn entries(&self, mut file: std::fs::File) -> Result<Vec<(Vec<u8>, String)>, HostError> {
        let fail = |error| HostError::io("read", &self.path(), error);
        let length = file.seek(SeekFrom::End(0)).map_err(fail)?;
        let from = length.saturating_sub(2 * self.most);
        file.seek(SeekFrom::Start(from)).map_err(fail)?;
        let mut bytes = Vec::new();
        file.take(2 * self.most).read_to_end(&mut bytes).map_err(fail)?;
        // What begins in the middle of a line is none.
        let start = if from == 0 {
            0
        } else {
            bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len())
        };
        let mut found: Vec<(Vec<u8>, String)> = bytes
            .get(start..)
            .unwrap_or_default()
            .split(|byte| *byte == b'\n')
            .filter(|line| line.len() <= 8 * LONGEST)
            .filter_map(|line| {
                let entry: Entry = serde_json::from_slice(line).ok()?;
                let keeps = !entry.text.trim().is_empty() && entry.text.len() <= LONGEST;
                keeps.then(|| (line.to_owned(), entry.text))
            })
            .collect();
        found.drain(..found.len().saturating_sub(ENTRIES));
        Ok(found)
    }

    fn path(&self) -> PathBuf {
        self.root.join(HISTORY).join(&self.name)
    }

    /// Adds an entry, with one write of one line; one that is longer than 64 KiB is not kept. A file
    /// that has become too long is made shorter.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn add(&self, text: &str) -> Result<(), HostError> {
        if text.trim().is_empty() || text.len() > LONGEST {
            return Ok(());
        }
        let grant = Grant::own_state(&self.root);
        let directory = Directory::create(&grant, &self.root, &[OsStr::new(HISTORY)])?;
        let at = stamp(environment::now());
        // Strings cannot fail to serialise.
        let line = serde_json::to_vec(&Written { at: &at, text }).unwrap_or_default();
        for _ in 0..TRIES {
            let mut lines = directory.append(&grant, &self.name)?;
            // Where the file system knows no locks, a whole line is written all the same.
            let has_lock = lines.try_lock().unwrap_or(true);
            if has_lock {
                // Somebody may have put a shorter file in its place since it was opened.
                if !directory.names_file(&self.name, &lines)? {
                    continue;
                }
                lines.append(&line)?;
                return self.shorten(&grant, &directory, &lines);
            }
            std::thread::sleep(PAUSE);
        }
        directory.append(&grant, &self.name)?.append(&line)
    }

    /// Makes a file shorter that has twice as much as it may, while the lock on it is held.
    fn shorten(
        &self,
        grant: &Grant,
        directory: &Directory,
        lines: &Lines,
    ) -> Result<(), HostError> {
        if lines.length()? <= 2 * self.most {
            return Ok(());
        }
        let mut kept = self.entries(lines.reader()?)?;
        let mut bytes: u64 = kept.iter().map(|(line, _)| line.len() as u64 + 1).sum();
        while bytes > self.most && !kept.is_empty() {
            bytes -= kept.remove(0).0.len() as u64 + 1;
        }
        let mut beside = self.name.clone();
        beside.push(".part");
        let mut shorter = directory.append(grant, &beside)?;
        // A killed process may have left one there.
        shorter.cut(0)?;
        for (line, _) in &kept {
            shorter.append(line)?;
        }
        shorter.sync()?;
        directory.rename(grant, &beside, &self.name)
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the tests look at files")]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    fn history(state: &tempfile::TempDir) -> History {
        History::new(state.path(), Path::new("/work/x"))
    }

    #[test]
    fn what_was_said_comes_back_in_order_and_for_the_user_alone() {
        let state = tempfile::tempdir().unwrap();
        let it = history(&state);
        assert_eq!(it.read().unwrap(), Vec::<String>::new());
        assert_eq!(fs::read_dir(state.path()).unwrap().count(), 0, "reading makes nothing");
        for text in ["one", "two\nlines", "!ls", "  "] {
            it.add(text).unwrap();
        }
        it.add(&"x".repeat(LONGEST + 1)).unwrap();
        assert_eq!(it.read().unwrap(), ["one", "two\nlines", "!ls"]);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&it.path()), 0o600);
        assert_eq!(mode(it.path().parent().unwrap()), 0o700);
        // Another workspace has its own.
        assert_eq!(History::new(state.path(), Path::new("/work/y")).read().unwrap(), [""; 0]);
    }

    #[test]
    fn what_is_no_entry_is_passed_over_line_by_line() {
        let state = tempfile::tempdir().unwrap();
        let it = history(&state);
        it.add("before").unwrap();
        let mut bytes = fs::read(it.path()).unwrap();
        bytes.extend_from_slice(
            b"{\"text\": 5}\nno json\n\0\0\0\xff\n{\"text\":\"\\u001b[2J\"}\n{\"te",
        );
        fs::write(it.path(), bytes).unwrap();
        // The torn line does not swallow the next one.
        it.add("after").unwrap();
        assert_eq!(it.read().unwrap(), ["before", "\u{1b}[2J", "after"]);
        // Neither a link nor a second name is written through.
        let other = state.path().join("other");
        fs::write(&other, "mine").unwrap();
        fs::remove_file(it.path()).unwrap();
        std::os::unix::fs::symlink(&other, it.path()).unwrap();
        assert_eq!(it.add("x").unwrap_err().errno(), Some(libc::ELOOP));
        it.read().unwrap_err();
        fs::remove_file(it.path()).unwrap();
        fs::hard_link(&other, it.path()).unwrap();
        assert!(matches!(it.add("x"), Err(HostError::Kind { .. })));
        assert_eq!(fs::read_to_string(&other).unwrap(), "mine");
    }

    #[test]
    fn a_long_file_is_made_shorter_and_keeps_the_latest() {
        let state = tempfile::tempdir().unwrap();
        let it = History { most: 4096, ..history(&state) };
        for number in 0..300 {
            it.add(&format!("entry number {number}")).unwrap();
            let length = fs::metadata(it.path()).unwrap().len();
            assert!(length <= 2 * 4096 + 200, "{length}");
        }
        let found = it.read().unwrap();
        assert_eq!(found.last().unwrap(), "entry number 299");
        assert!(found.len() > 20 && found.len() < 150, "{}", found.len());
        assert_eq!(fs::read_dir(it.path().parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn several_at_once_keep_whole_entries() {
        let state = tempfile::tempdir().unwrap();
        // Short enough that some are moved away while others write.
        let it = History { most: 16 << 10, ..history(&state) };
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let it = &it;
                scope.spawn(move || {
                    for number in 0..40 {
                        it.add(&format!("{writer} {number} {}", "é".repeat(40))).unwrap();
                    }
                });
            }
        });
        let found = it.read().unwrap();
        let mut last = [None; 4];
        for text in &found {
            let mut words = text.split(' ');
            let mut number = || words.next().unwrap().parse::<usize>().unwrap();
            let (writer, count) = (number(), number());
            assert!(last[writer] < Some(count), "{text}");
            last[writer] = Some(count);
            assert!(text.ends_with(&"é".repeat(40)));
        }
        assert_eq!(last, [Some(39); 4]);
        let lines = fs::read_to_string(it.path()).unwrap().lines().count();
        assert_eq!(lines, found.len(), "no line is broken");
    }
}
