//! Any bytes are a specification or are refused with a sentence that can be printed; and a
//! specification that is taken holds what its keys promise.

#![no_main]

use kli::sandbox::spec::{self, SpecPath};
use libfuzzer_sys::fuzz_target;

fn is_plain(path: &SpecPath) -> bool {
    !path.rest.contains('\0')
        && !path.rest.starts_with('/')
        && (path.rest.is_empty()
            || path.rest.split('/').all(|part| !part.is_empty() && part != "." && part != ".."))
}

fuzz_target!(|text: &[u8]| {
    match spec::parse(text) {
        Ok(spec) => {
            let lists = [
                &spec.deny_read,
                &spec.deny_read_globs,
                &spec.writable_paths,
                &spec.read_only_paths,
                &spec.protect,
                &spec.allow_sockets,
            ];
            for path in lists.into_iter().flatten() {
                assert!(is_plain(path), "{path:?}");
            }
            assert_eq!(spec::parse(text).unwrap(), spec);
        }
        Err(error) => {
            let words = error.to_string();
            assert!(!words.is_empty());
            assert!(!words.chars().any(char::is_control), "{words:?}");
        }
    }
});
