//! Law 2 beyond one run: the inside cannot move what is around a hidden name in something writable, so
//! the next start hides the same files.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::jail::{World, err, for_both, has, ok, out};

/// What is hidden, what the inside moves to reach it by another name, and where it is then.
struct Case {
    name: &'static str,
    spec: serde_json::Value,
    secret: &'static str,
    moved: &'static str,
    by: &'static str,
}

fn case(
    name: &'static str,
    spec: serde_json::Value,
    secret: &'static str,
    moved: &'static str,
    by: &'static str,
) -> Case {
    Case { name, spec, secret, moved, by }
}

fn cases(root: &Path) -> Vec<Case> {
    let full = |path: &str| root.join(path).display().to_string();
    vec![
        case(
            "a file",
            json!({"denyRead": ["./config/secret.env"]}),
            "home/project/config/secret.env",
            "config",
            "x/secret.env",
        ),
        case(
            "a directory",
            json!({"denyRead": ["./config/keys"]}),
            "home/project/config/keys/one",
            "config",
            "x/keys/one",
        ),
        case(
            "the outermost of three",
            json!({"denyRead": ["./a/b/c/key"]}),
            "home/project/a/b/c/key",
            "a",
            "x/b/c/key",
        ),
        case(
            "the innermost of three",
            json!({"denyRead": ["./a/b/c/key"]}),
            "home/project/a/b/c/key",
            "a/b/c",
            "a/b/x/key",
        ),
        case(
            "a pattern",
            json!({"denyReadGlobs": ["./certs/*.pem"]}),
            "home/project/certs/a.pem",
            "certs",
            "x/a.pem",
        ),
        case(
            "a key",
            json!({"secrets": {"KEY": "./conf/key"}}),
            "home/project/conf/key",
            "conf",
            "x/key",
        ),
        case(
            "another writable path",
            json!({"writablePaths": ["~/cache"], "denyRead": ["~/cache/sub/token"]}),
            "home/cache/sub/token",
            "../cache/sub",
            "../cache/x/token",
        ),
        case(
            "inside something read-only",
            json!({"readOnlyPaths": ["./ro"], "denyRead": ["./ro/sub/token"]}),
            "home/project/ro/sub/token",
            "ro",
            "x/sub/token",
        ),
        case(
            "a link to a directory",
            json!({"denyRead": ["./links/way/token"]}),
            "home/project/target/token",
            "links/way",
            "target/token",
        ),
        case(
            "the directory of a link",
            json!({"denyRead": ["./links/way/token"]}),
            "home/project/target/token",
            "links",
            "x/way/token",
        ),
        case(
            "the directory of a link that leads out",
            json!({"denyRead": ["./links/out"]}),
            "data/token",
            "links",
            "x/out",
        ),
        case(
            "a link that a link outside leads to",
            json!({"denyRead": [full("outer/token")]}),
            "home/project/target/token",
            "links/way",
            "target/token",
        ),
    ]
}

fn prepare(world: &World, case: &Case) {
    world.file(case.secret, "SECRET");
    if case.name.contains("link") {
        world.dir("home/project/links");
        world.dir("home/project/target");
        world.link("home/project/links/way", "../target");
        world.link("home/project/links/out", world.root.join("data/token"));
        world.link("outer", world.root.join("home/project/links/way"));
    }
}

#[test]
fn nothing_around_a_hidden_name_is_moved_so_the_next_start_hides_it_too() {
    for_both(|first| {
        for case in cases(&first.root) {
            // Each has a world of its own: the control moves things.
            let world = World::new(first.who);
            let case = cases(&world.root).into_iter().find(|it| it.name == case.name).unwrap();
            prepare(&world, &case);
            let name = format!("{}, {:?}", case.name, world.who);
            world.spec(&case.spec.to_string());
            let tried = world.inside(&format!(
                "mv {0} $(dirname {0})/x; mv {0} x; cat {1} x/*; rm -rf {0}; mkdir -p {0} 2>/dev/null; true",
                case.moved, case.by
            ));
            assert!(!out(&tried).contains("SECRET"), "{name}: {tried:?}");
            has(&err(&tried), &["busy"]);
            let next = world.inside(&format!("cat {} x/*; true", case.by));
            assert!(!out(&next).contains("SECRET"), "{name}: the next start: {next:?}");
            assert_eq!(fs::read_to_string(world.root.join(case.secret)).unwrap(), "SECRET");
            // Control: where nothing is hidden it is moved, and read by its new name.
            world.spec(r#"{"writablePaths":["~/project"]}"#);
            if case.moved.starts_with("..") {
                world.spec(r#"{"writablePaths":["~/cache"]}"#);
            }
            let script = format!("mv {0} $(dirname {0})/x; cat {1}", case.moved, case.by);
            assert_eq!(ok(&world.inside(&script)), "SECRET", "{name}");
        }
    });
}

#[test]
fn a_link_to_what_is_not_there_yet_stays_for_the_next_start() {
    for_both(|world| {
        let later = world.root.join("data/later");
        world.dir("data");
        world.dir("home/project/links");
        world.link("home/project/links/gone", &later);
        world.spec(r#"{"denyRead":["./links/gone"]}"#);
        let script = "mv links/gone links/x; mv links y; rm links/gone; ln -sfn /etc links/gone";
        let tried = world.inside(script);
        assert_eq!(err(&tried).matches("busy").count(), 4, "{tried:?}");
        world.file("data/later", "SECRET");
        let read = "cat links/gone links/x y/gone ../../data/later";
        assert_eq!(out(&world.inside(read)), "", "the next start");
        world.spec("{}");
        assert_eq!(ok(&world.inside("mv links y; cat y/gone")), "SECRET");
    });
}

#[test]
fn directories_beside_a_hidden_name_are_moved_and_files_go_in_and_out() {
    for_both(|world| {
        world.file("home/project/config/secret.env", "SECRET");
        world.file("home/project/config/plain", "plain");
        world.file("home/project/config/sub/file", "file");
        world.file("home/project/other/file", "other");
        world.spec(r#"{"denyRead":["./config/secret.env"]}"#);
        ok(&world.inside(
            "mv other moved && mv config/sub config/new && mv config/plain . && mv plain config/back \
             && mv config/new . && rm -r new && touch config/made && rm config/made",
        ));
        assert_eq!(fs::read_to_string(world.workspace.join("config/back")).unwrap(), "plain");
        assert!(
            world.workspace.join("moved/file").exists() && !world.workspace.join("new").exists()
        );
    });
}

#[test]
fn many_hidden_names_in_one_directory_have_one_chain_of_pins() {
    for_both(|world| {
        world.dir("home/project/a/b");
        let names: Vec<String> = (0..1000).map(|number| format!("./a/b/{number}")).collect();
        for name in &names {
            fs::write(world.workspace.join(name), "SECRET").unwrap();
        }
        world.spec(&json!({ "denyRead": names }).to_string());
        let mut explain = world.command(world.launcher());
        explain.arg("explain").arg(world.spec_file());
        let told = ok(&explain.output().unwrap());
        let pins: Vec<&str> = told.lines().filter(|line| line.contains("  pinned ")).collect();
        assert_eq!(pins.len(), 2, "{pins:?}");
        has(pins[0], &["/project/a ", "cannot be renamed: something hidden is in it"]);
        let tried = world.inside("mv a/b a/x; mv a x; cat a/b/* | wc -c; ls a/b | wc -l");
        assert_eq!(ok(&tried), "0\n1000\n");
        assert_eq!(err(&tried).matches("busy").count(), 2, "{tried:?}");
    });
}
