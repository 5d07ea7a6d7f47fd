//! What stands beside a conversation in the terminal: the files that can be mentioned, what was said
//! before, the person's editor, and the sessions to choose from.

use std::{
    collections::{BTreeMap, BTreeSet},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc as blocking,
    },
    thread,
    time::{Duration, Instant},
};

use rustix::fs::FileType;
use tokio::sync::mpsc::{self, UnboundedSender};

use crate::{
    authority::{Atom, Grant, Request, Subject},
    config::Paths,
    host::{
        beneath::Beneath,
        environment::Environment,
        files::{self, Expected, Opened},
        process::editor::{self, Became, Editor},
        walk::{self, Rules, Visit, Visitor},
    },
    session::{Entry, Found as Session, History, Overview, Store},
    tui::{
        Answer, Editing, EditorIs,
        complete::{FILES, Files, can_be_mentioned},
        found::Found,
        picker::{Choices, Item, Then},
        state::State,
    },
};

use super::super::{
    error::CliError,
    journal::SharedLog,
    sessions::{minutes, size},
    setup::Setup,
};

/// How long the files are looked for.
const WALK: Duration = Duration::from_secs(2);
/// How much of each session is read to be searched, in bytes, and of all of them together.
const SEARCHED: u64 = 256 << 10;
const SEARCHED_IN_ALL: u64 = 32 << 20;

/// Looks for the files that can be mentioned, on a thread of its own: those of the workspace that
/// ignore rules leave in and that the run may read.
pub(super) fn look_for_files(
    workspace: PathBuf,
    subject: Arc<Subject>,
    answers: &UnboundedSender<Answer>,
) {
    let tell = |answers: &UnboundedSender<Answer>, files| {
        drop(answers.send(Answer { found: Some(Found::Files(files)), ..Answer::default() }));
    };
    let out = answers.clone();
    let look = move || tell(&out, mentionable(&workspace, &subject, WALK, FILES));
    if thread::Builder::new().name("kli-files".to_owned()).spawn(look).is_err() {
        tell(answers, Files::default());
    }
}

fn mentionable(workspace: &Path, subject: &Subject, most: Duration, count: usize) -> Files {
    let Ok(Opened::Directory(handle)) = files::open(workspace) else { return Files::default() };
    let root = Arc::new(Beneath::new(handle, workspace));
    let (stop, start) = (AtomicBool::new(false), Instant::now());
    let found = Mutex::new(Vec::new());
    let visitor = || -> Visitor<'_> {
        Box::new(|relative, kind| {
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            if found.len() >= count || start.elapsed() > most {
                stop.store(true, Ordering::Relaxed);
                return Visit::Passed;
            }
            let end = match kind {
                FileType::RegularFile => "",
                FileType::Directory => "/",
                _ => return Visit::Passed,
            };
            let Some(path) = relative.to_str().map(|path| format!("{path}{end}")) else {
                return Visit::Passed;
            };
            let request = Request::path(Atom::FileRead, workspace.join(relative));
            if !can_be_mentioned(&path) || subject.check(request).is_err() {
                return Visit::Passed;
            }
            found.push(path);
            Visit::Taken
        })
    };
    walk::walk(&root, Rules { ignore: true, threads: 1 }, &stop, &visitor);
    let is_cut = stop.load(Ordering::Relaxed);
    let mut paths = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    paths.sort_unstable();
    Files { paths, is_cut }
}

/// Hands out what was said before, and keeps what comes, until nobody says anything any more.
pub(super) fn keep_history(
    history: &History,
    said: &blocking::Receiver<String>,
    answers: &UnboundedSender<Answer>,
) {
    let mut is_told = false;
    let mut tell = |error: &crate::host::HostError| {
        if !std::mem::replace(&mut is_told, true) {
            let errors = format!("earlier prompts are not kept: {}", error.sentence());
            drop(answers.send(Answer { errors, ..Answer::default() }));
        }
    };
    match history.read() {
        Ok(found) => {
            let found = Some(Found::History(found));
            drop(answers.send(Answer { found, ..Answer::default() }));
        }
        Err(error) => tell(&error),
    }
    for text in said {
        if let Err(error) = history.add(&text) {
            tell(&error);
        }
    }
}

