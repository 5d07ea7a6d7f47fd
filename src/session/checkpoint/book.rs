//! What a store of checkpoints says, and what follows from it: which changes can be undone, and what
//! each file would become. Pure.

use std::collections::{BTreeMap, HashSet};

use super::{
    MOST_CHANGES,
    line::{Change, Inside, Line, State, VERSION},
};

/// The most names that are kept of files outside of what is covered.
const MOST_ELSEWHERE: usize = 100;

/// A change that is not covered, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elsewhere {
    /// The prompt that it belongs to.
    pub group: u64,
    /// How many messages the session had then.
    pub at: u64,
    /// The path as people see it.
    pub name: String,
    /// Why it is not covered.
    pub why: String,
}

/// An undoing.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Undo {
    by: u64,
    numbers: Vec<u64>,
    left: Vec<u64>,
    is_redone: bool,
}

/// The changes of a session that are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Book {
    changes: Vec<Change>,
    elsewhere: Vec<Elsewhere>,
    undos: Vec<Undo>,
    /// Changes that the model does not know to have been undone (false), or to stand; what was said last
    /// of one counts.
    untold: BTreeMap<u64, bool>,
    dropped: u64,
    next: u64,
    next_group: u64,
}

/// What one file would become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The file.
    pub path: Inside,
    /// The changes that this undoes.
    pub numbers: Vec<u64>,
    /// What would stand there.
    pub target: State,
    /// What may stand there now, by what kli did; anything else is somebody else's.
    pub known: Vec<State>,
    /// Whether somebody else changed the file between two of the changes, so that only what came after
    /// is undone.
    pub is_part: bool,
    /// Directories that were made for it, the highest first.
    pub made: Vec<Inside>,
}

impl Book {
    /// Takes a line; false for one that does not fit.
    pub(super) fn apply(&mut self, line: Line) -> bool {
        match line {
            Line::Checkpoints { version, dropped } => {
                self.dropped = dropped;
                return version <= VERSION;
            }
            Line::Change(change) => {
                // Numbers grow, so that none means two changes.
                if change.number < self.next || change.number >= u64::MAX / 2 {
                    return false;
                }
                if change.group >= u64::MAX / 2 {
                    return false;
                }
                self.next = change.number + 1;
                self.next_group = self.next_group.max(change.group + 1);
                self.changes.push(change);
                // A store of kli's own never holds more; more than is needed goes, so that it is not
                // done again at once.
                if self.changes.len() > MOST_CHANGES {
                    self.drop_oldest(MOST_CHANGES / 4 * 3);
                }
            }
            Line::Elsewhere { group, at, name, why } => {
                if group >= u64::MAX / 2 || self.elsewhere.len() >= MOST_ELSEWHERE {
                    return false;
                }
                self.next_group = self.next_group.max(group + 1);
                self.elsewhere.push(Elsewhere { group, at, name, why });
            }
            Line::Void { number } => self.changes.retain(|change| change.number != number),
            Line::Undone { numbers, left, by } => {
                if by >= u64::MAX / 2 {
                    return false;
                }
                self.next_group = self.next_group.max(by + 1);
                self.untold.extend(numbers.iter().map(|number| (*number, false)));
                // What is only to be told has no group.
                if by > 0 {
                    self.undos.push(Undo { by, numbers, left, is_redone: false });
                }
            }
            Line::Redone { by, left } => {
                let Some(undo) = self.undos.iter_mut().find(|undo| undo.by == by) else {
                    return false;
                };
                let stays = |number: &u64| left.contains(number);
                let again = undo.numbers.iter().filter(|number| !stays(number));
                self.untold.extend(again.map(|number| (*number, true)));
                if undo.numbers.iter().any(stays) {
                    undo.numbers.retain(stays);
                } else {
                    undo.is_redone = true;
                }
            }
            Line::Stands { numbers } => {
                self.untold.extend(numbers.iter().map(|number| (*number, true)));
            }
            Line::Told => self.untold.clear(),
        }
        true
    }

