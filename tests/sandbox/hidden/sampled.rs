//! Random specifications on real bubblewrap: what the planner's laws say of a plan is so inside.

use std::fs;
use std::path::Path;

use crate::jail::{World, for_both, ok};

/// A small generator, so that a failing world can be named by its number.
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % most
    }

    fn some<'a>(&mut self, of: &[&'a str], most: usize) -> Vec<&'a str> {
        (0..self.below(most + 1)).map(|_| of[self.below(of.len())]).collect()
    }
}

const FILES: [&str; 12] = [
    "home/.netrc",
    "home/.aws/credentials",
    "home/.config/gh/hosts.yml",
    "home/.config/gh/other",
    "home/.config/tool",
    "home/cache/a/one",
    "home/cache/a/b/two",
    "home/cache/a/b/c/three",
    "home/project/.env",
    "home/project/sub/key",
    "data/keys/token",
    "data/other",
];

const PLACES: [&str; 18] = [
    "home/.netrc",
    "home/.aws",
    "home/.config",
    "home/.config/gh",
    "home/.config/gh/hosts.yml",
    "home/.absent",
    "home/cache",
    "home/cache/a",
    "home/cache/a/b",
    "home/cache/a/b/c",
    "home/cache/absent",
    "home/project/.env",
    "home/project/sub",
    "home/project/absent/x",
    "data",
    "data/keys",
    "data/keys/token",
    "data/absent/x",
];

/// The longest of `list` that contains `file`.
fn nearest(list: &[&str], file: &str) -> Option<usize> {
    list.iter().filter(|it| Path::new(file).starts_with(it)).map(|it| it.len()).max()
}

fn check(world: &World, number: u64) {
    let mut random = Random(number);
    let denied = random.some(&PLACES, 5);
    let there: Vec<&str> =
        PLACES.iter().copied().filter(|it| world.root.join(it).exists()).collect();
    let writable = random.some(&there, 4);
    let read_only = random.some(&there, 3);
    let full = |list: &[&str]| -> Vec<String> {
        list.iter().map(|it| world.root.join(it).display().to_string()).collect()
    };
    let spec = serde_json::json!({
        "denyRead": full(&denied), "writablePaths": full(&writable), "readOnlyPaths": full(&read_only),
        "stateDir": false,
    });
    world.spec(&spec.to_string());
    let mut script = String::new();
    for file in FILES {
        let path = world.root.join(file);
        let path = path.display();
        let piece = format!(
            "r=$(cat '{path}' 2>/dev/null); w=r; ( : >> '{path}' ) 2>/dev/null && w=w; echo \"{file} [$r] $w\"; "
        );
        script.push_str(&piece);
    }
    let told = ok(&world.inside(&script));
    let mut writable = writable;
    writable.push("home/project");
    for file in FILES {
        let line = told.lines().find(|line| line.starts_with(&format!("{file} ["))).unwrap();
        let is_denied = nearest(&denied, file).is_some();
        let expected = if is_denied {
            format!("{file} [] r")
        } else {
            let may = nearest(&writable, file) > nearest(&read_only, file);
            format!("{file} [SECRET] {}", if may { "w" } else { "r" })
        };
        assert_eq!(line, expected, "world {number}: {spec}");
    }
    for file in FILES {
        assert_eq!(fs::read_to_string(world.root.join(file)).unwrap(), "SECRET");
    }
}

#[test]
fn random_specifications_hide_protect_and_let_write_as_the_rules_say() {
    for_both(|world| {
        for file in FILES {
            world.file(file, "SECRET");
        }
        for number in 0..40 {
            check(world, number);
        }
    });
}
