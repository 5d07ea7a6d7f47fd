//! The command line: clap structures only. Parsing touches nothing; what the flags mean is decided
//! in `cli`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};

/// kli's command line.
#[derive(Debug, Parser)]
#[command(
    name = "kli",
    version,
    about = "A coding agent for the terminal that can be confined as a whole process",
    args_conflicts_with_subcommands = true,
    max_term_width = 100,
    after_long_help = super::error::exit_codes()
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    #[command(flatten)]
    pub(crate) run: RunArguments,
}

/// A run, and the preview of what it may do.
#[derive(Args, Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct RunArguments {
    /// What to do; `-` reads it from standard input
    #[arg(value_name = "PROMPT", value_hint = ValueHint::Other)]
    pub(crate) prompt: Option<String>,

    /// Run without a terminal interface and print the answer
    #[arg(short, long)]
    pub(crate) print: bool,

    /// What standard output carries
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    pub(crate) output_format: OutputFormat,

    /// Print what the agent may do, and exit; no prompt is read and no model is contacted
    #[arg(long)]
    pub(crate) print_authority: bool,

    /// Print the authority as one line of JSON
    #[arg(long, requires = "print_authority")]
    pub(crate) json: bool,

    /// Run under a profile: interactive, print, read-only, autonomous, review, or one of the settings
    #[arg(long, value_name = "NAME", value_hint = ValueHint::Other)]
    pub(crate) profile: Option<String>,

    /// Ask this model, or the one of this alias
    #[arg(long, value_name = "PROVIDER/MODEL", value_hint = ValueHint::Other)]
    pub(crate) model: Option<String>,

    /// Let the model think this much: none, minimal, low, medium, high, xhigh or max
    #[arg(long, value_name = "LEVEL", value_hint = ValueHint::Other)]
    pub(crate) effort: Option<String>,

    /// Set an option of the model, for example temperature=0
    #[arg(long, value_name = "KEY=VALUE", value_hint = ValueHint::Other)]
    pub(crate) model_option: Vec<String>,

    /// Go on with the latest session of this directory
    #[arg(short = 'c', long = "continue", conflicts_with_all = ["resume", "no_session"])]
    pub(crate) continue_latest: bool,

    /// Go on with the session of this identifier, of the only one that starts with it, or of the only one
    /// whose first prompt holds this text
    #[arg(long, value_name = "ID", value_hint = ValueHint::Other, conflicts_with = "no_session")]
    pub(crate) resume: Option<String>,

    /// Leave no session behind
    #[arg(long)]
    pub(crate) no_session: bool,

    /// Withhold everything that writes files or runs programs
    #[arg(long)]
    pub(crate) read_only: bool,

    /// Withhold running programs
    #[arg(long)]
    pub(crate) no_bash: bool,

    /// Withhold running code inside kli
    #[arg(long)]
    pub(crate) no_eval: bool,

    /// Hold at most these capabilities, separated by commas; the empty list holds none
    #[arg(long, value_name = "LIST", value_hint = ValueHint::Other)]
    pub(crate) capabilities: Vec<String>,

    /// Ask the model at most this often
    #[arg(long, value_name = "N", value_hint = ValueHint::Other, allow_hyphen_values = true)]
    pub(crate) max_turns: Option<String>,

    /// Stop once this many tokens were used
    #[arg(long, value_name = "N", value_hint = ValueHint::Other, allow_hyphen_values = true)]
    pub(crate) max_tokens: Option<String>,

    /// Stop after this time, for example 90s, 5m or 1h30m
    #[arg(long, value_name = "DURATION", value_hint = ValueHint::Other)]
    pub(crate) timeout: Option<String>,

    /// Trust the project's settings for this run as if `kli trust` had been said
    #[arg(long)]
    pub(crate) trust_project: bool,

    /// Print where the time went to standard error
    #[arg(long)]
    pub(crate) timings: bool,

    /// Write the events of the run to this file, one JSON object a line
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) log: Option<PathBuf>,

    /// Show the terminal interface line by line, for screen readers
    #[arg(long, conflicts_with = "print")]
    pub(crate) plain: bool,

    /// Whether the terminal interface runs it
    #[arg(skip)]
    pub(crate) interactive: bool,

    /// Leave out the context files of the repository and your own
    #[arg(long)]
    pub(crate) no_context: bool,

    /// Use this file instead of kli's own system prompt
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) system_prompt_file: Option<PathBuf>,

    /// Add this file to the system prompt
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) append_system_prompt_file: Option<PathBuf>,

    /// Set by `kli sessions compact`: what the summary should pay attention to, or nothing.
    #[arg(skip)]
    pub(crate) compact: Option<String>,
}

/// What standard output carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// The answer's text
    #[default]
    Text,
    /// One JSON object, whatever happens
    Json,
    /// One JSON object a line as things happen, the last of type `result`
    StreamJson,
}

