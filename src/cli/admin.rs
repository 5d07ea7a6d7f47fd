//! `kli-admin`: the same program under another name, for the side outside a jail. It knows what
//! looks at and changes kli's own settings and nothing that asks a model, runs a tool or a
//! project's code.

use std::{
    ffi::{OsStr, OsString},
    path::Path,
};

use clap::{
    ArgMatches, Command, CommandFactory as _, Error, FromArgMatches as _, Parser as _,
    error::ErrorKind,
};

use super::args::Arguments;

/// The name under which kli knows only this.
pub(super) const NAME: &str = "kli-admin";

const ABOUT: &str = "Looks after kli's settings, keys, trust and sessions; it never asks a model";

/// Its commands, a closed list: what kli learns besides is not there until it is named here.
const COMMANDS: [&str; 8] =
    ["auth", "completion", "config", "doctor", "sandbox", "sessions", "trust", "version"];

/// Its flags: those of the preview of what a run may do.
const FLAGS: [&str; 8] = [
    "print_authority",
    "json",
    "output_format",
    "profile",
    "capabilities",
    "read_only",
    "no_bash",
    "no_eval",
];

/// Says whether the program was started under that name, in whatever directory and through whatever
/// link.
pub(super) fn is_meant(words: &[OsString]) -> bool {
    words.first().and_then(|word| Path::new(word).file_name()) == Some(OsStr::new(NAME))
}

