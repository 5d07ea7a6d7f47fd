//! The slash commands: names and what they do. What they print comes from who started the interface,
//! so that it is the same text as on the command line.

use std::fmt::Write as _;

/// Who answers a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The interface itself.
    Interface,
    /// The composition root; it can be asked while the agent works.
    Root,
    /// The composition root; without anything after it, it prints, and with something it changes what
    /// goes on, so nothing may run then.
    Switch,
    /// The composition root; it begins another conversation, so nothing may run.
    Conversation,
    /// The composition root; it changes files, or goes back in the conversation, so nothing may run.
    Files,
}

/// A slash command.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// Its name, without the slash.
    pub name: &'static str,
    /// What may follow it.
    pub takes: &'static str,
    /// What it does.
    pub about: &'static str,
    /// Who answers it.
    pub by: By,
}

const fn command(name: &'static str, takes: &'static str, about: &'static str, by: By) -> Command {
    Command { name, takes, about, by }
}

/// Every command, in the order of its name.
pub const COMMANDS: &[Command] = &[
    command("authority", "", "what the agent may do", By::Root),
    command("clear", "", "begin a new session", By::Conversation),
    command("compact", "[FOCUS]", "make the conversation shorter, with a summary", By::Interface),
    command("config", "", "every setting with the layer it came from", By::Root),
    command("context", "", "what the model is sent", By::Root),
    command("diff", "", "what kli changed in this session", By::Root),
    command("doctor", "", "what could stop a run, and what stays risky", By::Root),
    command("effort", "[LEVEL]", "how much the model thinks; change it", By::Switch),
    command("export", "[FILE]", "this session as Markdown, printed or to a new file", By::Root),
    command("fork", "", "go on with a copy of this session", By::Conversation),
    command("help", "", "the commands and the keys", By::Interface),
    command(
        "keys",
        "[ACTION [KEY …]]",
        "which keys do what; bind keys, `none` or `default`",
        By::Root,
    ),
    command("mcp", "", "the MCP servers", By::Root),
    command("model", "[NAME]", "the known models; ask another one from now on", By::Switch),
    command("name", "[TEXT]", "how this session is called", By::Root),
    command("profile", "[NAME]", "the profiles; work under another one from now on", By::Switch),
    command("prompts", "", "the prompt templates", By::Root),
    command("quit", "", "leave", By::Interface),
    command("redo", "[force] [yes]", "take the last `/undo` back", By::Files),
    command(
        "resume",
        "[ID]",
        "go on with another session; without an ID there is a list",
        By::Conversation,
    ),
    command(
        "rewind",
        "[N [files|conversation] [force] [yes]]",
        "go back to before a prompt; without a number: list them",
        By::Files,
    ),
    command("sandbox", "", "what confines this process", By::Root),
    command("sessions", "", "the sessions of this directory", By::Root),
    command("skills", "", "the skills", By::Root),
    command("theme", "[NAME]", "the themes; take another one", By::Root),
    command("tools", "", "the tools on offer", By::Root),
    command("tree", "", "this session and its copies, to go on with one", By::Root),
    command(
        "undo",
        "[force] [yes]",
        "put the files back that kli changed for the last prompt",
        By::Files,
    ),
    command("usage", "", "the tokens of this session, and what they cost", By::Interface),
];

/// Reads a prompt that begins with a slash; `None` when it is no command but a path or the like.
///
/// # Errors
/// A sentence for a command that is not there, with the nearest name.
pub fn parse(text: &str) -> Option<Result<(&'static Command, String), String>> {
    let body = text.strip_prefix('/')?;
    let (name, rest) = body.split_once(char::is_whitespace).unwrap_or((body, ""));
    // A path: `/etc/hosts` is what a prompt may begin with.
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
        return None;
    }
    let rest = rest.trim().to_owned();
    let Some(found) = COMMANDS.iter().find(|command| command.name == name) else {
        let near = COMMANDS
            .iter()
            .map(|command| (strsim::osa_distance(name, command.name), command.name))
            .min()
            .filter(|(distance, _)| *distance <= 2)
            .map_or_else(
                || "`/help` lists them".to_owned(),
                |(_, near)| format!("did you mean `/{near}`?"),
            );
        return Some(Err(format!("there is no command `/{name}`; {near}")));
    };
    if found.takes.is_empty() && !rest.is_empty() {
        return Some(Err(format!("`/{name}` takes nothing, and `{rest}` follows it")));
    }
    Some(Ok((found, rest)))
}

/// Returns the commands that a beginning can become; none when it is no command being typed.
pub fn completions(text: &str) -> Vec<&'static Command> {
    let Some(start) = text.strip_prefix('/') else { return Vec::new() };
    COMMANDS.iter().filter(|command| command.name.starts_with(start)).collect()
}

/// Returns a command as it was said, to tell which one is answered.
pub fn said(name: &str, rest: &str) -> String {
    format!("/{name} {rest}")
}

/// What `/help` says of keys where lines are written.
pub const LINES: &str = "\
Enter: send the line; while the agent works: tell it at the next boundary
!COMMAND, !!COMMAND: run it yourself; with one `!` the model sees what it printed
Ctrl-C: interrupt; twice: leave
Ctrl-D: leave
";

/// Returns the text of `/help`, with what is said of keys.
pub fn help(keys: &str) -> String {
    let mut text = String::new();
    for command in COMMANDS {
        let mut name = format!("/{} {}", command.name, command.takes);
        if name.len() > 23 {
            // What it does stands below what all others do.
            let _ = write!(name, "\n{:23}", "");
        }
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name:<23} {}", command.about);
    }
    text.push('\n');
    text.push_str(keys);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_command_is_answered_with_the_nearest() {
        let error = |text| parse(text).unwrap().unwrap_err();
        assert_eq!(error("/hlep"), "there is no command `/hlep`; did you mean `/help`?");
        assert_eq!(error("/zzzz"), "there is no command `/zzzz`; `/help` lists them");
        assert_eq!(error("/quit now"), "`/quit` takes nothing, and `now` follows it");
        assert!(parse("/etc/hosts is what").is_none() && parse("hello").is_none());
        let (found, rest) = parse("/resume  abc ").unwrap().unwrap();
        assert_eq!((found.name, rest.as_str()), ("resume", "abc"));
    }

    #[test]
    fn names_are_sorted_and_completed() {
        assert!(COMMANDS.is_sorted_by_key(|command| command.name));
        let names: Vec<&str> = completions("/con").iter().map(|command| command.name).collect();
        assert_eq!(names, ["config", "context"]);
        assert!(completions("con").is_empty() && completions("/help me").is_empty());
        let help = help(LINES);
        for command in COMMANDS {
            let row = help.lines().find(|row| row.contains(command.about)).unwrap();
            assert_eq!(row.find(command.about), Some(24), "{row}");
        }
    }
}
