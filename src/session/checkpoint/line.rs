//! The lines of a store of checkpoints: how they are written, and how one is read. A line is data that
//! anybody may have written: a path that is not plainly inside the workspace is none.

use std::{
    ffi::OsString,
    fmt,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Component, Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The format that this version writes, and the highest that it reads.
pub(super) const VERSION: u64 = 1;

/// The longest path that is read, in bytes (`PATH_MAX` of Linux).
const LONGEST: usize = 4096;

/// The SHA-256 of a content.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Digest([u8; 32]);

impl Digest {
    /// Returns the digest of a content.
    pub fn of(content: &[u8]) -> Self {
        Self(Sha256::digest(content).into())
    }

    /// Returns the name of the file that keeps the content.
    pub(super) fn name(self) -> OsString {
        String::from(self).into()
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from(*self))
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        hex(&digest.0)
    }
}

impl TryFrom<String> for Digest {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let bytes = unhex(&text).ok_or("no digest")?;
        bytes.try_into().map(Self).map_err(|_| "no digest")
    }
}

fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    if !text.len().is_multiple_of(2) {
        return None;
    }
    text.as_bytes()
        .chunks(2)
        .map(|pair| Some(digit(pair.first()?)? * 16 + digit(pair.get(1)?)?))
        .collect()
}

/// A path inside the workspace, relative to it: names only, and none of them `.git`, which the jail
/// keeps from the inside in parts, so that what the inside writes here must not come to it either.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "Spelled", try_from = "Spelled")]
pub struct Inside(PathBuf);

impl Inside {
    /// Takes a relative path; `None` for any that is not plainly inside.
    pub fn new(path: PathBuf) -> Option<Self> {
        let bytes = path.as_os_str().as_bytes();
        let fine = bytes.len() <= LONGEST
            && !bytes.contains(&0)
            && bytes.split(|byte| *byte == b'/').all(|name| !matches!(name, b"" | b"." | b".."))
            && path.components().all(|part| matches!(part, Component::Normal(_)))
            && !Self::is_of_git(&path);
        fine.then_some(Self(path))
    }

    /// Says whether a path leads into a `.git`.
    pub fn is_of_git(path: &Path) -> bool {
        path.iter().any(|name| name.eq_ignore_ascii_case(".git"))
    }

    /// Returns the relative path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Spelled {
    Text(String),
    Bytes { hex: String },
}

impl From<Inside> for Spelled {
    fn from(path: Inside) -> Self {
        match path.0.into_os_string().into_string() {
            Ok(text) => Self::Text(text),
            Err(bytes) => Self::Bytes { hex: hex(bytes.as_bytes()) },
        }
    }
}

impl TryFrom<Spelled> for Inside {
    type Error = &'static str;

    fn try_from(spelled: Spelled) -> Result<Self, Self::Error> {
        let path = match spelled {
            Spelled::Text(text) => Some(text.into()),
            Spelled::Bytes { hex } => unhex(&hex).map(|bytes| OsString::from_vec(bytes).into()),
        };
        path.and_then(Self::new).ok_or("no path inside a workspace")
    }
}

/// What stood, or stands, in a file's place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "camelCase")]
pub enum State {
    /// Nothing.
    Absent,
    /// A regular file.
    File {
        /// The digest of its content.
        digest: Digest,
        /// Its length in bytes.
        size: u64,
        /// Its permission bits.
        mode: u32,
    },
    /// Something whose content is not kept.
    Uncovered {
        /// Why not, as the end of a sentence that begins with its name.
        why: String,
    },
}

impl State {
    /// Says whether both are the same content, or both nothing. What is not kept is like nothing else.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Absent, Self::Absent) => true,
            (Self::File { digest: one, .. }, Self::File { digest: two, .. }) => one == two,
            _ => false,
        }
    }
}

/// A change of one file, written down before it was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Its number; they grow.
    pub number: u64,
    /// The changes of one prompt, or of one undoing, have one number.
    pub group: u64,
    /// Whether it put something back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undoes: bool,
    /// How many messages the session had when the prompt began.
    pub prompt: u64,
    /// How many it had when the change was made.
    pub at: u64,
    /// The file.
    pub path: Inside,
    /// What stood there.
    pub before: State,
    /// What was to stand there.
    pub after: State,
    /// Directories that were made for it, the highest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub made: Vec<Inside>,
}

/// A line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub(super) enum Line {
    /// The first one.
    Checkpoints {
        /// The format.
        version: u64,
        /// How many changes were dropped to keep the bounds.
        #[serde(default)]
        dropped: u64,
    },
    /// A change.
    Change(Change),
    /// A change outside of what is covered; only to be named.
    Elsewhere {
        /// As for a change.
        group: u64,
        /// As for a change.
        at: u64,
        /// The path as people see it.
        name: String,
        /// Why it is not covered.
        why: String,
    },
    /// A change that was not made after all.
    Void {
        /// Which.
        number: u64,
    },
    /// Changes were undone.
    Undone {
        /// Which.
        numbers: Vec<u64>,
        /// Which were left alone, as somebody else had changed the file.
        left: Vec<u64>,
        /// The group of the changes that put it back.
        by: u64,
    },
    /// An undoing was undone.
    Redone {
        /// Its group.
        by: u64,
        /// The changes that stay undone, as somebody else had changed the file.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        left: Vec<u64>,
    },
    /// The conversation went back and the files did not.
    Stands {
        /// The changes that stand.
        numbers: Vec<u64>,
    },
    /// The model was told of all that was put back so far.
    Told,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_plain_names_below_the_workspace_are_paths() {
        for bad in [
            "",
            "/",
            "/etc/passwd",
            "..",
            "../x",
            "a/../../x",
            "a/..",
            "./a",
            "a/./b",
            "a//b",
            "a/",
            "a\0b",
            ".git/hooks/pre-commit",
            "sub/.git/config",
            ".GIT/config",
        ] {
            assert_eq!(Inside::new(bad.into()), None, "{bad}");
            let json = serde_json::to_string(bad).unwrap();
            assert!(serde_json::from_str::<Inside>(&json).is_err(), "{bad}");
        }
        assert_eq!(Inside::new("a/".repeat(3000).into()), None);
        let absolute = format!(r#"{{"hex":"{}"}}"#, hex(b"/etc/passwd"));
        assert!(serde_json::from_str::<Inside>(&absolute).is_err());
        for good in ["a", "a/b", ".gitignore", "x.git", "...", "a b\n"] {
            assert!(Inside::new(good.into()).is_some(), "{good}");
        }
    }

    proptest! {
        #[test]
        fn any_name_comes_back(bytes in prop::collection::vec(1_u8.., 1..20)) {
            if let Some(path) = Inside::new(OsString::from_vec(bytes).into()) {
                let json = serde_json::to_string(&path).unwrap();
                prop_assert_eq!(serde_json::from_str::<Inside>(&json).unwrap(), path);
            }
        }

        #[test]
        fn no_line_is_too_odd_to_be_read_or_refused(text in "\\PC{0,60}") {
            let _either = serde_json::from_str::<Line>(&text);
            let line = format!(r#"{{"type":"change","number":1,"group":1,"prompt":0,"at":0,"path":{},"before":{{"is":"absent"}},"after":{{"is":"absent"}}}}"#, serde_json::to_string(&text).unwrap());
            if let Ok(Line::Change(change)) = serde_json::from_str::<Line>(&line) {
                let joined = Path::new("/w").join(change.path.path());
                prop_assert!(joined.starts_with("/w") && !joined.iter().any(|name| name == ".."));
            }
        }
    }
}
