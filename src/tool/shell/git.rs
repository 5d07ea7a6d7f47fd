//! What git gets when only listed commands may run: a repository's own configuration names programs
//! (a file system monitor, filters, diff and merge drivers, hooks), and a list of commands must not
//! run them.
//!
//! Git reads further settings from the environment, and they win over the files (git-config(1),
//! `GIT_CONFIG_COUNT`). So before such a line runs, git is asked for the names that the repository
//! itself sets, and each that names a program is set to nothing. Where git knows no "nothing" (a
//! diff driver), it fails instead of running it. The user's own configuration stays as it is.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
    path::Path,
    time::Duration,
};

use crate::{
    authority::Grant,
    host::{
        environment::Environment,
        files,
        process::{self, Command, Ended, Output},
    },
};

/// Settings that are the same for every repository.
///
/// A submodule's working tree is not looked into: what its own configuration names would run.
const FIXED: [(&str, &str); 10] = [
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("log.showSignature", "false"),
    ("protocol.ext.allow", "never"),
    ("submodule.recurse", "false"),
    ("diff.ignoreSubmodules", "dirty"),
    ("diff.submodule", "short"),
    ("status.submoduleSummary", "false"),
    ("fetch.recurseSubmodules", "false"),
    ("push.recurseSubmodules", "no"),
];

/// Variables that are the same for every repository.
const VARIABLES: [(&str, &str); 2] = [
    // Looking at a repository writes nothing into it.
    ("GIT_OPTIONAL_LOCKS", "0"),
    // An object that is missing is not fetched: the repository says from where, and how.
    ("GIT_NO_LAZY_FETCH", "1"),
];

/// Variables of the caller's that would run a program.
pub(super) const REMOVED: [&str; 5] = [
    "GIT_EXTERNAL_DIFF",
    "GIT_CONFIG_PARAMETERS",
    // It is honoured by `git config` alone, which would be asked about another file.
    "GIT_CONFIG",
    "GIT_SSH_COMMAND",
    "RIPGREP_CONFIG_PATH",
];

/// The most settings that are taken; a repository with more is left alone.
const MOST: usize = 2000;
/// How much is read of git's answer, in bytes.
const LONGEST: usize = 1 << 20;

/// Returns the variables under which git runs no program that the repository's configuration names.
/// `set` and `remove` are what the line itself gets: git must be asked about the same repository.
///
/// # Errors
/// A sentence when git cannot be asked, and nothing may be run.
pub(super) async fn neutral(
    grant: &Grant,
    cwd: &Path,
    inherited: &Environment,
    set: &[(OsString, OsString)],
    remove: &[OsString],
) -> Result<Vec<(OsString, OsString)>, String> {
    // What the caller gives in the same way stays, in front: later ones win.
    let given = set.iter().rfind(|(name, _)| name == COUNT).map(|(_, value)| value.as_os_str());
    let given = given.or_else(|| {
        let is_removed = remove.iter().any(|name| name == COUNT);
        inherited.var_os(COUNT).filter(|_| !is_removed)
    });
    let given = given.and_then(|given| given.to_str()?.parse().ok()).unwrap_or(0);
    let mut names: Vec<(String, String)> =
        FIXED.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let asked = Asked { grant, cwd, set: set.to_vec(), remove };
    names.extend(asked.named_by_the_repository().await?);
    // To find `.gitmodules` git may read its index, and would ask the file system monitor.
    let asked = Asked { set: [set, &variables(given, &names)].concat(), ..asked };
    names.extend(asked.named_in_modules().await?);
    Ok(variables(given, &names))
}

/// The variable that says how many settings the environment holds.
const COUNT: &str = "GIT_CONFIG_COUNT";

