//! The names of the environment variables that kli reads, and what each is for.

/// The configuration baked into the package: a directory in a read-only store. The generated
/// entrypoint sets it, whatever the caller's environment says.
pub const KLI_BAKED: &str = "KLI_BAKED";
/// kli's state directory itself, in the place of `$XDG_STATE_HOME/kli`. The entrypoint of a
/// configuration with a `dataDir` sets it, and every other entrypoint takes it away.
pub const KLI_STATE_DIR: &str = "KLI_STATE_DIR";
/// The user's home directory.
pub const HOME: &str = "HOME";
/// Where configuration lives; `~/.config` when unset, empty or relative.
pub const XDG_CONFIG_HOME: &str = "XDG_CONFIG_HOME";
/// Where state lives; `~/.local/state` when unset, empty or relative.
pub const XDG_STATE_HOME: &str = "XDG_STATE_HOME";
/// The key of the built-in provider `anthropic`. Taken out of kli's own environment at start.
pub const ANTHROPIC_API_KEY: &str = "ANTHROPIC_API_KEY";
/// The address of the built-in provider `anthropic`; it ends before `/v1`.
pub const ANTHROPIC_BASE_URL: &str = "ANTHROPIC_BASE_URL";
/// The descriptor with the keys that a launcher hands over. Taken out of kli's own environment at
/// start, and closed.
pub const KLI_SECRETS_FD: &str = "KLI_SECRETS_FD";
/// The key of the built-in provider `openai`. Taken out of kli's own environment at start.
pub const OPENAI_API_KEY: &str = "OPENAI_API_KEY";
/// The address of the built-in provider `openai`; it ends with `/v1`.
pub const OPENAI_BASE_URL: &str = "OPENAI_BASE_URL";
/// No colour on the terminal when set to anything but the empty text.
pub const NO_COLOR: &str = "NO_COLOR";
/// How many colours the terminal has: `truecolor` or `24bit`.
pub const COLORTERM: &str = "COLORTERM";
/// The kind of the terminal; `dumb` and none at all get the interface line by line.
pub const TERM: &str = "TERM";
/// Where programs are looked up.
pub const PATH: &str = "PATH";
/// Where scratch files are made; `/tmp` when unset.
pub const TMPDIR: &str = "TMPDIR";

/// Every variable that kli reads, with what it is for. `docs/settings.md` lists the same.
pub const ALL: &[(&str, &str)] = &[
    (KLI_BAKED, "directory of the configuration baked into the package"),
    (KLI_STATE_DIR, "where state lives, in the place of `$XDG_STATE_HOME/kli`"),
    (HOME, "the home directory"),
    (XDG_CONFIG_HOME, "where configuration lives"),
    (XDG_STATE_HOME, "where state lives"),
    (ANTHROPIC_API_KEY, "the key of the provider `anthropic`"),
    (ANTHROPIC_BASE_URL, "the address of the provider `anthropic`"),
    (KLI_SECRETS_FD, "the descriptor with the keys that a launcher hands over"),
    (OPENAI_API_KEY, "the key of the provider `openai`"),
    (OPENAI_BASE_URL, "the address of the provider `openai`"),
    (NO_COLOR, "no colour on the terminal"),
    (COLORTERM, "whether the terminal has all colours: `truecolor` or `24bit`"),
    (TERM, "the kind of the terminal: `dumb`, and none at all, get the interface line by line"),
    (PATH, "where programs are looked up"),
    (TMPDIR, "where scratch files are made"),
];

/// The variables whose values are secret whatever the settings say. Those that a provider names in
/// `keyEnv` are secret as well.
pub const SECRET: &[&str] = &[ANTHROPIC_API_KEY, OPENAI_API_KEY];
