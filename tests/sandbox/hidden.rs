//! Law 2 and 3: what is denied reads as empty, cannot be changed, and may be absent.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::jail::{Who, World, err, for_both, has, ok, out, refused};

mod litter;
mod names;
mod parents;
mod patterns;
mod running;
mod sampled;

#[test]
fn a_denied_file_and_directory_read_as_empty_by_every_name() {
    for_both(|world| {
        world.file("home/.aws/credentials", "SECRET-A");
        world.file("home/.netrc", "SECRET-B");
        world.file("data/token", "SECRET-C");
        world.file("data/keys/key", "SECRET-D");
        world.file("home/.plain", "plain");
        world.link("home/token", "../data/token");
        world.link("home/second", "token");
        world.link("home/keys", world.root.join("data/keys"));
        world.spec(r#"{"denyRead":["~/.aws","~/.netrc","~/second","~/keys"]}"#);
        let names = "~/.netrc ~/token ~/second ../../data/token";
        let look =
            format!("cat {names} ~/.aws/* ~/keys/* ../../data/keys/* ~/.plain 2>/dev/null; true");
        has(&ok(&world.plainly(&look)), &["SECRET-A", "SECRET-B", "SECRET-C", "SECRET-D", "plain"]);
        assert_eq!(ok(&world.inside(&look)), "plain");
        let kinds = ok(&world.inside(&format!("stat -L -c '%F %s %a' {names} ~/.aws ~/keys")));
        assert_eq!(
            kinds,
            "regular empty file 0 444\n".repeat(4) + &"directory 40 555\n".repeat(2),
            "regular files, so that git works on them"
        );
        assert_eq!(ok(&world.inside("ls -A ~/.aws ~/keys/ | grep -c credentials; true")), "0\n");
    });
}

#[test]
fn a_mask_cannot_be_written_moved_unmounted_or_remounted() {
    for_both(|world| {
        let secret = world.file("home/.aws/credentials", "SECRET-A");
        let file = world.file("home/.netrc", "SECRET-B");
        world.file("home/project/.env", "SECRET-C");
        world.spec(r#"{"denyRead":["~/.aws","~/.netrc","./.env"]}"#);
        let attempts = [
            ("echo x > ~/.netrc", "Read-only file system"),
            ("echo x > ~/.aws/new", "Read-only file system"),
            ("rm ~/.netrc", ""),
            ("mv .env other", "busy"),
            ("rm .env", "busy"),
            ("echo x > .env", "Read-only file system"),
            ("chmod 600 .env", "Read-only file system"),
            ("umount ~/.netrc", "must be superuser|permission denied|not mounted"),
            ("umount ~/.aws", "must be superuser|permission denied|not mounted"),
            ("umount ~", "must be superuser|permission denied"),
            ("mount -o remount,rw,bind /", "must be superuser|permission denied"),
            ("mount --move ~/.aws /tmp", "must be superuser|permission denied"),
            ("unshare -Urm umount ~/.aws", "unshare failed"),
            ("unshare -m true", "unshare failed"),
            ("echo x > /proc/sys/kernel/hostname", "Read-only file system|Permission denied"),
            ("echo x > /proc/sys/kernel/core_pattern", "Read-only file system|Permission denied"),
            ("echo 100 > /proc/sys/user/max_user_namespaces", ""),
        ];
        for (attempt, message) in attempts {
            let tried = world
                .inside(&format!("{attempt}; code=$?; cat .env ~/.netrc ~/.aws/*; exit $code"));
            assert_ne!(tried.status.code(), Some(0), "{attempt}: {tried:?}");
            assert_ne!(tried.status.code(), Some(125), "{attempt}: {tried:?}");
            let said = err(&tried);
            assert!(message.split('|').any(|part| said.contains(part)), "{attempt}: {said}");
            assert_eq!(out(&tried), "", "{attempt}");
        }
        // The tools are there and work on what is allowed.
        ok(&world.inside("echo x > new && chmod 600 new && mv new newer && rm newer"));
        assert_eq!(fs::read_to_string(&secret).unwrap(), "SECRET-A");
        assert_eq!(fs::read_to_string(&file).unwrap(), "SECRET-B");
    });
}

#[test]
fn process_1_and_the_capability_sets_hold_nothing() {
    for_both(|world| {
        world.file("home/.aws/credentials", "SECRET");
        world.spec(r#"{"denyRead":["~/.aws"]}"#);
        let text = ok(&world.inside(
            "tr '\\0' ' ' < /proc/1/cmdline; cat /proc/1/status; cat /run/kli/sandbox.json",
        ));
        assert!(!text.contains(".aws"), "{text}");
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            has(&text, &[&format!("{set}:\t0000000000000000")]);
        }
        has(&text, &["NoNewPrivs:\t1", r#""hiddenPaths":"#]);
    });
}

#[test]
fn an_absent_denied_path_is_skipped_and_leaves_nothing() {
    for_both(|world| {
        world.link("home/dangling", "nowhere");
        world.spec(r#"{"denyRead":["~/.absent","~/no/where","./.env","~/dangling","/no/such"]}"#);
        assert_eq!(ok(&world.inside("echo started; ls -A")), "started\n");
        assert!(!world.home.join(".absent").exists());
        assert!(!world.home.join("no").exists());
        assert!(!world.workspace.join(".env").exists());
        assert!(!world.home.join("nowhere").exists());
        let told = ok(&world
            .command(world.launcher())
            .arg("explain")
            .arg(world.spec_file())
            .output()
            .unwrap());
        has(
            &told,
            &[
                "/.absent` is absent and stays so inside",
                "/.env` is absent: it is hidden as soon as",
            ],
        );
    });
}

#[test]
fn masks_win_over_every_list_in_any_order() {
    for_both(|world| {
        world.file("home/cache/secret/key", "SECRET");
        world.file("home/cache/other", "old");
        for spec in [
            r#"{"writablePaths":["~/cache","~/cache/secret"],"denyRead":["~/cache/secret"]}"#,
            r#"{"denyRead":["~/cache/secret"],"writablePaths":["~/cache/secret","~/cache"]}"#,
        ] {
            world.spec(spec);
            let tried = world.inside(
                "echo new > ~/cache/other; ls -A ~/cache/secret; echo x > ~/cache/secret/key",
            );
            assert_eq!(out(&tried), "");
            has(&err(&tried), &["Read-only file system"]);
            assert_eq!(fs::read_to_string(world.home.join("cache/other")).unwrap(), "new\n");
            assert_eq!(fs::read_to_string(world.home.join("cache/secret/key")).unwrap(), "SECRET");
        }
    });
}

#[test]
fn a_denial_on_the_command_line_only_narrows() {
    for_both(|world| {
        world.file("home/one", "ONE");
        world.file("home/two", "TWO");
        world.file("home/project/three", "THREE");
        world.spec(r#"{"denyRead":["~/one"]}"#);
        let two = world.home.join("two");
        let options = ["--deny", two.to_str().unwrap(), "--deny", "three"];
        let tried =
            world.run_with(&options, &["sh", "-c", "cat ~/one ~/two three"]).output().unwrap();
        assert_eq!(ok(&tried), "");
        assert_eq!(ok(&world.inside("cat ~/one ~/two three")), "TWOTHREE");
    });
}

#[test]
fn strange_names_are_hidden_as_they_are() {
    let names =
        ["with space", "new\nline", "quote'\"", "$HOME", "[a-z]*", "-rf", "a\\b", "ü", "#x"];
    for_both(|world| {
        for name in names {
            world.file(format!("home/{name}"), "SECRET");
            world.file(format!("home/d {name}/file"), "SECRET");
        }
        let list: Vec<String> =
            names.iter().flat_map(|name| [format!("~/{name}"), format!("~/d {name}")]).collect();
        world.spec(&serde_json::json!({ "denyRead": list }).to_string());
        let look = "cat ~/* ~/d*/* 2>/dev/null; true";
        assert_eq!(ok(&world.plainly(look)).matches("SECRET").count(), 18);
        assert_eq!(ok(&world.inside(look)), "");
    });
}

#[test]
fn five_thousand_denied_files_are_hidden() {
    for_both(|world| {
        world.dir("home/many");
        let mut list = Vec::new();
        for number in 0..5000 {
            fs::write(world.home.join(format!("many/{number}")), "SECRET").unwrap();
            list.push(format!("~/many/{number}"));
        }
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(world.home.join("many"), mode).unwrap();
        world.spec(&serde_json::json!({ "denyRead": list }).to_string());
        assert_eq!(ok(&world.inside("cat ~/many/* | wc -c; ls ~/many | wc -l")), "0\n5000\n");
    });
}

#[test]
fn a_denied_path_around_the_workspace_is_refused_with_a_sentence() {
    for_both(|world| {
        for deny in ["~/project", "~/", "./"] {
            world.spec(&serde_json::json!({ "denyRead": [deny] }).to_string());
            has(&refused(&world.inside("touch effect")), &["lies inside the denied path"]);
        }
        assert!(!world.workspace.join("effect").exists());
        world.spec("{}");
        ok(&world.inside("touch effect"));
        assert!(world.workspace.join("effect").exists());
    });
}

#[test]
fn a_home_that_is_a_symbolic_link_is_covered() {
    for_both(|world| {
        world.file("data/me/.aws/credentials", "SECRET");
        world.dir("data/me/project");
        world.link("linked", "data/me");
        world.spec(r#"{"denyRead":["~/.aws"],"writablePaths":["~/.cache/kli"]}"#);
        let script = "cat ~/.aws/credentials ../.aws/credentials; touch ~/.cache/kli/made";
        let tried = world
            .run_with(&[], &["sh", "-c", script])
            .env("HOME", world.root.join("linked"))
            .current_dir(world.root.join("linked/project"))
            .output()
            .unwrap();
        assert_eq!(out(&tried), "");
        has(&err(&tried), &["No such file"]);
        assert!(world.root.join("data/me/.cache/kli/made").exists());
    });
}

#[test]
fn without_a_known_home_a_denied_path_below_it_is_refused() {
    let world = World::new(Who::User);
    let start = |spec: &str| {
        world.spec(spec);
        world.run_with(&[], &["sh", "-c", "echo started"]).env("HOME", "relative").output().unwrap()
    };
    if ok(&world.plainly("getent passwd $(id -u) || echo none")) != "none\n" {
        // The account's home counts then.
        assert_eq!(ok(&start(r#"{"denyRead":["~/.absent"],"stateDir":false}"#)), "started\n");
        return;
    }
    let text = refused(&start(r#"{"denyRead":["~/.aws"]}"#));
    has(&text, &["`denyRead`: `~/.aws`", "no home is known, set HOME"]);
    let text = refused(&start(r#"{"writablePaths":["~/.cache"]}"#));
    has(&text, &["`writablePaths`: `~/.cache`", "no home is known: set HOME"]);
    assert_eq!(ok(&start("{}")), "started\n");
}

#[test]
fn a_directory_that_its_owner_locked_does_not_uncover_what_is_in_it() {
    for_both(|world| {
        world.file("home/project/locked/secret", "SECRET");
        world.link("home/project/link", "locked/secret");
        let lock = |mode| {
            let mode = fs::Permissions::from_mode(mode);
            fs::set_permissions(world.workspace.join("locked"), mode).unwrap();
        };
        let open = "chmod 700 locked; cat locked/secret link";
        for deny in ["./locked/secret", "./link"] {
            lock(0);
            world.spec("{}");
            assert_eq!(ok(&world.inside(open)), "SECRETSECRET");
            lock(0);
            world.spec(&serde_json::json!({ "denyRead": [deny] }).to_string());
            let tried = world.inside(open);
            assert_eq!(out(&tried), "", "{deny}");
        }
    });
}

#[test]
fn a_denial_on_the_command_line_that_would_name_nothing_is_refused() {
    for_both(|world| {
        world.file("home/one", "ONE");
        world.spec("{}");
        let start = |deny: &str| {
            let script = "cat ../one; touch effect";
            world.run_with(&["--deny", deny], &["sh", "-c", script]).output().unwrap()
        };
        for deny in ["$HOM/one", "~/../one", "~nobody/one", "~\u{1}"] {
            let text = refused(&start(deny));
            has(&text, &["it starts at no known place", "begin with `/`, `~/` or `./`"]);
            assert!(!world.workspace.join("effect").exists());
        }
        for deny in ["../one/", "../project/../one", "~/one/", "$HOME/one"] {
            assert_eq!(ok(&start(deny)), "", "{deny}");
        }
        // A lone `~` is the home, in which the workspace lies.
        has(&refused(&start("~")), &["lies inside the denied path"]);
        assert_eq!(ok(&start("./~")), "ONE");
    });
}

#[test]
fn a_pattern_that_would_hide_nothing_is_refused() {
    for_both(|world| {
        fs::write(world.workspace.join(".envrc"), "secret").unwrap();
        world.spec(r#"{"denyRead":["./.en*"]}"#);
        let output = world.inside("cat .envrc; touch effect");
        has(&refused(&output), &["nothing is called `./.en*`", "no patterns", "name each path"]);
        assert!(!world.workspace.join("effect").exists());
        // Control: a file of that very name is hidden.
        fs::write(world.workspace.join(".en*"), "secret").unwrap();
        assert_eq!(ok(&world.inside("cat '.en*'; touch effect")), "");
    });
}
