//! The specification's reader: never panics, and what it lets through keeps its promises.

#![no_main]

use kli::sandbox::spec::{SpecError, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    match parse(text) {
        Ok(spec) => {
            let paths = [
                &spec.writable_paths,
                &spec.read_only_paths,
                &spec.deny_read,
                &spec.deny_read_globs,
                &spec.protect,
                &spec.allow_sockets,
            ];
            for path in paths.into_iter().flatten().chain(spec.env_files.values()).chain(spec.secrets.values()) {
                assert!(!path.rest.starts_with('/') && !path.rest.contains('\0'));
                assert!(path.rest.split('/').all(|part| part != ".." && part != "."));
            }
            assert!(spec.local_ports.iter().all(|port| *port > 0));
            for name in spec.env.keys().chain(spec.env_files.keys()).chain(spec.secrets.keys()).chain(&spec.secret_env) {
                assert!(!name.0.is_empty() && !name.0.contains(['=', '\0']));
            }
        }
        Err(SpecError::Invalid { line, words, .. }) => {
            assert!(line <= text.iter().filter(|byte| **byte == b'\n').count() + 1);
            assert!(!words.is_empty() && !words.contains(char::is_control), "{words:?}");
        }
        Err(SpecError::Empty | SpecError::TooLarge) => {}
    }
});
