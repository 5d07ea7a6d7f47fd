//! `denyReadGlobs`: what a pattern means at the start is hidden, whatever it looks like.

use std::fs;
use std::time::{Duration, Instant};

use crate::jail::{for_both, has, ok, out, refused};

#[test]
fn every_name_that_a_pattern_means_is_hidden() {
    for_both(|world| {
        for name in [
            "keys/a.pem",
            "keys/.b.pem",
            "keys/deep/er/c.pem",
            ".ssh/id_rsa",
            ".ssh/id_x",
            "odd [1]/d.pem",
        ] {
            world.file(format!("home/{name}"), "SECRET");
        }
        world.file("home/.ssh/config", "plain");
        world.file("home/keys/a.txt", "plain");
        world.file("data/linked.pem", "SECRET");
        world.link("home/keys/link.pem", "../../data/linked.pem");
        world.file("home/project/sub/.env", "SECRET");
        world.spec(
            r#"{"denyReadGlobs":["~/keys/**/*.pem","~/o*/*.pem","~/.ssh/id_*","./**/.env"],"denyRead":["~/keys/a.pem"]}"#,
        );
        let look = "cat ~/keys/*.pem ~/keys/.b.pem ~/keys/deep/er/* ~/.ssh/id_* ~/odd*/* \
                    ../../data/linked.pem sub/.env ~/.ssh/config ~/keys/a.txt";
        assert_eq!(ok(&world.plainly(look)).matches("SECRET").count(), 9);
        assert_eq!(ok(&world.inside(look)), "plainplain");
        // A directory that a pattern means is hidden with all that is in it.
        world.spec(r#"{"denyReadGlobs":["~/k?ys"]}"#);
        assert_eq!(ok(&world.inside("ls -A ~/keys; cat ~/.ssh/id_x")), "SECRET");
    });
}

#[test]
fn what_a_pattern_would_mean_later_is_said_not_to_be_covered() {
    for_both(|world| {
        world.file("home/keys/a.pem", "SECRET");
        world.spec(r#"{"denyReadGlobs":["~/keys/*.pem"]}"#);
        let told = ok(&world
            .command(world.launcher())
            .arg("explain")
            .arg(world.spec_file())
            .output()
            .unwrap());
        has(&told, &["`~/keys/*.pem` hides what it means at the start", "later", "is not hidden"]);
        world.spec(r#"{"denyReadGlobs":["~/nothing/*.pem"]}"#);
        assert_eq!(ok(&world.inside("echo started")), "started\n");
    });
}

#[test]
fn a_pattern_that_cannot_be_read_or_costs_too_much_starts_nothing() {
    for_both(|world| {
        for (pattern, part) in [
            ("~/[a", "a `[` has no `]`"),
            ("~/*.{pem,key}", "write one entry for each"),
            ("~/a**", "`**` stands for whole directories"),
            ("~/[[:alpha:]]", "is not known"),
        ] {
            world.spec(&serde_json::json!({ "denyReadGlobs": [pattern] }).to_string());
            has(&refused(&world.inside("touch effect")), &["`denyReadGlobs`", pattern, part]);
        }
        let mut deep = world.dir("home/deep");
        for _ in 0..70 {
            deep.push("d");
        }
        fs::create_dir_all(&deep).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(world.home.join("deep/d"), mode).unwrap();
        world.spec(r#"{"denyReadGlobs":["~/deep/**/*.pem"]}"#);
        has(
            &refused(&world.inside("touch effect")),
            &["`~/deep/**/*.pem`", "more than 64 directories down: name the directory"],
        );
        assert!(!world.workspace.join("effect").exists());
        world.spec(r#"{"denyReadGlobs":["~/*.pem"]}"#);
        ok(&world.inside("touch effect"));
        assert!(world.workspace.join("effect").exists());
    });
}

#[test]
fn five_thousand_names_by_pattern_are_hidden_and_start_in_time() {
    for_both(|world| {
        world.dir("home/many/more");
        for number in 0..5000 {
            fs::write(world.home.join(format!("many/more/{number}.key")), "SECRET").unwrap();
        }
        fs::write(world.home.join("many/more/plain"), "plain").unwrap();
        world.spec(r#"{"denyReadGlobs":["~/many/**/*.key"]}"#);
        let start = Instant::now();
        let read = world.inside("cat ~/many/more/*; ls ~/many/more | wc -l");
        assert_eq!(ok(&read), "plain5001\n");
        // Far more than it takes, so that only a fault of another order is told.
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    });
}

#[test]
fn a_directory_locked_by_its_owner_is_hidden_where_a_pattern_goes_through() {
    for_both(|world| {
        world.file("home/project/locked/x.pem", "SECRET");
        let lock = |mode| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            fs::set_permissions(world.workspace.join("locked"), mode).unwrap();
        };
        let open = "chmod 700 locked; cat locked/x.pem";
        lock(0);
        world.spec("{}");
        assert_eq!(ok(&world.inside(open)), "SECRET");
        lock(0);
        world.spec(r#"{"denyReadGlobs":["./**/*.pem"]}"#);
        let tried = world.inside(open);
        assert_eq!(out(&tried), "", "{tried:?}");
        lock(0o700);
    });
}
