//! The names of files that make the host run code without being asked for it: on entering a directory, on
//! opening it in an editor or an agent, on a command of version control, at login.
//!
//! The line: what is run only when somebody asks for the work itself (a `Makefile`, `package.json`, a
//! build script, a test, a pipeline's file) is not named here. That is the work, and it is looked at as
//! such. Pure.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// From where a pattern is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    /// Any directory.
    Anywhere,
    /// A home.
    Home,
    /// `/`.
    Root,
}

/// What reads the files of the patterns after it, and when.
struct Group {
    from: From,
    /// Follows the name and a colon.
    words: &'static str,
    /// Parts are parted by slashes; one `*` in a part stands for anything, `**` as the last part for
    /// everything below.
    patterns: &'static [&'static str],
}

const fn group(from: From, words: &'static str, patterns: &'static [&'static str]) -> Group {
    Group { from, words, patterns }
}

const GROUPS: [Group; 14] = [
    group(
        From::Anywhere,
        "direnv and its kin run it on entering the directory",
        &[
            ".envrc",
            ".autoenv",
            ".autoenv.zsh",
            ".mise.toml",
            ".mise.*.toml",
            "mise.toml",
            "mise.*.toml",
            ".mise/config.toml",
            ".mise/config.*.toml",
            "mise/config.toml",
            "mise/config.*.toml",
            ".config/mise.toml",
            ".config/mise/**",
            ".rtx.toml",
        ],
    ),
    group(From::Anywhere, "kli reads it", &[".kli/**"]),
    group(
        From::Anywhere,
        "an editor runs what it names",
        &[
            ".vscode/*.json",
            "*.code-workspace",
            ".devcontainer.json",
            ".devcontainer/devcontainer.json",
            ".devcontainer/*/devcontainer.json",
            ".idea/*.xml",
            ".idea/runConfigurations/**",
            ".idea/tools/**",
            ".run/*.run.xml",
            ".zed/*.json",
            ".nvim.lua",
            ".nvimrc",
            ".exrc",
            ".vimrc",
            ".gvimrc",
            ".lvimrc",
            ".lazy.lua",
            ".nvim/**",
            ".dir-locals.el",
            ".dir-locals-2.el",
            ".helix/*.toml",
            "*.sublime-project",
            ".fleet/*.json",
            ".vs/*.json",
            ".nova/**",
            ".theia/*.json",
        ],
    ),
    group(
        From::Anywhere,
        "an agent or its servers run what it names",
        &[
            ".mcp.json",
            ".claude/*.json",
            ".claude/hooks/**",
            ".claude/plugins/**",
            ".cursor/*.json",
            ".cursor/hooks/**",
            ".gemini/settings.json",
            ".gemini/extensions/**",
            ".gemini/hooks/**",
            ".qwen/settings.json",
            ".codex/config.toml",
            ".codex/hooks.json",
            ".codex/hooks/**",
            "opencode.json",
            "opencode.jsonc",
            ".opencode/**",
            ".crush.json",
            "crush.json",
            ".windsurf/*.json",
            ".amazonq/*.json",
            ".kiro/settings/*.json",
            ".kiro/hooks/**",
            ".roo/*.json",
            ".continue/**",
            ".aider.conf.yml",
            ".amp/*.json",
            ".factory/*.json",
            ".factory/hooks/**",
            ".junie/mcp/**",
            ".pi/**",
            ".github/hooks/**",
            ".agents/hooks/**",
        ],
    ),
    group(
        From::Anywhere,
        "a hook of version control runs it",
        &[
            ".husky/**",
            ".githooks/**",
            ".pre-commit-config.yaml",
            "lefthook.*",
            ".lefthook.*",
            "lefthook-local.*",
            ".lefthook-local.*",
            ".lefthook/**",
            ".lefthook-local/**",
            ".overcommit.yml",
            ".git-hooks/**",
        ],
    ),
    group(
        From::Anywhere,
        "Mercurial or Jujutsu reads it",
        &[
            ".hg/hgrc",
            ".hg/hgrc-not-shared",
            ".hg/sharedpath",
            ".jj/repo",
            ".jj/repo/config.toml",
            ".jj/workspace-config.toml",
            ".jj/repo/store/git_target",
        ],
    ),
    group(From::Anywhere, "a debugger reads it", &[".gdbinit", ".lldbinit"]),
    group(
        From::Home,
        "a shell or a session runs it at its start",
        &[
            ".bashrc",
            ".bash_profile",
            ".bash_login",
            ".bash_logout",
            ".bash_aliases",
            ".profile",
            ".zshrc",
            ".zshenv",
            ".zprofile",
            ".zlogin",
            ".zlogout",
            ".zsh/**",
            ".kshrc",
            ".mkshrc",
            ".shrc",
            ".shinit",
            ".cshrc",
            ".tcshrc",
            ".login",
            ".logout",
            ".inputrc",
            ".xprofile",
            ".xinitrc",
            ".xserverrc",
            ".xsession",
            ".xsessionrc",
            ".pam_environment",
            ".xonshrc",
            ".oh-my-zsh/**",
            ".config/fish/**",
            ".config/nushell/**",
            ".config/xonsh/**",
            ".config/zsh/**",
            ".config/bash/**",
            ".config/environment.d/**",
            ".config/profile.d/**",
            ".tmux.conf",
            ".config/tmux/**",
            ".screenrc",
            ".config/starship.toml",
        ],
    ),
    group(
        From::Home,
        "the session or its services start it",
        &[
            ".config/systemd/user/**",
            ".local/share/systemd/user/**",
            ".config/autostart/**",
            ".config/autostart-scripts/**",
            ".config/plasma-workspace/**",
            ".local/share/applications/**",
            ".local/share/dbus-1/services/**",
            ".local/share/kservices5/**",
            ".config/hypr/**",
            ".config/sway/**",
            ".config/i3/**",
        ],
    ),
    group(
        From::Home,
        "it is found on PATH",
        &[
            ".local/bin/**",
            "bin/**",
            ".cargo/bin/**",
            "go/bin/**",
            ".nix-profile/bin/**",
            ".npm-global/bin/**",
        ],
    ),
    group(From::Home, "ssh reads it", &[".ssh/**"]),
    group(
        From::Home,
        "git, direnv, an editor or an agent runs what it names",
        &[
            ".gitconfig",
            ".config/git/**",
            ".hgrc",
            ".config/hg/**",
            ".jjconfig.toml",
            ".config/jj/**",
            ".config/direnv/**",
            ".direnvrc",
            ".vim/**",
            ".config/nvim/**",
            ".local/share/nvim/site/**",
            ".emacs",
            ".emacs.el",
            ".emacs.d/*.el",
            ".config/emacs/*.el",
            ".config/helix/**",
            ".config/zed/**",
            ".config/Code/User/*.json",
            ".config/kli/**",
            ".config/opencode/**",
            ".config/crush/**",
            ".claude.json",
            ".cargo/config.toml",
            ".cargo/config",
            ".cargo/env",
            ".config/nix/nix.conf",
            ".config/home-manager/**",
            ".config/containers/**",
            ".docker/config.json",
        ],
    ),
    group(
        From::Root,
        "the system runs what it names",
        &[
            "etc/**",
            "var/spool/cron/**",
            "var/spool/at/**",
            "usr/lib/systemd/**",
            "usr/local/bin/**",
            "usr/local/sbin/**",
            "lib/systemd/**",
            "usr/share/applications/**",
            "usr/local/share/applications/**",
            "boot/**",
        ],
    ),
    group(From::Root, "nix reads it", &["nix/var/nix/**"]),
];

/// One pattern.
#[derive(Debug)]
struct Rule {
    from: From,
    parts: Vec<&'static [u8]>,
    words: &'static str,
}

/// How much of a rule a directory's path has matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State {
    rule: usize,
    /// The part that is next.
    at: usize,
}