/// Reads a command line, `kli-admin`'s or kli's.
///
/// # Errors
/// clap's, for what is not known, and for help and version.
pub(super) fn parse(words: &[OsString], admin: bool) -> Result<Arguments, Error> {
    if !admin {
        return Arguments::try_parse_from(words);
    }
    let mut command = command();
    let matches = command.try_get_matches_from_mut(words)?;
    if let Some(what) = unknown(&matches) {
        return Err(command.error(ErrorKind::UnknownArgument, what));
    }
    Arguments::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Returns `kli-admin`'s command line alone, as completions and pages want it.
pub(super) fn visible() -> Command {
    let kli = Arguments::command();
    let known = |name: &str, list: &[&str]| list.contains(&name);
    Command::new(NAME)
        .version(env!("CARGO_PKG_VERSION"))
        .about(ABOUT)
        .max_term_width(100)
        .args_conflicts_with_subcommands(true)
        .args(kli.get_arguments().filter(|arg| known(arg.get_id().as_str(), &FLAGS)).cloned())
        .subcommands(kli.get_subcommands().filter(|sub| known(sub.get_name(), &COMMANDS)).cloned())
        .mut_subcommand("sessions", without_compact)
}

/// Of the sessions, what asks a model is hidden.
fn without_compact(sessions: Command) -> Command {
    sessions.mut_subcommand("compact", |compact| compact.hide(true))
}

/// Returns `kli-admin`'s part of the definition; the rest is hidden, and refused by [`unknown`].
fn command() -> Command {
    let mut command = Arguments::command()
        .name(NAME)
        .bin_name(NAME)
        .about(ABOUT)
        .after_long_help(None::<&'static str>)
        .override_usage("kli-admin <COMMAND>\n       kli-admin --print-authority [OPTIONS]");
    let of = |ids: Vec<String>, known: &[&str]| -> Vec<String> {
        ids.into_iter().filter(|id| !known.contains(&id.as_str())).collect()
    };
    let hidden = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    for name in of(hidden, &COMMANDS) {
        command = command.mut_subcommand(name, |sub| sub.hide(true));
    }
    command = command.mut_subcommand("sessions", without_compact);
    let hidden = command.get_arguments().map(|arg| arg.get_id().to_string()).collect();
    for id in of(hidden, &FLAGS) {
        command = command.mut_arg(id, |arg| arg.hide(true));
    }
    command
}

/// Returns what is wrong with a line that kli would take.
fn unknown(matches: &ArgMatches) -> Option<String> {
    if let Some(("sessions", sub)) = matches.subcommand()
        && sub.subcommand_name() == Some("compact")
    {
        return Some(
            "`sessions compact` asks a model, which kli-admin never does; use `kli sessions compact`"
                .to_owned(),
        );
    }
    if let Some(name) = matches.subcommand_name() {
        return (!COMMANDS.contains(&name))
            .then(|| format!("`{name}` is no command of kli-admin; use `kli {name}`"));
    }
    if let Some(word) = matches.get_one::<String>("prompt") {
        let kli = Arguments::command();
        let exists = |name: &str| kli.get_subcommands().any(|sub| sub.get_name() == name);
        let near = COMMANDS
            .iter()
            .filter(|known| exists(known))
            .find(|known| strsim::damerau_levenshtein(word, known) <= 2);
        if COMMANDS.contains(&word.as_str()) && !exists(word) {
            return Some(format!("`kli-admin {word}` is not part of this version"));
        }
        return Some(match near {
            Some(near) => format!("unknown command `{word}`, did you mean `kli-admin {near}`?"),
            None => "kli-admin takes no prompt, as it never asks a model; use `kli`".to_owned(),
        });
    }
    let given = |id: &clap::Id| {
        matches.value_source(id.as_str()) == Some(clap::parser::ValueSource::CommandLine)
    };
    let groups = |id: &clap::Id| matches.try_contains_id(id.as_str()).is_err();
    if let Some(id) = matches
        .ids()
        .filter(|id| !groups(id) && given(id))
        .find(|id| !FLAGS.contains(&id.as_str()) && id.as_str() != "RunArguments")
    {
        let flag = id.as_str().replace('_', "-");
        return Some(format!(
            "`--{flag}` is no option of kli-admin, as it runs no prompt; use `kli`"
        ));
    }
    (!matches.get_flag("print_authority"))
        .then(|| "kli-admin needs a command; `kli-admin --help` lists them".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(words: &[&str]) -> Result<Arguments, String> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        assert!(is_meant(&words));
        parse(&words, true).map_err(|error| error.to_string())
    }

    #[test]
    fn the_name_decides_wherever_the_program_lies() {
        let meant = |word: &str| is_meant(&[word.into()]);
        assert!(meant("kli-admin") && meant("/a b/kli-admin") && meant("../kli-admin"));
        assert!(!meant("kli") && !meant("/kli-admin/kli") && !meant("kli-admin2") && !meant(""));
        assert!(!is_meant(&[]));
    }

    #[test]
    fn it_knows_its_commands_and_nothing_else() {
        for line in [
            &["kli-admin", "auth", "status"][..],
            &["/x/kli-admin", "config", "path"],
            &["kli-admin", "sessions", "list"],
            &["kli-admin", "trust", "--list"],
            &["kli-admin", "version"],
            &["kli-admin", "doctor", "--json"],
            &["kli-admin", "--print-authority", "--read-only", "--json"],
        ] {
            assert!(said(line).is_ok(), "{line:?}");
        }
        for (line, part) in [
            (&["kli-admin"][..], "needs a command"),
            (&["kli-admin", "-p", "hi"], "takes no prompt"),
            (&["kli-admin", "-p"], "`--print` is no option of kli-admin"),
            (&["kli-admin", "hi there"], "takes no prompt"),
            (&["kli-admin", "atuh"], "did you mean `kli-admin auth`?"),
            (&["kli-admin", "sandbox"], "kli-admin sandbox <COMMAND>"),
            (&["kli-admin", "demo"], "`demo` is no command of kli-admin; use `kli demo`"),
            (&["kli-admin", "--print-authority", "--model", "a/b"], "`--model` is no option"),
            (&["kli-admin", "--print-authority", "--continue"], "is no option of kli-admin"),
            (&["kli-admin", "--bogus"], "--bogus"),
        ] {
            let error = said(line).unwrap_err();
            assert!(error.contains(part), "{line:?}: {error}");
        }
    }

    #[test]
    fn the_help_shows_only_what_it_knows() {
        let help = said(&["kli-admin", "--help"]).unwrap_err();
        for part in ["kli-admin", "auth", "trust", "sessions", "--print-authority", "--read-only"] {
            assert!(help.contains(part), "{part}: {help}");
        }
        for part in ["demo", "--model", "[PROMPT]", "--continue", "--print ", "--log", "generate"] {
            assert!(!help.contains(part), "{part}: {help}");
        }
        let version = said(&["kli-admin", "--version"]).unwrap_err();
        assert!(version.starts_with("kli-admin "), "{version}");
    }
}