    /// Returns the lines that say the same.
    pub(super) fn lines(&self) -> Vec<Line> {
        let mut lines = vec![Line::Checkpoints { version: VERSION, dropped: self.dropped }];
        lines.extend(self.changes.iter().cloned().map(Line::Change));
        lines.extend(self.elsewhere.iter().cloned().map(|it| {
            let Elsewhere { group, at, name, why } = it;
            Line::Elsewhere { group, at, name, why }
        }));
        for undo in &self.undos {
            let Undo { by, numbers, left, is_redone } = undo.clone();
            lines.push(Line::Undone { numbers, left, by });
            if is_redone {
                lines.push(Line::Redone { by, left: Vec::new() });
            }
        }
        lines.push(Line::Told);
        let untold = |stands| {
            let these = self.untold.iter().filter(move |(_, it)| **it == stands);
            these.map(|(number, _)| *number).collect::<Vec<_>>()
        };
        let (undone, stands) = (untold(false), untold(true));
        if !undone.is_empty() {
            lines.push(Line::Undone { numbers: undone, left: Vec::new(), by: 0 });
        }
        if !stands.is_empty() {
            lines.push(Line::Stands { numbers: stands });
        }
        lines
    }

    /// Returns the changes that are kept, in order.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Returns what is not covered.
    pub fn elsewhere(&self) -> &[Elsewhere] {
        &self.elsewhere
    }

    /// Returns how many changes were dropped to keep the bounds.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns the number of the next change.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Returns a number for a new group.
    pub fn next_group(&self) -> u64 {
        self.next_group.max(1)
    }

    fn undone(&self) -> HashSet<u64> {
        let standing = self.undos.iter().filter(|undo| !undo.is_redone);
        standing.flat_map(|undo| undo.numbers.iter().copied()).collect()
    }

    fn left(&self) -> HashSet<u64> {
        self.undos.iter().flat_map(|undo| undo.left.iter().copied()).collect()
    }

    /// Returns the changes of the latest prompt that is not undone, without those that an undoing left
    /// alone. With `force` those come first that the last undoing left alone.
    pub fn latest(&self, force: bool) -> Vec<u64> {
        let (undone, left) = (self.undone(), self.left());
        let newest = self.changes.iter().rev().find(|change| !change.undoes);
        if force
            && let Some(undo) = self.undos.last().filter(|undo| !undo.is_redone)
            && newest.is_none_or(|newest| newest.group < undo.by)
        {
            let still: Vec<u64> =
                undo.left.iter().copied().filter(|number| !undone.contains(number)).collect();
            if self.changes.iter().any(|change| still.contains(&change.number)) {
                return still;
            }
        }
        let open = |change: &&Change| {
            !change.undoes && !undone.contains(&change.number) && !left.contains(&change.number)
        };
        let Some(group) = self.changes.iter().rev().find(open).map(|change| change.group) else {
            return Vec::new();
        };
        let of_it = self.changes.iter().filter(|change| change.group == group);
        of_it.filter(open).map(|change| change.number).collect()
    }

    /// Returns the changes that were made when the session had more than so many messages, and are not
    /// undone.
    pub fn since(&self, messages: u64) -> Vec<u64> {
        let undone = self.undone();
        self.changes
            .iter()
            .filter(|it| !it.undoes && it.at > messages && !undone.contains(&it.number))
            .map(|change| change.number)
            .collect()
    }

    /// Returns the last undoing, when nothing was changed after it: its group and what it changed.
    pub fn last_undo(&self) -> Option<(u64, Vec<u64>)> {
        let undo = self.undos.iter().rev().find(|undo| !undo.is_redone && undo.by > 0)?;
        let of_it = |change: &&Change| change.undoes && change.group == undo.by;
        let numbers: Vec<u64> =
            self.changes.iter().filter(of_it).map(|change| change.number).collect();
        let later = |change: &Change| !change.undoes && change.group > undo.by;
        (!numbers.is_empty() && !self.changes.iter().any(later)).then_some((undo.by, numbers))
    }

    /// Returns the changes of these files that an undoing undid.
    pub fn undone_by(&self, by: u64, files: &[&Inside]) -> Vec<u64> {
        let of_it = |undo: &&Undo| undo.by == by && !undo.is_redone;
        let numbers = self.undos.iter().filter(of_it).flat_map(|undo| undo.numbers.iter().copied());
        numbers
            .filter(|number| self.change(*number).is_some_and(|it| files.contains(&&it.path)))
            .collect()
    }

    /// Returns the prompt of these changes: how many messages the session had before it.
    pub fn prompt_of(&self, numbers: &[u64]) -> Option<u64> {
        let prompts = self.changes.iter().filter(|change| numbers.contains(&change.number));
        prompts.map(|change| change.prompt).min()
    }