/// All rules, ready to match.
#[derive(Debug)]
pub(super) struct Rules {
    all: Vec<Rule>,
    /// The rules for any directory by the first byte of their first part.
    by_byte: Vec<Vec<usize>>,
    /// Those whose first part begins with `*`.
    by_end: Vec<usize>,
    homes: Vec<PathBuf>,
}

/// What a name means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Match {
    /// The words of the rule.
    Whole(&'static str),
    /// It is a directory of a rule.
    Part(&'static str),
}

impl Rules {
    /// The rules for a user with these physical homes.
    pub(super) fn new(homes: &[PathBuf]) -> Self {
        let mut rules = Self {
            all: Vec::new(),
            by_byte: vec![Vec::new(); 256],
            by_end: Vec::new(),
            homes: homes.to_vec(),
        };
        for group in &GROUPS {
            for pattern in group.patterns {
                let parts: Vec<&[u8]> = pattern.split('/').map(str::as_bytes).collect();
                let first = parts.first().and_then(|part| part.first()).copied();
                let number = rules.all.len();
                if group.from == From::Anywhere {
                    match first {
                        Some(b'*') => rules.by_end.push(number),
                        Some(byte) => {
                            if let Some(list) = rules.by_byte.get_mut(usize::from(byte)) {
                                list.push(number);
                            }
                        }
                        None => {}
                    }
                }
                rules.all.push(Rule { from: group.from, parts, words: group.words });
            }
        }
        rules
    }

    /// What the directory `path`, absolute, has matched. Called for the roots; below them `enter` goes on.
    pub(super) fn at(&self, path: &Path) -> Vec<State> {
        let mut so_far = PathBuf::from("/");
        let mut states = self.begin(&so_far);
        for component in path.components() {
            if let Component::Normal(name) = component {
                so_far.push(name);
                states = self.enter(&states, name, &so_far);
            }
        }
        states
    }

    /// The states in the directory `name` of one with `states`; `path` is its absolute path.
    pub(super) fn enter(&self, states: &[State], name: &OsStr, path: &Path) -> Vec<State> {
        let mut next: Vec<State> = Vec::new();
        for state in self.tried(states, name.as_bytes()) {
            let Some(rule) = self.all.get(state.rule) else { continue };
            match rule.parts.get(state.at) {
                Some(&b"**") => next.push(state),
                Some(part) if state.at + 1 < rule.parts.len() && matches(part, name.as_bytes()) => {
                    next.push(State { rule: state.rule, at: state.at + 1 });
                }
                _ => {}
            }
        }
        next.extend(self.begin(path));
        next.dedup();
        next
    }

    /// What the name of a file in a directory with `states` means.
    pub(super) fn file(&self, states: &[State], name: &OsStr) -> Option<Match> {
        self.among(self.tried(states, name.as_bytes()), name)
    }

    /// The same by the rules that the directory is inside of alone: a link leads to it from somewhere
    /// else, and what else is in it is named where it stands.
    pub(super) fn file_inside(&self, states: &[State], name: &OsStr) -> Option<Match> {
        self.among(states.iter().copied().filter(|state| state.at > 0), name)
    }

    fn among(&self, states: impl Iterator<Item = State>, name: &OsStr) -> Option<Match> {
        let mut part = None;
        for state in states {
            let Some(rule) = self.all.get(state.rule) else { continue };
            let Some(pattern) = rule.parts.get(state.at) else { continue };
            if !matches(pattern, name.as_bytes()) {
                continue;
            }
            if state.at + 1 == rule.parts.len() {
                return Some(Match::Whole(rule.words));
            }
            part = Some(Match::Part(rule.words));
        }
        part
    }

    /// Whether a directory with `states` is one of a rule.
    pub(super) fn is_inside(states: &[State]) -> bool {
        states.iter().any(|state| state.at > 0)
    }

    /// The states of those rules that begin at `path` alone.
    fn begin(&self, path: &Path) -> Vec<State> {
        let home = self.homes.iter().any(|home| home == path);
        let root = path == Path::new("/");
        if !home && !root {
            return Vec::new();
        }
        self.all
            .iter()
            .enumerate()
            .filter(|(_, rule)| match rule.from {
                From::Anywhere => false,
                From::Home => home,
                From::Root => root,
            })
            .map(|(rule, _)| State { rule, at: 0 })
            .collect()
    }

    /// The states that may go on with `name`.
    fn tried<'a>(
        &'a self,
        states: &'a [State],
        name: &[u8],
    ) -> impl Iterator<Item = State> + use<'a> {
        let first = name.first().and_then(|byte| self.by_byte.get(usize::from(*byte)));
        states.iter().copied().chain(
            first
                .into_iter()
                .flatten()
                .chain(&self.by_end)
                .map(|rule| State { rule: *rule, at: 0 }),
        )
    }
}

/// Whether a name is of one part of a pattern.
fn matches(part: &[u8], name: &[u8]) -> bool {
    match part.iter().position(|byte| *byte == b'*') {
        None => part == name,
        Some(star) => {
            let (before, after) = part.split_at(star);
            let after = after.get(1..).unwrap_or_default();
            part == b"**"
                || name.len() >= before.len() + after.len()
                    && name.starts_with(before)
                    && name.ends_with(after)
        }
    }
}

#[cfg(test)]
mod tests;
