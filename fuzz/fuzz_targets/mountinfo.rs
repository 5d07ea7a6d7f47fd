//! Any bytes are a table of mounts or are refused; the answers of a table agree with each other.

#![no_main]

use kli::sandbox::mountinfo::Table;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    let Ok(table) = Table::parse(text) else { return };
    for entry in table.entries().iter().take(32) {
        let path = &entry.point;
        let aliases = table.aliases(path);
        assert!(!aliases.contains(path));
        if let Some(seen) = table.at(path) {
            for alias in &aliases {
                let other = table.at(alias).unwrap();
                assert_eq!(other.device, seen.device);
                assert_ne!(other.id, seen.id);
            }
        }
        for below in table.below(path) {
            assert!(below.starts_with(path));
        }
    }
});