    /// Returns what undoing these changes means for each file, by path. Where somebody else changed a
    /// file between two of them, only what came after is undone, unless `force` says otherwise.
    pub fn steps(&self, numbers: &[u64], force: bool) -> Vec<Step> {
        let wanted: HashSet<u64> = numbers.iter().copied().collect();
        let mut by_path: BTreeMap<&Inside, Vec<&Change>> = BTreeMap::new();
        for change in self.changes.iter().filter(|change| wanted.contains(&change.number)) {
            by_path.entry(&change.path).or_default().push(change);
        }
        by_path.into_iter().filter_map(|(path, changes)| step(path, &changes, force)).collect()
    }

    /// Returns what stood in the place of each file before the first change that is kept.
    pub fn first(&self) -> BTreeMap<Inside, State> {
        let mut first = BTreeMap::new();
        for change in &self.changes {
            first.entry(change.path.clone()).or_insert_with(|| change.before.clone());
        }
        first
    }

    /// Returns the files that the model does not know to be other than it left them: those that were
    /// undone, and those that stand while the conversation went back.
    pub fn untold(&self) -> (Vec<Inside>, Vec<Inside>) {
        let (mut undone, mut stands) = (Vec::new(), Vec::new());
        for change in &self.changes {
            let paths = match self.untold.get(&change.number) {
                Some(false) => &mut undone,
                Some(true) => &mut stands,
                None => continue,
            };
            if !paths.contains(&change.path) {
                paths.push(change.path.clone());
            }
        }
        (undone, stands)
    }

    /// Drops the oldest changes until at most `most` are left, whole prompts where that is possible;
    /// returns how many went.
    pub(super) fn drop_oldest(&mut self, most: usize) -> usize {
        let before = self.changes.len();
        while self.changes.len() > most {
            let Some(oldest) = self.changes.first().map(|change| change.group) else { break };
            if self.changes.iter().all(|change| change.group == oldest) {
                let surplus = self.changes.len() - most;
                self.changes.drain(..surplus);
            } else {
                self.changes.retain(|change| change.group != oldest);
            }
        }
        let gone = before - self.changes.len();
        self.dropped = self.dropped.saturating_add(gone as u64);
        let kept: HashSet<u64> = self.changes.iter().map(|change| change.number).collect();
        for undo in &mut self.undos {
            undo.numbers.retain(|number| kept.contains(number));
            undo.left.retain(|number| kept.contains(number));
        }
        self.undos.retain(|undo| !undo.numbers.is_empty() || !undo.left.is_empty());
        self.untold.retain(|number, _| kept.contains(number));
        gone
    }

    /// Returns a change.
    pub fn change(&self, number: u64) -> Option<&Change> {
        // They are in the order of their numbers.
        let at = self.changes.binary_search_by_key(&number, |change| change.number).ok()?;
        self.changes.get(at)
    }

    /// The conversation that goes on has only so many messages: changes that were made later and still
    /// stand are news to it, and all count as made before.
    pub(super) fn goes_back(&mut self, messages: u64) {
        let stands = self.since(messages);
        let told: HashSet<u64> =
            self.changes.iter().filter(|it| it.at <= messages).map(|it| it.number).collect();
        self.untold.retain(|number, _| told.contains(number));
        self.untold.extend(stands.into_iter().map(|number| (number, true)));
        for change in &mut self.changes {
            change.prompt = change.prompt.min(messages);
            change.at = change.at.min(messages);
        }
    }
}

fn step(path: &Inside, changes: &[&Change], force: bool) -> Option<Step> {
    let mut from = changes.len().checked_sub(1)?;
    while let (Some(before), Some(here)) =
        (from.checked_sub(1).and_then(|at| changes.get(at)), changes.get(from))
    {
        if !force && !before.after.is_same(&here.before) {
            break;
        }
        from -= 1;
    }
    let chain = changes.get(from..)?;
    let known = chain.iter().flat_map(|it| [it.before.clone(), it.after.clone()]).collect();
    let target = chain.first()?.before.clone();
    let numbers = changes.iter().map(|change| change.number).collect();
    let mut made: Vec<Inside> = chain.iter().flat_map(|change| change.made.clone()).collect();
    made.sort();
    made.dedup();
    Some(Step { path: path.clone(), numbers, target, known, is_part: from > 0, made })
}

#[cfg(test)]
mod tests;
