//! The environment and the keys on their way from the launcher to the program.
//!
//! bubblewrap and the last stage run with an empty environment: what the caller or the inside of an
//! earlier start has put into a variable of the loader (`LD_PRELOAD`, `LD_AUDIT`) acts on the program
//! alone, when the jail is complete, and no environment block but the program's has a value (law 4).

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;

use super::secrets;

/// The number of the descriptor with the keys, as the program finds it.
pub(super) const KEYS: RawFd = 3;

/// The text that carries an environment: `NAME=VALUE`, each with a NUL behind it.
pub(super) fn text(environment: &[(OsString, OsString)]) -> Vec<u8> {
    let mut text = Vec::new();
    for (name, value) in environment {
        text.extend_from_slice(name.as_bytes());
        text.push(b'=');
        text.extend_from_slice(value.as_bytes());
        text.push(0);
    }
    text
}

/// Reads such a text to its end.
pub(super) fn receive(file: OwnedFd) -> io::Result<Vec<CString>> {
    let mut text = Vec::new();
    File::from(file).read_to_end(&mut text)?;
    text.split_inclusive(|byte| *byte == 0)
        .map(|word| CString::from_vec_with_nul(word.to_vec()).map_err(io::Error::other))
        .collect()
}

/// Adds the variable that tells the program where it finds the keys.
pub(super) fn name_keys(environment: &mut Vec<CString>) -> io::Result<()> {
    environment.push(CString::new(format!("{}={KEYS}", secrets::VARIABLE))?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_arrives_byte_for_byte() {
        let odd = OsString::from("a\nb=\u{7f}");
        let sent = [("A".into(), odd), ("EMPTY".into(), OsString::new())];
        let text = text(&sent);
        assert_eq!(text, b"A=a\nb=\x7f\0EMPTY=\0");
        let (theirs, ours) = rustix::pipe::pipe().unwrap();
        rustix::io::write(&ours, &text).unwrap();
        drop(ours);
        let arrived = receive(theirs).unwrap();
        let arrived: Vec<&[u8]> = arrived.iter().map(CString::as_bytes).collect();
        assert_eq!(arrived, [b"A=a\nb=\x7f".as_slice(), b"EMPTY="]);
    }
}
