//! The home of an account, by what the system knows of it. It knows nothing of the environment.

#![expect(clippy::disallowed_methods, reason = "the system's accounts are looked up here")]

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::super::sys;

/// The home in `/etc/passwd`; other name services are asked only for accounts that it lacks.
pub fn account_home(uid: u32) -> Option<PathBuf> {
    let text = std::fs::read("/etc/passwd").unwrap_or_default();
    home_in(&text, uid).or_else(|| {
        sys::account_home(uid)
            .or_else(|| if cfg!(target_feature = "crt-static") { asked_home(uid) } else { None })
    })
}

/// Where systems have the program that asks all name services.
const GETENT: [&str; 3] = ["/usr/bin/getent", "/run/current-system/sw/bin/getent", "/bin/getent"];

/// What the name services say through the system's own program: a program that is linked statically
/// cannot load them (nss(5)).
fn asked_home(uid: u32) -> Option<PathBuf> {
    GETENT.iter().find_map(|program| {
        let mut command = Command::new(program);
        command.args(["passwd", &uid.to_string()]).env_clear();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut asked = command.spawn().ok()?;
        let mut told = Vec::new();
        let heard = asked.stdout.take()?.read_to_end(&mut told);
        // Where the caller ignores SIGCHLD the kernel tells no end; what was said counts.
        let _ended = asked.wait();
        heard.ok()?;
        home_in(&told, uid)
    })
}

/// The home of a user in a table of accounts (passwd(5)).
fn home_in(text: &[u8], uid: u32) -> Option<PathBuf> {
    for line in text.split(|byte| *byte == b'\n') {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b':').collect();
        if let [_, _, id, _, _, home, ..] = fields.as_slice()
            && std::str::from_utf8(id).ok().and_then(|id| id.parse().ok()) == Some(uid)
        {
            return Some(PathBuf::from(OsString::from_vec(home.to_vec())));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_is_found_by_number_whatever_the_other_fields_are() {
        let text = b"a:x:7:7::/a:/bin/sh\nbroken:x\nb:x:07x:7::/b:\nc:x:8:7:,,,:/c c:\n";
        assert_eq!(home_in(text, 7), Some("/a".into()));
        assert_eq!(home_in(text, 8), Some("/c c".into()));
        assert_eq!(home_in(text, 9), None);
    }

    #[test]
    fn the_systems_own_program_knows_what_the_table_knows() {
        assert!(GETENT.iter().any(|program| std::fs::exists(program).unwrap()));
        assert_eq!(asked_home(0), account_home(0));
        assert!(account_home(0).is_some());
        assert_eq!(asked_home(4_000_000_017), None);
    }

    /// Not a test of its own: started by the next one.
    #[test]
    fn a_process_that_ignores_the_end_of_its_children() {
        if std::env::var_os(IGNORES).is_some() {
            assert_eq!(asked_home(0), account_home(0));
        }
    }

    const IGNORES: &str = "KLI_TEST_IGNORES_CHILDREN";

    #[test]
    fn a_caller_that_ignores_the_end_of_its_children_hides_no_home() {
        let own = std::env::current_exe().unwrap();
        let name = "sandbox::facts::account::tests::a_process_that_ignores_the_end_of_its_children";
        let status = Command::new("sh")
            .args(["-c", "trap '' CHLD; exec \"$@\"", "sh"])
            .arg(own)
            .args(["--exact", name])
            .env(IGNORES, "1")
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success());
    }
}
