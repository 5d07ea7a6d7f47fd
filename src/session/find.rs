//! Which sessions there are: names and times, no contents.

use std::{
    cmp::Reverse,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    time::SystemTime,
};

use crate::host::{HostError, state::Directory};

use super::{SessionError, Store, scan, store::SESSIONS};

/// How many identifiers are named when none fits.
const NAMED: usize = 5;

/// Files up to this size are looked into before `--continue` takes them, in bytes: a run that died
/// before its first message must not hide the conversation before it.
const SMALL: u64 = 16 << 10;

/// A text that is looked for in prompts has at least so many characters.
const WORDS: usize = 3;

/// A time as files' names carry it.
const TIME: &str = "20261129T174423Z";

/// A session that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The identifier.
    pub id: String,
    /// The file; for people.
    pub path: PathBuf,
    /// When it was last appended to.
    pub modified: SystemTime,
    /// Its size in bytes.
    pub size: u64,
    /// The name of its workspace's directory.
    pub(super) key: OsString,
    /// The file's name in it.
    pub(super) name: OsString,
}

/// The sessions of every workspace.
#[derive(Debug, Default)]
pub struct Listing {
    /// The sessions, the one that was last appended to first.
    pub found: Vec<Found>,
    /// Directories that could not be read.
    pub unreadable: Vec<HostError>,
}

impl Store {
    /// Returns the workspace's sessions, the one that was last appended to first.
    ///
    /// # Errors
    /// [`SessionError::Read`] when the directory is there but cannot be read.
    pub fn list(&self, workspace: &Path) -> Result<Vec<Found>, SessionError> {
        let mut found = self.list_key(&super::store::key(workspace)).map_err(SessionError::read)?;
        sort(&mut found);
        Ok(found)
    }

    /// Returns the sessions of every workspace.
    ///
    /// # Errors
    /// [`SessionError::Read`] when the directory of all sessions cannot be read.
    pub fn list_all(&self) -> Result<Listing, SessionError> {
        let names = [OsStr::new(SESSIONS)];
        let Some(all) = Directory::open(self.root(), &names).map_err(SessionError::read)? else {
            return Ok(Listing::default());
        };
        let mut listing = Listing::default();
        for key in all.names().map_err(SessionError::read)? {
            // What else somebody put there is none of kli's.
            if !is_key(&key) {
                continue;
            }
            match self.list_key(&key) {
                Ok(found) => listing.found.extend(found),
                Err(error) => listing.unreadable.push(error),
            }
        }
        sort(&mut listing.found);
        Ok(listing)
    }

    /// Returns the identifiers of the sessions in a workspace's directory.
    pub(super) fn ids(&self, key: &OsStr) -> Vec<String> {
        let found = self.list_key(key).unwrap_or_default();
        found.into_iter().map(|found| found.id).collect()
    }

    fn list_key(&self, key: &OsStr) -> Result<Vec<Found>, HostError> {
        let Some(directory) = self.open_directory(key)? else { return Ok(Vec::new()) };
        let found = directory.names()?.into_iter().filter_map(|name| {
            let id = id_of(&name)?.to_owned();
            // One that went away meanwhile, or is no regular file, is no session.
            let looked = directory.look(&name).ok().filter(|looked| looked.is_file)?;
            let path = directory.path().join(&name);
            let (modified, size) = (looked.modified, looked.size);
            Some(Found { id, path, modified, size, key: key.to_owned(), name })
        });
        Ok(found.collect())
    }

    /// Returns the session that was last appended to; those without any message are passed over, and
    /// those of sub-agents.
    ///
    /// # Errors
    /// [`SessionError::Read`] when the directory is there but cannot be read.
    pub fn latest(&self, workspace: &Path) -> Result<Option<Found>, SessionError> {
        Ok(self.list(workspace)?.into_iter().find(|found| {
            let is_task = self.overview(found).is_ok_and(|overview| overview.task);
            let says = || {
                found.size > SMALL
                    || self
                        .file(found)
                        .is_ok_and(|file| scan::has_message(file, SMALL).unwrap_or(true))
            };
            !is_task && says()
        }))
    }

    /// Returns the session of the workspace whose identifier starts so.
    ///
    /// # Errors
    /// [`SessionError::Unknown`] and [`SessionError::Ambiguous`] name the identifiers there are.
    pub fn find(&self, workspace: &Path, prefix: &str) -> Result<Found, SessionError> {
        choose(prefix, &self.list(workspace)?)
    }