/// Starts the person's editor. Only the environment that kli was started with names it.
pub(super) fn edit(
    environment: &Environment,
    paths: Option<&Paths>,
    text: &str,
    terminal: &OwnedFd,
) -> Result<Editing, String> {
    let state = paths
        .map(Paths::state)
        .ok_or("no home directory is known, so there is no place for a file to edit; set HOME")?;
    let name = editor::choose(|name| environment.var_os(name).map(ToOwned::to_owned))?;
    let (changes, seen) = mpsc::unbounded_channel();
    let shown = name.to_string_lossy().into_owned();
    let tell = move |became| drop(changes.send(is_now(became, &shown)));
    let grant = Grant::own_state(state);
    let running = editor::start(&grant, state, &name, text, terminal, tell)
        .map_err(|error| format!("{}; set `VISUAL` or `EDITOR`", error.sentence()))?;
    let pid = running.pid();
    Ok(Editing {
        changes: seen,
        go_on: Box::new(move || Editor::go_on(pid)),
        end: Box::new(running),
    })
}

fn is_now(became: Became, name: &str) -> EditorIs {
    let (text, killed) = match became {
        Became::Stopped => return EditorIs::Stopped,
        Became::Text(text) => (Ok(Some(text)), false),
        Became::Failed(sentence) => (Err(sentence), false),
        Became::Killed(signal) => {
            let name = crate::host::process::signal_name(signal);
            (Err(format!("{name} ended the editor; nothing has changed")), true)
        }
        // A shell that split the line says a signal so (POSIX, 2.8.2).
        Became::Left(code) => {
            let sentence = format!("`{name}` ended with exit code {code}; nothing has changed");
            (Err(sentence), code > 128)
        }
    };
    EditorIs::Ended { text, killed }
}

/// Gives the session a name.
pub(super) fn name(rest: &str, log: Option<&SharedLog>) -> Result<Answer, CliError> {
    let log = log.ok_or_else(|| super::no_session("name"))?;
    if rest.is_empty() {
        let log = log.lock().unwrap_or_else(PoisonError::into_inner);
        let text = match log.name() {
            Some(name) => format!("this session is called `{name}`"),
            None => "this session has no name; `/name TEXT` gives it one".to_owned(),
        };
        return Ok(Answer { text, ..Answer::default() });
    }
    let name = State::name_of(rest).map_err(CliError::config)?;
    let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
    log.append(&Entry::Name(&name))
        .and_then(|()| log.sync())
        .map_err(|error| CliError::internal(error.to_string()))?;
    Ok(Answer { text: format!("this session is called `{name}`"), ..Answer::default() })
}

/// A session with what a list says of it.
struct Listed {
    session: Session,
    overview: Overview,
}

/// The sessions of this directory, the latest first; those of sub-agents are left out.
fn listed(setup: &Setup) -> Result<(Store, Vec<Listed>), CliError> {
    let paths = setup.paths.as_ref().ok_or_else(|| super::no_session("go on with"))?;
    let store = Store::new(paths.state());
    let found =
        store.list(&setup.workspace).map_err(|error| CliError::internal(error.to_string()))?;
    let listed = found
        .into_iter()
        .filter_map(|session| {
            let overview = store.overview(&session).ok().filter(|overview| !overview.task)?;
            Some(Listed { session, overview })
        })
        .collect();
    Ok((store, listed))
}

fn item(listed: &Listed) -> Item {
    let (session, overview) = (&listed.session, &listed.overview);
    let prompt = overview.prompt.as_deref().unwrap_or("(nothing said yet)");
    let text = match &overview.name {
        Some(name) => format!("“{name}” {prompt}"),
        None => prompt.to_owned(),
    };
    Item {
        value: session.id.clone(),
        lead: minutes(session.modified),
        text,
        more: format!("{} · {}", size(session.size), session.id),
        also: String::new(),
    }
}

/// The other sessions of this directory, to go on with one.
pub(super) fn sessions(setup: &Setup, now: Option<&str>) -> Result<Answer, CliError> {
    let (store, listed) = listed(setup)?;
    let mut left = SEARCHED_IN_ALL;
    let items: Vec<Item> = listed
        .iter()
        .filter(|listed| now != Some(listed.session.id.as_str()))
        .map(|listed| {
            let mut item = item(listed);
            let most = SEARCHED.min(left);
            left = left.saturating_sub(most.min(listed.session.size));
            item.also = store.said(&listed.session, most).unwrap_or_default();
            item
        })
        .collect();
    let none = "there is no other session of this directory to go on with";
    Ok(choices("Sessions of this directory", items, 0, none))
}

