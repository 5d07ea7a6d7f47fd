//! What the process was started with: variables, the current directory, the home and the XDG
//! directories; and the clock. Read; changed only before anything else runs.

#![expect(
    clippy::disallowed_methods,
    reason = "this is where the environment and the clock are read"
)]

use std::{
    cell::RefCell,
    collections::BTreeMap,
    env,
    ffi::{CString, OsStr, OsString},
    io,
    path::{Path, PathBuf},
    time::SystemTime,
};

thread_local! {
    static INSTEAD: RefCell<Option<Environment>> = const { RefCell::new(None) };
}

/// A copy of the process's variables, taken once.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    variables: BTreeMap<OsString, OsString>,
}

impl Environment {
    /// Copies the process's variables, or what [`Environment::within`] puts in their place.
    pub fn read() -> Self {
        INSTEAD
            .with_borrow(Clone::clone)
            .unwrap_or_else(|| Self { variables: env::vars_os().collect() })
    }

    /// Runs something on this thread for which this copy is what the process was started with: a copy
    /// that was taken before variables were wiped.
    pub fn within<T>(&self, run: impl FnOnce() -> T) -> T {
        INSTEAD.set(Some(self.clone()));
        let result = run();
        INSTEAD.set(None);
        result
    }

    /// Returns an environment of these variables, for tests and for children.
    pub fn of<K: Into<OsString>, V: Into<OsString>>(
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        Self { variables: variables.into_iter().map(|(k, v)| (k.into(), v.into())).collect() }
    }

    /// Returns a variable's value as it is, also when it is empty.
    pub fn var_os(&self, name: impl AsRef<OsStr>) -> Option<&OsStr> {
        self.variables.get(name.as_ref()).map(OsString::as_os_str)
    }

    /// Returns a variable's value when it is set, not empty, and text.
    pub fn var(&self, name: impl AsRef<OsStr>) -> Option<&str> {
        self.var_os(name).and_then(OsStr::to_str).filter(|value| !value.is_empty())
    }

    /// Returns all variables, sorted by name.
    pub fn vars(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.variables.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }

    /// Returns `$HOME` when it is an absolute path.
    pub fn home(&self) -> Option<PathBuf> {
        self.absolute("HOME")
    }

    fn absolute(&self, name: &str) -> Option<PathBuf> {
        self.var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
    }
}

/// Wipes variables out of this process's own environment block, so that `/proc/PID/environ` does not
/// show their values and no child inherits them. A copy that was read before stays good.
///
/// To be called while the process has one thread: the C library's environment has no lock.
pub fn wipe(names: &[String]) {
    for name in names.iter().filter_map(|name| CString::new(name.as_str()).ok()) {
        // SAFETY: the name is a C string. `getenv` returns a pointer into the environment block,
        // writable up to its NUL; nothing else reads or changes the block, as there is one thread.
        #[expect(unsafe_code, reason = "the standard library cannot overwrite a variable in place")]
        unsafe {
            let value = libc::getenv(name.as_ptr());
            if !value.is_null() {
                std::ptr::write_bytes(value, 0, libc::strlen(value));
                libc::unsetenv(name.as_ptr());
            }
        }
    }
}

/// Does `work` while a variable has this value; afterwards it is as before.
///
/// To be called while the process has one thread: the C library's environment has no lock.
pub fn with_variable<T>(name: &str, value: &str, work: impl FnOnce() -> T) -> T {
    let before = env::var_os(name);
    // SAFETY: there is one thread, so nothing else reads or changes the environment.
    #[expect(unsafe_code, reason = "some libraries are told things in no other way")]
    unsafe {
        env::set_var(name, value);
    }
    let done = work();
    // SAFETY: as above.
    #[expect(unsafe_code, reason = "what was there comes back")]
    unsafe {
        match before {
            Some(before) => env::set_var(name, before),
            None => env::remove_var(name),
        }
    }
    done
}

/// Returns the physical current directory: what the kernel says, not what `$PWD` says.
///
/// # Errors
/// When the directory was removed or cannot be reached.
pub fn current_directory() -> io::Result<PathBuf> {
    let directory = env::current_dir()?;
    // The kernel marks a directory that has no name any more or lies outside the root so.
    if directory.is_absolute() && directory.is_dir() {
        Ok(directory)
    } else {
        Err(io::Error::new(
            io::ErrorKind::NotFound,
            "the current directory was removed; change to one that exists",
        ))
    }
}

/// Returns the path of the running executable.
///
/// # Errors
/// When the system does not tell.
pub fn own_executable() -> io::Result<PathBuf> {
    env::current_exe()
}

/// Returns the wall clock.
pub fn now() -> SystemTime {
    SystemTime::now()
}

/// Says whether a path is there, links followed.
pub fn exists(path: &Path) -> bool {
    path.exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_variable_is_kept_but_is_no_text() {
        let environment = Environment::of([("A", ""), ("B", "b")]);
        assert_eq!(environment.var_os("A"), Some(OsStr::new("")));
        assert_eq!(environment.var("A"), None);
        assert_eq!(environment.var("B"), Some("b"));
        assert_eq!(environment.vars().count(), 2);
    }

    #[test]
    fn the_current_directory_is_physical_and_the_clock_runs() {
        let directory = current_directory().unwrap();
        assert_eq!(directory, std::fs::canonicalize(&directory).unwrap());
        assert!(now() > std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_600_000_000));
    }
}