/// Returns the variables that set these settings, behind those that are `given`.
fn variables(given: usize, names: &[(String, String)]) -> Vec<(OsString, OsString)> {
    let mut set: Vec<(OsString, OsString)> =
        VARIABLES.iter().map(|(name, value)| (name.into(), value.into())).collect();
    for (number, (name, value)) in (given..).zip(names) {
        set.push((format!("GIT_CONFIG_KEY_{number}").into(), name.into()));
        set.push((format!("GIT_CONFIG_VALUE_{number}").into(), value.into()));
    }
    set.push((COUNT.into(), given.saturating_add(names.len()).to_string().into()));
    set
}

/// Where git is asked, and with which variables.
struct Asked<'a> {
    grant: &'a Grant,
    cwd: &'a Path,
    set: Vec<(OsString, OsString)>,
    remove: &'a [OsString],
}

impl Asked<'_> {
    /// Runs git; `None` when there is none.
    async fn git(&self, words: &[&OsStr]) -> Result<Option<Output>, String> {
        let command = Command {
            program: "git".into(),
            args: words.iter().map(|word| (*word).to_owned()).collect(),
            cwd: self.cwd.to_owned(),
            set: self.set.clone(),
            remove: self.remove.to_vec(),
            input: None,
            timeout: Duration::from_secs(10),
            keep: (LONGEST, 0),
        };
        match process::run(self.grant, command, &[], |_| {}).await {
            Ok(output) => Ok(Some(output)),
            // Without git nothing of its kind runs.
            Err(process::ExecError::Start { .. }) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn named_by_the_repository(&self) -> Result<Vec<(String, String)>, String> {
        let words = ["config", "--list", "-z", "--name-only", "--show-scope"].map(OsStr::new);
        let Some(output) = self.git(&words).await? else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        let listed = self.listed(&output)?;
        let mut fields = listed.split(|byte| *byte == 0);
        while let (Some(scope), Some(name)) = (fields.next(), fields.next()) {
            if scope == b"local" || scope == b"worktree" {
                found.push(self.name(name)?);
            }
        }
        self.instead(found)
    }

    /// Returns what the settings that name a program are replaced by.
    fn instead(&self, found: Vec<String>) -> Result<Vec<(String, String)>, String> {
        let instead = |name: String| instead(&name).map(|value| (name, value.to_owned()));
        let found: Vec<(String, String)> = found.into_iter().filter_map(instead).collect();
        if found.len() > MOST {
            return Err(format!(
                "the git configuration in `{}` names {} programs; nothing was started",
                self.cwd.display(),
                found.len()
            ));
        }
        Ok(found)
    }

    /// Looks through `.gitmodules`, wherever git reads it from: it may say that a submodule is looked
    /// into although the rest is not.
    async fn named_in_modules(&self) -> Result<Vec<(String, String)>, String> {
        let list = ["config", "--list", "-z", "--name-only"].map(OsStr::new);
        let top = self.git(&["rev-parse", "--show-toplevel"].map(OsStr::new)).await?;
        let top =
            top.filter(|output| output.ended == Ended::Exit(0)).map(|output| output.kept.head);
        let file = top
            .as_deref()
            .and_then(|top| top.strip_suffix(b"\n"))
            .map(|top| Path::new(OsStr::from_bytes(top)).join(".gitmodules"));
        let mut found = Vec::new();
        if let Some(file) = file.filter(|file| files::is_there(file)) {
            let words = [&list[..], &[OsStr::new("--file"), file.as_os_str()]].concat();
            if let Some(output) = self.git(&words).await? {
                found.extend(self.names(&output)?);
            }
            return self.instead(found);
        }
        for blob in [":.gitmodules", "HEAD:.gitmodules"] {
            let words = [&list[..], &["--blob", blob].map(OsStr::new)].concat();
            let output = self.git(&words).await?;
            // Mostly there is none.
            if let Some(output) = output.filter(|output| output.ended == Ended::Exit(0)) {
                found.extend(self.names(&output)?);
            }
        }
        self.instead(found)
    }

    fn listed<'o>(&self, output: &'o Output) -> Result<&'o [u8], String> {
        if output.ended == Ended::Exit(0) && output.kept.missing == 0 {
            return Ok(&output.kept.head);
        }
        Err(format!(
            "git's configuration in `{}` cannot be told, and under a list of commands git must not \
             run what it may name; nothing was started: {}",
            self.cwd.display(),
            String::from_utf8_lossy(&output.kept.head).chars().take(300).collect::<String>().trim()
        ))
    }

    fn names(&self, output: &Output) -> Result<Vec<String>, String> {
        let names = self.listed(output)?.split(|byte| *byte == 0);
        names.filter(|name| !name.is_empty()).map(|name| self.name(name)).collect()
    }

    fn name(&self, name: &[u8]) -> Result<String, String> {
        std::str::from_utf8(name).map(str::to_owned).map_err(|_| {
            format!(
                "the git configuration in `{}` has a name that is no UTF-8; nothing was started",
                self.cwd.display()
            )
        })
    }
}