/// What else kli can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Look at the keys of providers, keep one, or forget it
    Auth {
        #[command(subcommand)]
        command: AuthCommand,
    },
    /// Print the completions of a shell
    Completion {
        /// The shell
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Look at the settings
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Run a whole confined session with a recorded model: no key, no network
    Demo,
    /// Say everything that could stop a run, with the repair, and what stays risky
    Doctor {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Write man pages, completions, schemas and the reference into a directory
    #[command(hide = true)]
    Generate {
        /// The directory; it is created
        directory: PathBuf,
    },
    /// Say what confines kli, or confine it without its launcher
    Sandbox {
        #[command(subcommand)]
        command: SandboxCommand,
    },
    /// List the models that are known, with what is known of them, and say which one is chosen
    Models {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Look at the sessions of this directory
    Sessions {
        #[command(subcommand)]
        command: SessionsCommand,
    },
    /// Trust what a project's own settings activate, until one of those files changes
    Trust {
        /// Print what is trusted
        #[arg(long, conflicts_with_all = ["revoke", "directory"])]
        list: bool,
        /// Trust it no more
        #[arg(long)]
        revoke: bool,
        /// The project; the one around the current directory by default
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        directory: Option<PathBuf>,
    },
    /// Print the version
    Version,
}

/// A shell that completions are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Fish,
    Zsh,
}

/// What to do with the keys of providers.
#[derive(Debug, Subcommand)]
pub(crate) enum AuthCommand {
    /// Print for each provider where its key would come from; never the key
    Status {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Keep a key, read from standard input, in a file for you alone
    Set {
        /// The provider
        provider: String,
    },
    /// Remove a key that was kept
    Forget {
        /// The provider
        provider: String,
    },
}

/// What to do with the settings.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print every value with the layer it came from
    Show {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Check the settings, or a file, and print what is wrong with it
    Check {
        /// The file; the settings of this run by default
        file: Option<PathBuf>,
    },
    /// Print where the user's settings file is, or would be
    Path,
    /// Print the JSON schema of a settings file
    Schema,
}

/// What to do about confinement.
#[derive(Debug, Subcommand)]
pub(crate) enum SandboxCommand {
    /// Print what confines this process, and what the launcher tells of it
    Show,
    /// Print ready-to-run confinement for a host without the launcher
    Recipe {
        /// What confines
        #[arg(value_enum)]
        kind: RecipeKind,
        /// The specification, `-` for standard input; every key at its default without it
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        spec: Option<PathBuf>,
        /// Write it to this place, where nothing may be yet
        #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath)]
        output: Option<PathBuf>,
    },
}

/// What a recipe confines with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RecipeKind {
    /// Bubblewrap, by a script
    Bwrap,
    /// Docker, by a script
    Docker,
    /// Podman, by a script
    Podman,
    /// A transient unit of systemd, by a script
    SystemdRun,
    /// A dev container for an editor
    Devcontainer,
}

impl RecipeKind {
    /// Returns the name as it is typed.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bwrap => "bwrap",
            Self::Docker => "docker",
            Self::Podman => "podman",
            Self::SystemdRun => "systemd-run",
            Self::Devcontainer => "devcontainer",
        }
    }
}

/// What to do with sessions.
#[derive(Debug, Subcommand)]
pub(crate) enum SessionsCommand {
    /// Print the sessions of this directory, the latest first
    List {
        /// Print one JSON object a line
        #[arg(long)]
        json: bool,
        /// Print those of every directory
        #[arg(long)]
        all: bool,
    },
    /// Print what was said and done in a session
    Show {
        /// The session's identifier, the start of one, or words of its first prompt
        id: String,
    },
    /// Print a session whole
    Export {
        /// The session's identifier, the start of one, or words of its first prompt
        id: String,
        /// How
        #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
        format: ExportFormat,
    },
    /// Make a copy to go on with, and print its identifier
    Fork {
        /// The session's identifier, the start of one, or words of its first prompt
        id: String,
    },
    /// Have the model summarise a session, so that it goes on with less
    Compact {
        /// The session's identifier, the start of one, or words of its first prompt
        id: String,
        /// What the summary should pay attention to
        #[arg(long, value_name = "TEXT", value_hint = ValueHint::Other)]
        focus: Option<String>,
        /// Ask this model, or the one of this alias
        #[arg(long, value_name = "PROVIDER/MODEL", value_hint = ValueHint::Other)]
        model: Option<String>,
        /// What standard output carries
        #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
        output_format: OutputFormat,
    },
    /// Print what kli changed in this directory in a session, as a unified diff
    Diff {
        /// The session's identifier, the start of one, or words of its first prompt
        id: String,
    },
    /// Print where the sessions of this directory are, or would be
    Path,
}

/// How a session is exported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// Text to read
    #[default]
    Markdown,
    /// One JSON object
    Json,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn flags_may_stand_before_and_after_the_prompt() {
        for line in [
            &["kli", "-p", "hi", "--read-only"][..],
            &["kli", "--read-only", "-p", "hi"],
            &["kli", "--read-only", "hi", "-p"],
            &["kli", "-p", "--read-only", "--", "hi"],
        ] {
            let parsed = Arguments::try_parse_from(line).unwrap();
            assert!(parsed.run.print && parsed.run.read_only);
            assert_eq!(parsed.run.prompt.as_deref(), Some("hi"));
        }
    }

    #[test]
    fn a_wrong_flag_is_answered_with_the_nearest_one() {
        let error = Arguments::try_parse_from(["kli", "--read-onyl"]).unwrap_err().to_string();
        assert!(error.contains("--read-only"), "{error}");
    }
}
