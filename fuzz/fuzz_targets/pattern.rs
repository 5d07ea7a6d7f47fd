//! Any text is a pattern or is refused, and any name is matched by it in little time.

#![no_main]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use kli::sandbox::glob::Pattern;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&str, &[u8])| {
    let (text, name) = input;
    let Ok(pattern) = Pattern::new(text) else { return };
    let mut states = Vec::new();
    pattern.open(0, &mut states);
    assert!(states.iter().all(|state| *state <= pattern.len()));
    for state in 0..pattern.len() {
        pattern.matches(state, OsStr::from_bytes(name));
    }
});
