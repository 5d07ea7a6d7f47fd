//! How the shell tells where it stands at its end: a start-up file sets a trap, and the trap writes the
//! directory to a descriptor that the script does not know.

use std::{ffi::OsString, os::unix::ffi::OsStringExt, path::PathBuf};

use crate::host::process::{self, Slip};

/// Where a start-up file of the user's own is handed on.
pub(super) const USERS_FILE: &str = "KLI_BASH_ENV";

/// The longest path that is taken back, in bytes: Linux's `PATH_MAX` and a line end.
const LONGEST_PATH: usize = 4097;

/// How the shell tells where it stands at its end.
pub(super) struct Stand {
    pub(super) script: Slip,
    pub(super) back: Slip,
}

impl Stand {
    pub(super) fn new() -> std::io::Result<Self> {
        let back = Slip::new("")?;
        // The user's own start-up file comes first, as if this one were not there. Bash expands
        // the variable's value before it opens the file (bash(1), BASH_ENV).
        let script = Slip::new(&format!(
            "if [ \"${{{USERS_FILE}+x}}\" ]; then BASH_ENV=${USERS_FILE}; unset {USERS_FILE}
             eval \"[ ! -r \\\"$BASH_ENV\\\" ] || . \\\"$BASH_ENV\\\"\"
             else unset BASH_ENV; fi
             trap '{{ set +x; builtin pwd -P >&{}; }} 2>/dev/null' EXIT\n",
            back.number(),
        ))?;
        Ok(Self { script, back })
    }

    pub(super) fn read(&self) -> Option<PathBuf> {
        let mut bytes = self.back.read(LONGEST_PATH).ok()?;
        bytes.pop_if(|last| *last == b'\n')?;
        let path = PathBuf::from(OsString::from_vec(bytes));
        (path.is_absolute() && process::enterable(&path).is_ok()).then_some(path)
    }
}
