//! The variables that a command gets: nobody can be asked, nothing is coloured, keys are withheld.

use std::ffi::OsString;

use super::stand::{Stand, USERS_FILE};
use crate::{host::environment::Environment, tool::BashOptions};

/// What git and others get as their editor: it ends at once and says what to do instead.
const NO_EDITOR: &str = "sh -c 'echo \"there is no editor in this run; give the text on the \
     command line, as with git commit -m\" >&2; exit 1'";

/// Variables that make programs colour their output even when it goes nowhere near a terminal.
const FORCED_COLOURS: [&str; 2] = ["CLICOLOR_FORCE", "FORCE_COLOR"];

/// The variables that commands inherit also when a setting names the only ones, and every name that
/// starts with `LC_`: without them hardly any program works.
pub const ALWAYS_PASSED: [&str; 11] =
    ["HOME", "LANG", "LOGNAME", "PATH", "PWD", "SHELL", "TERM", "TMPDIR", "TZ", "USER", "KLI_CALL"];

/// Variables that commands get and do not get.
#[derive(Debug, Default)]
pub(super) struct Variables {
    pub(super) set: Vec<(OsString, OsString)>,
    pub(super) remove: Vec<OsString>,
}

/// Returns the variables of a command. `inherited` is the environment it would get by itself.
pub(super) fn variables(
    options: &BashOptions,
    stand: Option<&Stand>,
    inherited: &Environment,
) -> Variables {
    let mut set: Vec<(OsString, OsString)> = [
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_PAGER", "cat"),
        ("PAGER", "cat"),
        ("GIT_EDITOR", NO_EDITOR),
        ("GIT_SEQUENCE_EDITOR", NO_EDITOR),
        ("EDITOR", NO_EDITOR),
        ("VISUAL", NO_EDITOR),
        ("TERM", "dumb"),
    ]
    .into_iter()
    .map(|(name, value)| (name.into(), value.into()))
    .collect();
    // Later ones win: the user's word stands, but for the names that hold keys.
    let is_withheld = |name: &str| options.withheld.iter().any(|withheld| withheld == name);
    set.extend(
        options
            .set
            .iter()
            .filter(|(name, _)| !is_withheld(name))
            .map(|(name, value)| (name.into(), value.into())),
    );
    let is_passed = |name: &std::ffi::OsStr| match &options.pass {
        None => true,
        Some(names) => {
            let name = name.to_string_lossy();
            name.starts_with("LC_")
                || ALWAYS_PASSED.contains(&name.as_ref())
                || names.iter().any(|passed| *passed == name)
        }
    };
    let mut remove: Vec<OsString> = FORCED_COLOURS.iter().map(OsString::from).collect();
    remove.extend(options.withheld.iter().map(OsString::from));
    remove.extend(
        inherited.vars().map(|(name, _)| name).filter(|name| !is_passed(name)).map(Into::into),
    );
    if let Some(stand) = stand {
        let chosen = options.set.iter().rfind(|(name, _)| name == "BASH_ENV");
        let own = chosen.map(|(_, file)| OsString::from(file)).or_else(|| {
            let own = inherited.var_os("BASH_ENV")?;
            is_passed("BASH_ENV".as_ref()).then(|| own.to_owned())
        });
        set.extend(own.map(|own| (USERS_FILE.into(), own)));
        set.push(("BASH_ENV".into(), stand.script.path().into()));
    }
    Variables { set, remove }
}
