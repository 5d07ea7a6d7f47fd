//! Where kli's own files are, after the XDG Base Directory specification. Pure: the values are
//! handed in.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

/// The machine's policy. No variable moves it.
pub const POLICY: &str = "/etc/kli/policy.json";

/// The directories of one user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    config: PathBuf,
    state: PathBuf,
}

/// Neither a home nor an XDG directory to start from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no home directory is known: set `HOME` (or `{variable}`) to an absolute path")]
pub struct NoHome {
    /// The XDG variable that would do instead.
    pub variable: &'static str,
}

impl Paths {
    /// Computes the directories from the home, the two XDG values, and what [`KLI_STATE_DIR`] names,
    /// which may begin with `~/`. The specification says that a relative or empty value counts as
    /// unset; a relative home and a relative state directory are treated alike.
    ///
    /// [`KLI_STATE_DIR`]: super::names::KLI_STATE_DIR
    ///
    /// # Errors
    /// [`NoHome`] when a directory cannot be told from what is given.
    pub fn new(
        home: Option<&Path>,
        xdg_config_home: Option<&OsStr>,
        xdg_state_home: Option<&OsStr>,
        state_dir: Option<&OsStr>,
    ) -> Result<Self, NoHome> {
        let home = home.filter(|home| home.is_absolute());
        let base = |value: Option<&OsStr>, variable, default: &str| {
            value
                .map(Path::new)
                .filter(|path| path.is_absolute())
                .map(Path::to_path_buf)
                .or_else(|| home.map(|home| home.join(default)))
                .map(|base| base.join("kli"))
                .ok_or(NoHome { variable })
        };
        let named = state_dir.map(Path::new).and_then(|path| match path.strip_prefix("~") {
            Ok(rest) => home.map(|home| home.join(rest)),
            Err(_) => path.is_absolute().then(|| path.to_path_buf()),
        });
        Ok(Self {
            config: base(xdg_config_home, super::names::XDG_CONFIG_HOME, ".config")?,
            state: match named {
                Some(state) => state,
                None => base(xdg_state_home, super::names::XDG_STATE_HOME, ".local/state")?,
            },
        })
    }

    /// Returns kli's configuration directory.
    pub fn config(&self) -> &Path {
        &self.config
    }

    /// Returns kli's state directory.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// Returns the user's settings file.
    pub fn settings(&self) -> PathBuf {
        self.config.join("settings.json")
    }

    /// Returns the record of trusted projects.
    pub fn trust(&self) -> PathBuf {
        self.config.join("trust.json")
    }

    /// Returns the display state: what a person chose while kli ran.
    pub fn display(&self) -> PathBuf {
        self.state.join("ui.json")
    }

    /// Returns the directory of all sessions.
    pub fn sessions(&self) -> PathBuf {
        self.state.join("sessions")
    }

    /// Returns the settings file of a baked configuration.
    pub fn baked_settings(baked: &Path) -> PathBuf {
        baked.join("settings.json")
    }

    /// Returns the policy of a baked configuration.
    pub fn baked_policy(baked: &Path) -> PathBuf {
        baked.join("policy.json")
    }

    /// Returns the instructions of a baked configuration.
    pub fn baked_context(baked: &Path) -> PathBuf {
        baked.join("AGENTS.md")
    }

    /// Returns the person's own instructions for every run.
    pub fn own_context(&self) -> PathBuf {
        self.config().join("AGENTS.md")
    }

    /// Returns what replaces kli's system prompt, in a configuration directory, a baked
    /// configuration or the `.kli` of a project.
    pub fn system(directory: &Path) -> PathBuf {
        directory.join("SYSTEM.md")
    }

    /// Returns what is added to the system prompt, in the same places.
    pub fn append_system(directory: &Path) -> PathBuf {
        directory.join("APPEND_SYSTEM.md")
    }

    /// Returns the settings file of a project.
    pub fn project_settings(root: &Path) -> PathBuf {
        root.join(".kli").join("settings.json")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(
        home: Option<&str>,
        config: Option<&str>,
        state: Option<&str>,
    ) -> Result<Paths, NoHome> {
        Paths::new(home.map(Path::new), config.map(OsStr::new), state.map(OsStr::new), None)
    }

    #[test]
    fn directories_follow_the_xdg_specification() {
        for (home, config, state, settings, sessions) in [
            (
                Some("/home/ada"),
                None,
                None,
                "/home/ada/.config/kli/settings.json",
                "/home/ada/.local/state/kli/sessions",
            ),
            (Some("/home/ada"), Some("/c"), Some("/s"), "/c/kli/settings.json", "/s/kli/sessions"),
            // Relative and empty values are ignored.
            (
                Some("/home/ada"),
                Some("c"),
                Some("./s"),
                "/home/ada/.config/kli/settings.json",
                "/home/ada/.local/state/kli/sessions",
            ),
            (
                Some("/home/ada"),
                Some(""),
                Some(""),
                "/home/ada/.config/kli/settings.json",
                "/home/ada/.local/state/kli/sessions",
            ),
            (None, Some("/c"), Some("/s"), "/c/kli/settings.json", "/s/kli/sessions"),
        ] {
            let paths = paths(home, config, state).unwrap();
            assert_eq!(paths.settings(), Path::new(settings));
            assert_eq!(paths.sessions(), Path::new(sessions));
        }
    }

    #[test]
    fn a_state_directory_is_taken_whole_and_moves_nothing_else() {
        let named = |state_dir: &str| {
            let home = Some(Path::new("/home/ada"));
            Paths::new(home, None, Some(OsStr::new("/s")), Some(OsStr::new(state_dir))).unwrap()
        };
        for (written, state) in [
            ("/data/kli", "/data/kli"),
            ("~/data/kli", "/home/ada/data/kli"),
            ("~", "/home/ada"),
            ("", "/s/kli"),
            ("data", "/s/kli"),
            ("./data", "/s/kli"),
            ("~ada/data", "/s/kli"),
        ] {
            assert_eq!(named(written).state(), Path::new(state), "{written}");
            assert_eq!(named(written).config(), Path::new("/home/ada/.config/kli"));
        }
        let homeless = Paths::new(None, Some("/c".as_ref()), None, Some("/data".as_ref()));
        assert_eq!(homeless.unwrap().display(), Path::new("/data/ui.json"));
        assert!(Paths::new(None, Some("/c".as_ref()), None, Some("~/data".as_ref())).is_err());
    }

    #[test]
    fn without_a_home_the_variable_to_set_is_named() {
        for home in [None, Some(""), Some("home/ada")] {
            let error = paths(home, Some("/c"), None).unwrap_err();
            assert!(error.to_string().contains("set `HOME` (or `XDG_STATE_HOME`)"), "{error}");
        }
        assert_eq!(paths(None, None, Some("/s")).unwrap_err().variable, "XDG_CONFIG_HOME");
    }

    #[test]
    fn bytes_that_are_no_text_pass_unchanged() {
        use std::os::unix::ffi::OsStrExt;
        let raw = OsStr::from_bytes(b"/s\xff");
        let paths = Paths::new(Some(Path::new("/h")), None, Some(raw), None).unwrap();
        assert_eq!(paths.state().as_os_str().as_bytes(), b"/s\xff/kli");
    }
}
