//! What git gets when only listed commands may run: a repository's own configuration names programs
//! (a file system monitor, filters, diff and merge drivers, hooks), and a list of commands must not
//! run them.
//!
//! Git reads further settings from the environment, and they win over the files (git-config(1),
//! `GIT_CONFIG_COUNT`). So before such a line runs, git is asked for the names that the repository
//! itself sets, and each that names a program is set to nothing. Where git knows no "nothing" (a
//! diff driver), it fails instead of running it. The user's own configuration stays as it is.

use std::{ffi::OsString, path::Path, time::Duration};

use crate::{
    authority::Grant,
    host::{
        environment::Environment,
        process::{self, Command, Ended},
    },
};

/// Settings that are the same for every repository.
const FIXED: [(&str, &str); 5] = [
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("log.showSignature", "false"),
    ("protocol.ext.allow", "never"),
    ("submodule.recurse", "false"),
];

/// Variables that are the same for every repository.
const VARIABLES: [(&str, &str); 2] = [
    // Looking at a repository writes nothing into it.
    ("GIT_OPTIONAL_LOCKS", "0"),
    // An object that is missing is not fetched: the repository says from where, and how.
    ("GIT_NO_LAZY_FETCH", "1"),
];

/// Variables of the caller's that would run a program.
pub(super) const REMOVED: [&str; 4] =
    ["GIT_EXTERNAL_DIFF", "GIT_CONFIG_PARAMETERS", "GIT_SSH_COMMAND", "RIPGREP_CONFIG_PATH"];

/// The most settings that are taken; a repository with more is left alone.
const MOST: usize = 2000;
/// How much is read of git's answer, in bytes.
const LONGEST: usize = 1 << 20;

/// Returns the variables under which git runs no program that the repository's configuration names.
///
/// # Errors
/// A sentence when git cannot be asked, and nothing may be run.
pub(super) async fn neutral(
    grant: &Grant,
    cwd: &Path,
    inherited: &Environment,
) -> Result<Vec<(OsString, OsString)>, String> {
    let mut names: Vec<(String, String)> =
        FIXED.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    names.extend(named_by_the_repository(grant, cwd).await?);
    let mut set: Vec<(OsString, OsString)> =
        VARIABLES.iter().map(|(name, value)| (name.into(), value.into())).collect();
    // What the caller gives in the same way stays, in front: later ones win.
    let given = inherited.var("GIT_CONFIG_COUNT").and_then(|count| count.parse().ok()).unwrap_or(0);
    for (number, (name, value)) in (given..).zip(&names) {
        set.push((format!("GIT_CONFIG_KEY_{number}").into(), name.into()));
        set.push((format!("GIT_CONFIG_VALUE_{number}").into(), value.into()));
    }
    let count: usize = given + names.len();
    set.push(("GIT_CONFIG_COUNT".into(), count.to_string().into()));
    Ok(set)
}

async fn named_by_the_repository(
    grant: &Grant,
    cwd: &Path,
) -> Result<Vec<(String, String)>, String> {
    let command = Command {
        program: "git".into(),
        args: ["config", "--list", "-z", "--name-only", "--show-scope"].map(Into::into).to_vec(),
        cwd: cwd.to_owned(),
        set: Vec::new(),
        remove: REMOVED.iter().map(OsString::from).collect(),
        input: None,
        timeout: Duration::from_secs(10),
        keep: (LONGEST, 0),
    };
    let output = match process::run(grant, command, &[], |_| {}).await {
        Ok(output) => output,
        // Without git nothing of its kind runs.
        Err(process::ExecError::Start { .. }) => return Ok(Vec::new()),
        Err(error) => return Err(error.to_string()),
    };
    if output.ended != Ended::Exit(0) || output.kept.missing > 0 {
        return Err(format!(
            "git's configuration in `{}` cannot be told, and under a list of commands git must not \
             run what it may name; nothing was started: {}",
            cwd.display(),
            String::from_utf8_lossy(&output.kept.head).chars().take(300).collect::<String>().trim()
        ));
    }
    let mut fields = output.kept.head.split(|byte| *byte == 0);
    let mut found = Vec::new();
    while let (Some(scope), Some(name)) = (fields.next(), fields.next()) {
        if scope == b"local" || scope == b"worktree" {
            let Ok(name) = std::str::from_utf8(name) else {
                return Err(format!(
                    "the git configuration in `{}` has a name that is no UTF-8; nothing was started",
                    cwd.display()
                ));
            };
            found.extend(instead(name).map(|value| (name.to_owned(), value.to_owned())));
        }
    }
    if found.len() > MOST {
        return Err(format!(
            "the git configuration in `{}` names {} programs; nothing was started",
            cwd.display(),
            found.len()
        ));
    }
    Ok(found)
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
        // A text conversion that converts nothing.
        ("diff", "textconv") if has_part => Some("cat"),
        // There is no "none": git says that the driver failed. `--no-ext-diff` goes round it.
        ("diff", "command" | "external")
        | ("filter", "required")
        | ("hook", "enabled")
        | ("merge", "driver")
        | ("gpg", "program" | "defaultkeycommand")
        | ("difftool" | "mergetool" | "man" | "browser" | "guitool" | "trailer", "cmd")
        | ("trailer" | "tar" | "hook", "command")
        | ("remote", "uploadpack" | "receivepack" | "vcs")
        | ("sendemail", "sendmailcmd" | "tocmd" | "cccmd" | "headercmd")
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
        ] {
            assert!(instead(name).is_some(), "{name}");
        }
        for name in ["user.name", "core.bare", "diff.renames", "remote.origin.url", "x"] {
            assert!(instead(name).is_none(), "control: {name}");
        }
    }
}
