#![expect(clippy::disallowed_methods, reason = "tests and their support")]

use std::fs;
use std::time::Instant;

use super::*;

#[test]
fn a_clock_that_was_set_back_hides_nothing() {
    let then = Clocks { wall: (1000, 5), steady: Some((50, 0)) };
    let now = |wall| Clocks { wall: (wall, 0), steady: Some((60, 0)) };
    assert_eq!(then.start(&now(1010)), (1000, 5));
    assert_eq!(then.start(&now(5000)), (1000, 5));
    assert_eq!(then.start(&now(500)), (489, 0));
    assert_eq!(then.start(&Clocks { wall: (500, 0), steady: None }), (1000, 5));
}

#[test]
fn without_time_it_says_where_it_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap();
    fs::create_dir(path.join("sub")).unwrap();
    fs::write(path.join("sub/.envrc"), "").unwrap();
    let rules = Rules::new(&[]);
    let roots = [Root::new(&path, &rules).unwrap()];
    let walk = |deadline: Instant| {
        let mut walk = Walk {
            rules: &rules,
            roots: &roots,
            start: (0, 0),
            uid: 1,
            kept: &[],
            closed: &[],
            deadline,
            findings: Vec::new(),
            packages: Vec::new(),
        };
        (walk.run(), walk.findings)
    };
    let begun = Instant::now();
    assert_eq!(walk(begun), (Some(path.clone()), Vec::new()));
    let (unfinished, findings) = walk(begun + Duration::from_mins(1));
    assert_eq!(unfinished, None);
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].path, path.join("sub/.envrc"));
}