/// Returns what a setting is replaced by when it names a program; git writes section and key in
/// lower case.
fn instead(name: &str) -> Option<&'static str> {
    let (section, rest) = name.split_once('.')?;
    let key = rest.rsplit_once('.').map_or(rest, |(_, key)| key);
    let has_part = rest.contains('.');
    match (section, key) {
        // Empty means none (gitattributes(5) for filters, gitcredentials(7)), and an empty alias is
        // refused by git.
        ("filter", "clean" | "smudge" | "process") | ("credential", "helper") | ("alias", _) => {
            Some("")
        }
        ("diff" | "merge", "tool" | "guitool") if !has_part => Some(""),
        ("init", "templatedir") => Some(""),
        ("submodule", "ignore") => Some("dirty"),
        // A text conversion that converts nothing.
        ("diff", "textconv") if has_part => Some("cat"),
        // There is no "none": git says that the driver failed. `--no-ext-diff` goes round it.
        ("diff", "command" | "external")
        | ("filter", "required")
        | ("hook", "enabled")
        | ("merge", "driver")
        | ("gpg", "program" | "defaultkeycommand")
        | ("difftool" | "mergetool" | "man" | "browser" | "guitool" | "trailer", "cmd")
        | ("difftool" | "mergetool" | "man" | "browser" | "guitool" | "lfs", "path")
        | ("lfs", "clean" | "smudge")
        | ("imap", "tunnel")
        | ("gc", "recentobjectshook")
        | ("instaweb", "httpd" | "browser")
        | ("trailer" | "tar" | "hook", "command")
        | ("remote", "uploadpack" | "receivepack" | "vcs")
        | ("sendemail", "sendmailcmd" | "smtpserver" | "tocmd" | "cccmd" | "headercmd")
        | ("interactive", "difffilter")
        | ("sequence", "editor")
        | ("uploadpack", "packobjectshook")
        | ("core", "sshcommand" | "gitproxy" | "askpass" | "alternaterefscommand" | "editor") => {
            Some("false")
        }
        ("pager", _) | ("core", "pager") => Some("cat"),
        ("core", "attributesfile") => Some("/dev/null"),
        ("submodule", "update") => Some("none"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::instead;

    #[test]
    fn what_names_a_program_is_replaced_and_the_rest_is_not() {
        for name in [
            "filter.x.clean",
            "filter.a.b.process",
            "diff.x.textconv",
            "diff.x.command",
            "diff.external",
            "merge.x.driver",
            "gpg.program",
            "gpg.ssh.program",
            "alias.st",
            "core.sshcommand",
            "pager.log",
            "hook.x.command",
            "submodule.a.b.ignore",
            "difftool.x.path",
            "diff.tool",
            "lfs.customtransfer.x.path",
            "lfs.extension.x.clean",
            "imap.tunnel",
            "gc.recentobjectshook",
            "sendemail.me.smtpserver",
        ] {
            assert!(instead(name).is_some(), "{name}");
        }
        for name in ["user.name", "core.bare", "diff.renames", "remote.origin.url", "x"] {
            assert!(instead(name).is_none(), "control: {name}");
        }
    }
}
