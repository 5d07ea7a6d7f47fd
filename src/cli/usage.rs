//! A command line that cannot be read, said as kli says every error: one sentence, and hints. What
//! clap found is the material; its own layout, and the words it would repeat, are not shown.

use std::ffi::OsString;

use clap::{
    CommandFactory as _, Error,
    error::{ContextKind, ContextValue, ErrorKind},
};

use super::{args::Arguments, error::CliError};

/// Commands that are known by name and are not part of this version.
const LATER: [&str; 3] = ["extension", "mcp", "mcp-serve"];

/// The longest line of usage that helps, in bytes: some name every option.
const USAGE_LIMIT: usize = 100;

/// Returns the error for what clap refused. `words` is the whole command line, `program` its name.
pub(super) fn refused(error: &Error, words: &[OsString], program: &str) -> CliError {
    let word = |at: usize| words.get(at).and_then(|word| word.to_str()).unwrap_or_default();
    let named = strings(error, ContextKind::InvalidArg);
    // A key on the command line is in the shell's history and in everybody's list of processes; at
    // least it is not repeated here.
    if error.kind() == ErrorKind::UnknownArgument && (word(1), word(2)) == ("auth", "set") {
        return CliError::config("a key is not given on the command line, where others see it")
            .hint(format!("run `{program} auth set PROVIDER` and type the key, or pipe it in"))
            .hint("if it was a key that you typed, it is in your shell's history now");
    }
    if error.kind() == ErrorKind::MissingRequiredArgument && named == ["--print-authority"] {
        return CliError::config("`--json` goes with `--print-authority`")
            .hint("a run prints JSON with `--output-format json`");
    }
    if error.kind() == ErrorKind::ArgumentConflict
        && let [extra] = strings(error, ContextKind::InvalidSubcommand).as_slice()
    {
        if let Some(error) = no_command(word(1), program) {
            return error;
        }
        return CliError::config(format!("unexpected word `{extra}`: the prompt is one argument"))
            .hint("put all of the prompt into quotes");
    }
    let text = error.render().to_string();
    let mut said = CliError::config(sentence(error, &text, &named));
    for kind in
        [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue]
    {
        // The last one is the nearest.
        if let Some(nearest) = strings(error, kind).last() {
            said = said.hint(format!("did you mean `{nearest}`?"));
        }
    }
    if let ([missing], ErrorKind::MissingRequiredArgument) = (named.as_slice(), error.kind())
        && let Some(values) = values_of(words, missing)
    {
        said = said.hint(format!("the values are {values}"));
    }
    let below = subcommand(words);
    let usage = text.lines().find_map(|line| line.strip_prefix("Usage: ")).unwrap_or_default();
    if said.hints.is_empty() && error.kind() == ErrorKind::UnknownArgument && below.is_empty() {
        if named.iter().any(|argument| argument.starts_with('-')) {
            said = said.hint("a prompt that begins with `-` goes after `--`");
        }
        return said.hint(format!("`{program} --help` lists the options"));
    }
    match usage.len() {
        0 | USAGE_LIMIT.. => said.hint(format!("see `{program}{below} --help`")),
        _ => said.hint(format!("usage: `{usage}`")),
    }
}