    /// Returns the session whose identifier starts so: of this workspace, or when it has none, of
    /// any other. When there is none at all, the text is looked for in the first prompts, in the same
    /// order.
    ///
    /// # Errors
    /// As [`Store::find`].
    pub fn find_anywhere(&self, workspace: &Path, prefix: &str) -> Result<Found, SessionError> {
        let here = match self.find(workspace, prefix) {
            Err(error @ SessionError::Unknown { .. }) => error,
            other => return other,
        };
        match choose(prefix, &self.list_all()?.found) {
            // The ones nearby are those of the workspace, unless only others are called nearly so.
            Err(SessionError::Unknown { near: false, .. }) => {}
            Err(near @ SessionError::Unknown { .. }) => {
                return self.find_words(workspace, prefix)?.ok_or(near);
            }
            other => return other,
        }
        self.find_words(workspace, prefix)?.ok_or(here)
    }
}

impl Store {
    /// Returns the session whose name or first prompt holds this text, letters of either case.
    fn find_words(&self, workspace: &Path, words: &str) -> Result<Option<Found>, SessionError> {
        let wanted = words.trim().to_lowercase();
        if wanted.chars().count() < WORDS {
            return Ok(None);
        }
        let here = self.list(workspace)?;
        let others = self.list_all()?.found;
        for all in [here, others] {
            let mut fitting: Vec<(Found, String)> = Vec::new();
            for found in all {
                // One that cannot be read fits nothing; a list says so.
                let Ok(overview) = self.overview(&found) else { continue };
                let said = [overview.name, overview.prompt].into_iter().flatten();
                if let Some(said) = said.into_iter().find(|it| it.to_lowercase().contains(&wanted))
                {
                    fitting.push((found, said));
                }
            }
            match fitting.as_slice() {
                [] => {}
                [(found, _)] => return Ok(Some(found.clone())),
                _ => {
                    return Err(SessionError::AmbiguousWords {
                        words: words.escape_debug().to_string(),
                        candidates: fitting
                            .iter()
                            .take(NAMED)
                            .map(|(found, prompt)| (found.id.clone(), shown(prompt)))
                            .collect(),
                    });
                }
            }
        }
        Ok(None)
    }
}

/// Returns a prompt as an error names it.
fn shown(prompt: &str) -> String {
    let short: String = prompt.chars().take(40).collect();
    let end = if short.len() < prompt.len() { "…" } else { "" };
    format!("{}{end}", short.escape_debug())
}

fn choose(prefix: &str, all: &[Found]) -> Result<Found, SessionError> {
    let fits = |found: &&Found| !prefix.is_empty() && found.id.starts_with(prefix);
    let mut fitting: Vec<&Found> = all.iter().filter(fits).collect();
    // A whole identifier is meant, also where another one begins with it.
    if let [exact] = fitting.iter().filter(|f| f.id == prefix).collect::<Vec<_>>()[..] {
        fitting = vec![exact];
    }
    let ids = |found: &[&Found]| found.iter().map(|f| f.id.clone()).take(NAMED).collect::<Vec<_>>();
    match fitting[..] {
        [found] => Ok(found.clone()),
        [] => {
            let mut near: Vec<(usize, &Found)> = all
                .iter()
                .map(|found| (strsim::damerau_levenshtein(prefix, &found.id), found))
                .filter(|(distance, _)| prefix.len() > 3 && *distance <= 2)
                .collect();
            near.sort_by_key(|(distance, _)| *distance);
            let near: Vec<&Found> = near.into_iter().map(|(_, found)| found).collect();
            let all: Vec<&Found> = all.iter().collect();
            Err(SessionError::Unknown {
                prefix: prefix.escape_debug().to_string(),
                known: ids(if near.is_empty() { &all } else { &near }),
                near: !near.is_empty(),
            })
        }
        _ => Err(SessionError::Ambiguous { prefix: prefix.to_owned(), ids: ids(&fitting) }),
    }
}

fn sort(found: &mut [Found]) {
    found.sort_by(|a, b| (Reverse(a.modified), &b.name).cmp(&(Reverse(b.modified), &a.name)));
}

fn is_key(name: &OsStr) -> bool {
    let hex = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    name.len() == 32 && name.as_encoded_bytes().iter().all(hex)
}

/// Returns the identifier in a session's file name; `None` for any other file.
fn id_of(name: &OsStr) -> Option<&str> {
    let (time, id) = name.to_str()?.strip_suffix(".jsonl")?.split_once('-')?;
    let fine = !id.is_empty() && id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    (fine && time.len() == TIME.len()).then_some(id)
}

/// Returns when a session began by its file's name.
pub(super) fn started_of(time: &str) -> Option<SystemTime> {
    let time = jiff::civil::DateTime::strptime("%Y%m%dT%H%M%SZ", time).ok()?;
    jiff::tz::Offset::UTC.to_timestamp(time).ok()?.try_into().ok()
}
