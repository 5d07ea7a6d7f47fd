//! Landlock scopes: abstract sockets and signals stay inside (law 6), where the kernel has them.
//!
//! Pure but for [`confine`]. A domain without rights on files, so bubblewrap's mounts are not
//! touched by it. The launcher stays outside and can signal the inside.

use std::io;
use std::process::Command;

use super::sys::landlock as calls;

/// The version of the interface that has scopes, Linux 6.12 (landlock(7)).
const SCOPES: i32 = 6;

/// Whether a kernel with this version of the interface can keep signals and abstract sockets in.
pub(super) fn has_scopes(version: Option<i32>) -> bool {
    version.is_some_and(|version| version >= SCOPES)
}

/// Lets `command` begin in a domain of its own.
///
/// # Errors
/// The kernel's refusal to make it.
pub(super) fn confine(command: &mut Command) -> io::Result<()> {
    let rules = calls::scopes()?;
    calls::enter_at_start(command, rules);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_come_with_version_six() {
        for (version, has) in
            [(None, false), (Some(0), false), (Some(5), false), (Some(6), true), (Some(9), true)]
        {
            assert_eq!(has_scopes(version), has, "{version:?}");
        }
    }
}