/// Returns the values that an argument of the command in a line can have, when they are a few words.
fn values_of(words: &[OsString], argument: &str) -> Option<String> {
    let mut at = Arguments::command();
    for word in words.iter().skip(1).filter_map(|word| word.to_str()) {
        let Some(next) = at.find_subcommand(word).cloned() else { break };
        at = next;
    }
    let argument = at.get_arguments().find(|it| it.to_string() == argument)?;
    let values = argument.get_possible_values();
    let names: Vec<&str> = values
        .iter()
        .filter(|it| !it.is_hide_set())
        .map(clap::builder::PossibleValue::get_name)
        .collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Returns the commands that a line begins with, each after a blank.
fn subcommand(words: &[OsString]) -> String {
    let mut at = Arguments::command();
    let mut path = String::new();
    for word in words.iter().skip(1).filter_map(|word| word.to_str()) {
        let Some(next) = at.find_subcommand(word).cloned() else { break };
        path = format!("{path} {word}");
        at = next;
    }
    path
}

/// Refuses a word in the place of a command that names a command of another version, or nearly one
/// of this.
pub(super) fn no_command(word: &str, program: &str) -> Option<CliError> {
    if LATER.contains(&word) {
        return Some(
            CliError::config(format!("`{program} {word}` is not part of this version")).hint(
                format!(
                    "`{program} --help` lists the commands; a prompt of that word goes after `-p`"
                ),
            ),
        );
    }
    let kli = Arguments::command();
    let known = kli.get_subcommands().filter(|sub| !sub.is_hide_set()).map(clap::Command::get_name);
    let near = |name: &&str| strsim::damerau_levenshtein(word, name) <= 2;
    known.chain(["help"]).find(near).map(|near| {
        CliError::config(format!("unknown command `{word}`"))
            .hint(format!("did you mean `{program} {near}`? A prompt of that word goes after `-p`"))
    })
}

/// Returns what clap says, in one sentence, with values in backticks.
fn sentence(error: &Error, text: &str, named: &[String]) -> String {
    if error.kind() == ErrorKind::MissingRequiredArgument && !named.is_empty() {
        return format!("`{}` is missing", named.join("`, `"));
    }
    // Up to the first blank line: what is wrong, with the names that are meant.
    let lines: Vec<&str> =
        text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let text = lines.join(" ");
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let text = text.replace(" [possible values: ", "; the values are ");
    text.trim_end_matches(']').replace('\'', "`")
}

/// Returns the names that an error is about.
fn strings(error: &Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    /// Returns the lines that a refused command line gets.
    fn said(line: &[&str]) -> String {
        let words: Vec<OsString> = line.iter().map(OsString::from).collect();
        let error = Arguments::try_parse_from(&words).unwrap_err();
        refused(&error, &words, "kli").lines().join("\n")
    }

    #[test]
    fn every_refusal_is_a_sentence_with_a_repair() {
        for (line, wanted) in [
            (
                &["kli", "sesions", "list"][..],
                "kli: unknown command `sesions`\nhint: did you mean `kli sessions`? A prompt of \
                 that word goes after `-p`",
            ),
            (
                &["kli", "mcp", "list"],
                "kli: `kli mcp` is not part of this version\nhint: `kli --help` lists the commands; \
                 a prompt of that word goes after `-p`",
            ),
            (
                &["kli", "-p", "mend", "it"],
                "kli: unexpected word `it`: the prompt is one argument\nhint: put all of the \
                 prompt into quotes",
            ),
            (
                &["kli", "sessions", "lst"],
                "kli: unrecognized subcommand `lst`\nhint: did you mean `list`?\nhint: usage: \
                 `kli sessions <COMMAND>`",
            ),
            (
                &["kli", "-p", "hi", "--json"],
                "kli: `--json` goes with `--print-authority`\nhint: a run prints JSON with \
                 `--output-format json`",
            ),
            (
                &["kli", "-p", "hi", "--read-onyl"],
                "kli: unexpected argument `--read-onyl` found\nhint: did you mean `--read-only`?",
            ),
            (
                &["kli", "-p", "- mend it"],
                "kli: unexpected argument `- ` found\nhint: a prompt that begins with `-` goes \
                 after `--`\nhint: `kli --help` lists the options",
            ),
            (
                &["kli", "sessions", "show"],
                "kli: `<ID>` is missing\nhint: usage: `kli sessions show <ID>`",
            ),
            (
                &["kli", "sandbox", "recipe"],
                "kli: `<KIND>` is missing\nhint: the values are bwrap, docker, podman, systemd-run, \
                 devcontainer\nhint: usage: `kli sandbox recipe <KIND>`",
            ),
            (
                &["kli", "completion", "tcsh"],
                "kli: invalid value `tcsh` for `<SHELL>`; the values are bash, fish, zsh\nhint: did you \
                 mean `zsh`?\nhint: see `kli completion --help`",
            ),
            (&["kli", "-p", "hi", "--read-only=true"], "kli: unexpected value `true` for"),
            (&["kli", "trust", "--list", "--revoke"], "`--list` cannot be used with `--revoke`"),
        ] {
            let got = said(line);
            assert!(got.contains(wanted), "{line:?}:\n{got}\nand not\n{wanted}");
            assert!(got.contains("\nhint: "), "{line:?}: {got}");
            assert!(got.lines().all(|line| line.len() < 200), "{line:?}: {got}");
            assert!(!got.contains('\''), "{line:?}: {got}");
        }
    }

    #[test]
    fn a_key_on_the_command_line_is_not_repeated() {
        let got = said(&["kli", "auth", "set", "anthropic", "sk-ant-1234"]);
        assert!(got.contains("a key is not given on the command line"), "{got}");
        assert!(got.contains("pipe it in") && !got.contains("sk-ant"), "{got}");
    }
}