fn choices(title: &str, items: Vec<Item>, first: usize, none: &str) -> Answer {
    if items.is_empty() {
        return Answer { errors: none.to_owned(), failed: true, ..Answer::default() };
    }
    let choices = Choices { title: title.to_owned(), items, first, then: Then::Command("resume") };
    Answer { found: Some(Found::Choices(choices)), ..Answer::default() }
}

/// This session with all that are copies of it or of what it is a copy of, to go on with one.
pub(super) fn tree(setup: &Setup, now: Option<&str>) -> Result<Answer, CliError> {
    let now = now.ok_or_else(|| super::no_session("show a tree of"))?;
    let (_, listed) = listed(setup)?;
    let rows = branches(&listed, now);
    let first = rows.iter().position(|(_, listed)| listed.session.id == now).unwrap_or(0);
    let items = rows
        .into_iter()
        .map(|(lead, listed)| {
            let mut item = item(listed);
            item.lead = format!("{lead}{}", item.lead);
            if listed.session.id == now {
                item.text = format!("(now) {}", item.text);
            }
            item
        })
        .collect();
    let none = "nothing of this session is kept yet";
    Ok(choices("This session and its copies", items, first, none))
}

/// The tree around one session, depth first, each with the lines that lead to it. What a file says of
/// its parent may be anything, so nothing is visited twice.
fn branches<'a>(listed: &'a [Listed], now: &str) -> Vec<(String, &'a Listed)> {
    let by_id: BTreeMap<&str, &Listed> =
        listed.iter().map(|listed| (listed.session.id.as_str(), listed)).collect();
    let parent = |id: &str| by_id.get(by_id.get(id)?.overview.parent.as_deref()?).copied();
    let mut top = now;
    let mut seen = BTreeSet::from([now]);
    while let Some(above) = parent(top).filter(|above| seen.insert(above.session.id.as_str())) {
        top = above.session.id.as_str();
    }
    let mut rows = Vec::new();
    let mut seen = BTreeSet::new();
    let mut waiting: Vec<(String, String, &str)> = vec![(String::new(), String::new(), top)];
    while let Some((own, below, id)) = waiting.pop() {
        let Some(found) = by_id.get(id).filter(|_| seen.insert(id)) else { continue };
        rows.push((own, *found));
        let mut children: Vec<&Listed> =
            listed.iter().filter(|other| other.overview.parent.as_deref() == Some(id)).collect();
        children.sort_by_key(|child| (child.overview.started, child.session.id.clone()));
        // The last is on top of the stack first.
        for (number, child) in children.iter().rev().enumerate() {
            let (mark, line) = if number == 0 { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            waiting.push((
                format!("{below}{mark}"),
                format!("{below}{line}"),
                child.session.id.as_str(),
            ));
        }
    }
    rows
}

/// Writes the exported session to a new file, as far as the run may write.
pub(super) fn export_to(
    setup: &Setup,
    subject: &Subject,
    name: &str,
    text: &str,
) -> Result<Answer, CliError> {
    let home = setup.environment.home();
    let path = files::resolve(Path::new(name), &setup.workspace, home.as_deref())
        .map_err(|error| CliError::config(error.sentence()))?;
    subject
        .check_tool("write", &Atom::FileWrite)
        .and_then(|()| subject.check(Request::path(Atom::FileWrite, &path)))
        .map_err(|denial| CliError::config(denial.sentence()))
        .and_then(|grant| {
            let stop = AtomicBool::new(false);
            files::replace(&grant, &path, text.as_bytes(), Expected::Absent, &stop).map_err(
                |error| {
                    let there = files::is_there(&path);
                    let sentence = if there {
                        format!("`{}` is there already; nothing was written", path.display())
                    } else {
                        error.sentence()
                    };
                    CliError::config(sentence).hint("name a new file")
                },
            )
        })?;
    Ok(Answer { text: format!("written to `{}`", path.display()), ..Answer::default() })
}

/// What this version has not, and which settings it passes over for that.
pub(super) fn not_yet(setup: &Setup, what: &str, key: &str) -> Answer {
    let mut text = format!("this version of kli has no {what}");
    let quoted = format!("`{key}`");
    for warning in setup.warnings.iter().filter(|warning| warning.contains(&quoted)) {
        text.push('\n');
        text.push_str(warning);
    }
    Answer { text, ..Answer::default() }
}

#[cfg(test)]
mod tests;
