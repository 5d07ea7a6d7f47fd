//! Law 2: every name that a denied path has, by whatever way it is reached, and what holds it.

use std::fs;

use crate::jail::{Who, World, err, for_both, has, ok, out, refused};

fn explain(world: &World, format: &str) -> String {
    let mut command = world.command(world.launcher());
    command.arg("explain").arg(world.spec_file()).args(["--format", format]);
    ok(&command.output().unwrap())
}

#[test]
fn the_same_files_on_another_mount_point_are_hidden_and_named() {
    for_both(|world| {
        world.file("home/.aws/credentials", "SECRET-A");
        world.file("home/.netrc", "SECRET-B");
        world.file("home/plain", "plain");
        world.dir("persist");
        world.dir("only-aws");
        world.spec(r#"{"denyRead":["~/.aws","~/.netrc","~/.absent"]}"#);
        let script = |start: &str| {
            format!(
                "cd \"$W\" && mount --bind home persist && mount --bind home/.aws only-aws && \
                 cd home/project && {start} sh -c 'cat ../.aws/* ../../persist/.aws/* ../../persist/.netrc \
                 ../../only-aws/* ../../persist/plain; true'"
            )
        };
        let control = ok(&world.in_namespace(&script("")));
        assert_eq!(control.matches("SECRET").count(), 4, "{control}");
        let inside = world.in_namespace(&script("\"$L\" run --spec \"$SPEC\" --"));
        assert_eq!(ok(&inside), "plain");
        let told = ok(&world.in_namespace(
            "cd \"$W\" && mount --bind home persist && cd home/project && \"$L\" explain \"$SPEC\"",
        ));
        let persist = world.root.join("persist");
        let path = persist.display();
        has(
            &told,
            &[
                &format!("{path}/.aws  -- denied: ~/.aws, whose files are mounted here as well"),
                &format!("absent           {path}/.absent"),
            ],
        );
    });
}

#[test]
fn the_same_files_in_an_overlay_and_in_its_layers_are_hidden() {
    for_both(|world| {
        world.file("low/key", "SECRET-A");
        world.file("low/plain", "plain");
        world.file("up/late", "SECRET-B");
        for directory in ["work", "merged", "again"] {
            world.dir(directory);
        }
        let low = world.root.join("low");
        let merged = world.root.join("merged");
        let start = |denied: &std::path::Path, start: &str| {
            world.spec(&format!(
                r#"{{"denyRead":["{0}/key","{0}/late","{0}/none"]}}"#,
                denied.display()
            ));
            let options = if world.who == Who::Root { "" } else { "userxattr," };
            let mount = format!(
                "cd \"$W\" && mount -t overlay -o {options}lowerdir=$W/low,upperdir=$W/up,workdir=$W/work o merged \
                 && mount --bind merged again && cd home/project && {start}"
            );
            world.in_namespace(&mount)
        };
        let look = "sh -c 'cat ../../*/key ../../*/late ../../merged/plain; true'";
        let control = ok(&start(&low, look));
        assert_eq!(control.matches("SECRET").count(), 6, "{control}");
        let jailed = format!("\"$L\" run --spec \"$SPEC\" -- {look}");
        for denied in [&merged, &low, &world.root.join("again")] {
            let inside = start(denied, &jailed);
            let hidden = if *denied == low { "SECRET-A" } else { "SECRET" };
            let said = ok(&inside);
            assert!(!said.contains(hidden) && said.contains("plain"), "{denied:?}: {inside:?}");
        }
        let told = ok(&start(&merged, "\"$L\" explain \"$SPEC\""));
        let path = low.display();
        has(&told, &[&format!("{path}/key  -- denied: {}/key, whose files", merged.display())]);
    });
}

#[test]
fn a_chain_of_links_reads_as_empty_and_does_not_stop_the_start() {
    for_both(|world| {
        world.file("store/aaa/files/settings", "SECRET");
        world.link("store/bbb", world.root.join("store/aaa/files"));
        world.link("home/.dir", world.root.join("store/bbb"));
        world.link("home/.settings", ".dir/settings");
        world.file("dots/kli/settings.json", r#"{"model":"x"}"#);
        world.dir("home/.config");
        world.link("home/.config/kli", world.root.join("dots/kli"));
        world.spec(r#"{"denyRead":["~/.settings"]}"#);
        let look = "cat ~/.settings ~/.dir/settings ../../store/*/settings ../../store/aaa/files/*; \
                    cat ~/.config/kli/settings.json";
        has(&out(&world.plainly(look)), &["SECRET", "model"]);
        assert_eq!(out(&world.inside(look)), r#"{"model":"x"}"#);
    });
}

#[test]
fn a_hard_link_is_warned_about() {
    for_both(|world| {
        let file = world.file("home/.netrc", "SECRET");
        fs::hard_link(&file, world.home.join("other")).unwrap();
        world.spec(r#"{"denyRead":["~/.netrc"]}"#);
        has(
            &explain(world, "words"),
            &["/.netrc` has 2 hard links: its other names are not hidden"],
        );
        // Said, because it is so.
        assert_eq!(ok(&world.inside("cat ~/.netrc ~/other")), "SECRET");
    });
}

#[test]
fn the_table_of_mounts_inside_names_nothing_that_an_overlay_holds() {
    for_both(|world| {
        world.file("home/.aws/credentials", "SECRET");
        world.file("home/.config/gh/hosts.yml", "SECRET");
        world.file("data/hush/token", "SECRET");
        world.file("home/project/.env", "SECRET");
        let data = world.root.join("data/hush/token");
        world.spec(
            &serde_json::json!({
                "denyRead": ["~/.aws", "~/.config/gh/hosts.yml", "~/.later", data, "./.env"]
            })
            .to_string(),
        );
        let text = ok(&world.inside(
            "cat /proc/self/mountinfo /proc/1/mounts /run/kli/sandbox.json; tr '\\0' ' ' < /proc/1/cmdline",
        ));
        for name in [".aws", "hosts.yml", ".later", "token"] {
            assert!(!text.contains(name), "{name}: {text}");
        }
        // Control: a name inside what is writable is a mount, and so it is in the table.
        has(&text, &["/home/project/.env "]);
    });
}

#[test]
fn the_number_that_the_inside_is_told_is_that_of_the_names_that_explain_keeps_hidden() {
    for_both(|world| {
        world.file("home/.netrc", "SECRET");
        world.file("home/project/.env", "SECRET");
        world.file("home/real", "SECRET");
        world.link("home/linked", "real");
        let _socket = std::os::unix::net::UnixListener::bind(world.workspace.join("s")).unwrap();
        let number = |text: &str| -> u64 {
            let marker: serde_json::Value = serde_json::from_str(text).unwrap();
            marker["hiddenPaths"].as_u64().unwrap()
        };
        for (denied, least) in [
            ("[]", 0),
            // There, absent, absent in one absent directory, absent where the inside may write.
            (r#"["~/.netrc"]"#, 1),
            (r#"["~/.aws"]"#, 1),
            (r#"["~/no/a","~/no/b"]"#, 1),
            (r#"["./.later"]"#, 1),
            (r#"["~/.netrc","~/.aws","./.env","./.later","~/linked"]"#, 6),
        ] {
            world.spec(&format!(r#"{{"denyRead":{denied}}}"#));
            let told = explain(world, "words");
            let kept = ["hidden file ", "hidden directory ", "absent "];
            let names = told.lines().filter(|line| {
                let line = line.trim_start();
                let line = line.strip_prefix("as soon as it appears: ").unwrap_or(line);
                line.contains("  -- denied: ") && kept.iter().any(|verb| line.starts_with(verb))
            });
            let names = u64::try_from(names.count()).unwrap();
            assert!(names >= least, "control: {told}");
            assert_eq!(number(&ok(&world.inside("cat /run/kli/sandbox.json"))), names, "{told}");
            has(&told, &[&format!("\nhidden paths: {names} ("), "hidden file      "]);
            assert_eq!(number(&explain(world, "json")), names);
        }
    });
}

#[test]
fn explain_says_which_mechanism_holds_each_name_and_why() {
    for_both(|world| {
        world.file("home/.netrc", "SECRET");
        world.file("home/project/.env", "SECRET");
        world.spec(r#"{"denyRead":["~/.netrc","~/.later","./.env","./.env.local"]}"#);
        let told = explain(world, "words");
        let home = world.home.display();
        has(
            &told,
            &[
                "they hold whatever the host does",
                &format!("overlay          {home}  -- the home"),
                &format!("hidden file      {home}/.netrc  -- denied: ~/.netrc"),
                &format!("absent           {home}/.later  -- denied: ~/.later"),
                &format!("fresh            {home}/project  -- the workspace"),
                &format!(
                    "denied: ./.env; by a mount, as it lies inside the writable `{home}/project`"
                ),
                "put back at once, and until then the new content is seen",
                &format!("as soon as it appears: hidden file      {home}/project/.env.local"),
            ],
        );
        let told: serde_json::Value = serde_json::from_str(&explain(world, "json")).unwrap();
        let overlays = told["overlays"].as_array().unwrap();
        assert!(overlays.iter().any(|it| it["anchor"] == home.to_string()));
        assert_eq!(told["awaited"][0]["destination"], format!("{home}/project/.env.local"));
    });
}

#[test]
fn where_something_is_mounted_in_the_home_names_in_it_are_held_by_mounts() {
    for_both(|world| {
        world.file("home/.netrc", "SECRET");
        world.file("home/.config/gh/hosts.yml", "SECRET");
        world.dir("home/mnt");
        world.spec(r#"{"denyRead":["~/.netrc","~/.config/gh/hosts.yml"]}"#);
        let script = |what: &str| {
            format!(
                "mount -t tmpfs x \"$W/home/mnt\" && echo mounted > \"$W/home/mnt/file\" && \
                 cd \"$W/home/project\" && {what}"
            )
        };
        let read = "sh -c 'cat ../.netrc ../.config/gh/hosts.yml ../mnt/file'";
        let control = ok(&world.in_namespace(&script(read)));
        assert_eq!(control.matches("SECRET").count(), 2, "{control}");
        let inside = script(&format!("\"$L\" run --spec \"$SPEC\" -- {read}"));
        assert_eq!(ok(&world.in_namespace(&inside)), "mounted\n");
        let told = ok(&world.in_namespace(&script("\"$L\" explain \"$SPEC\"")));
        let home = world.home.display();
        has(
            &told,
            &[
                &format!("no overlay lies on `{home}`: `{home}/mnt` is mounted in `{home}`"),
                &format!("hidden file      {home}/.config/gh/hosts.yml"),
            ],
        );
    });
}

#[test]
fn owner_mode_and_time_of_an_overlaid_directory_are_the_real_ones() {
    use std::os::unix::fs::PermissionsExt;
    for_both(|world| {
        world.file("home/.config/gh/hosts.yml", "SECRET");
        world.file("home/.config/gh/plain", "plain");
        for (path, mode) in [("home", 0o700), ("home/.config", 0o750), ("home/.config/gh", 0o711)] {
            fs::set_permissions(world.root.join(path), fs::Permissions::from_mode(mode)).unwrap();
        }
        world.spec(r#"{"denyRead":["~/.config/gh/hosts.yml"]}"#);
        let look = "stat -c '%u %g %a %Y' ~ ~/.config ~/.config/gh; cat ~/.config/gh/plain";
        assert_eq!(ok(&world.inside(look)), ok(&world.plainly(look)));
    });
}

#[test]
fn what_overlaps_is_decided_by_the_same_rules_in_any_order() {
    for_both(|world| {
        world.file("home/cache/ro/deep/file", "old");
        world.file("home/cache/ro/file", "old");
        world.file("home/cache/secret/file", "SECRET");
        world.file("home/cache/same/file", "old");
        world.file("home/quiet/write/file", "old");
        let lists = [
            (
                r#""~/cache","~/cache/ro/deep","~/cache/same""#,
                r#""~/cache/ro","~/cache/same","~/quiet""#,
            ),
            (
                r#""~/cache/same","~/cache/ro/deep","~/cache""#,
                r#""~/quiet","~/cache/same","~/cache/ro""#,
            ),
        ];
        for (writable, read_only) in lists {
            world.spec(&format!(
                r#"{{"writablePaths":[{writable},"~/quiet/write"],"readOnlyPaths":[{read_only}],"denyRead":["~/cache/secret"]}}"#
            ));
            let write = |path: &str| world.inside(&format!("echo new >> ~/{path}"));
            for path in ["cache/ro/file", "cache/same/file", "quiet/file"] {
                has(&err(&write(path)), &["Read-only file system"]);
            }
            has(&err(&world.inside("mv ~/cache/ro ~/cache/x")), &["busy"]);
            has(&err(&write("cache/secret/file")), &["Read-only file system"]);
            assert_eq!(
                ok(&world.inside("cat ~/cache/ro/file ~/cache/same/file; ls ~/cache/secret")),
                "oldold"
            );
            for path in ["cache/new", "cache/ro/deep/file", "quiet/write/file"] {
                ok(&write(path));
                assert!(fs::read_to_string(world.home.join(path)).unwrap().ends_with("new\n"));
            }
        }
        for path in ["cache/ro/file", "cache/same/file"] {
            assert_eq!(fs::read_to_string(world.home.join(path)).unwrap(), "old");
        }
    });
}

#[test]
fn a_read_only_path_below_tmp_is_shown_there_and_cannot_be_written() {
    for_both(|world| {
        let there = World::below(world.who, std::path::Path::new("/tmp"));
        let file = there.file("shared/file", "shown");
        let shared = there.root.join("shared").display().to_string();
        let read = format!("cat '{shared}/file'; echo x > '{shared}/new'");
        world.spec("{}");
        has(&err(&world.inside(&read)), &["No such file"]);
        world.spec(&serde_json::json!({ "readOnlyPaths": [shared] }).to_string());
        let tried = world.inside(&read);
        assert_eq!(out(&tried), "shown");
        has(&err(&tried), &["Read-only file system"]);
        assert!(!file.with_file_name("new").exists());
        for (path, part) in [("/tmp/", "name what is needed below it"), ("/run/kli", "name what")] {
            world.spec(&serde_json::json!({ "readOnlyPaths": [path] }).to_string());
            has(&refused(&world.inside("touch effect")), &["`readOnlyPaths`", part]);
        }
        assert!(!world.workspace.join("effect").exists());
    });
}

#[test]
fn the_pasted_shell_line_gives_the_same_view() {
    for_both(|world| {
        world.file("home/.aws/credentials", "SECRET");
        world.file("home/.config/gh/hosts.yml", "SECRET");
        world.file("home/.config/gh/other", "plain");
        world.file("data/token", "SECRET");
        world.link("home/token", "../data/token");
        world.file("home/project/.env", "SECRET");
        world.file("home/cache/ro/deep/file", "old");
        world.dir("home/cache/secret");
        world.spec(
            r#"{"denyRead":["~/.aws","~/.config/gh/hosts.yml","~/token","./.env","~/absent","~/cache/secret"],
                "denyReadGlobs":["~/.config/**/hosts.*"],"writablePaths":["~/cache","~/cache/ro/deep"],"readOnlyPaths":["~/cache/ro"]}"#,
        );
        let look = "for f in ~ ~/.aws ~/.aws/credentials ~/.config/gh/hosts.yml ~/.config/gh/other ~/token \
            ../../data/token .env ~/absent ~/cache ~/cache/ro ~/cache/ro/deep ~/cache/ro/deep/file \
            ~/cache/secret . /tmp /run /run/kli /etc/passwd /dev/null /dev/shm ~/.local/state/kli; do \
            if [ -d $f ]; then k=d; c=$(ls -A $f 2>/dev/null | wc -l); [ $f = /run ] && c=; \
            elif [ -e $f ]; then k=f; c=$(cat $f 2>/dev/null | wc -c); else k=-; c=; fi; \
            w=r; if [ $k = d ]; then touch $f/.probe 2>/dev/null && w=w && rm $f/.probe; \
            elif [ $k = f ]; then ( : >> $f ) 2>/dev/null && w=w; fi; echo $f $k $c $w; done; pwd; id -u";
        let run = ok(&world.inside(look));
        has(&run, &["/.aws d 0 r", "hosts.yml f 0 r", "other f 5 r", "token f 0 r", ".env f 0 r"]);
        has(&run, &["absent -", "cache d 2 w", "cache/ro d 1 r", "deep d 1 w", "deep/file f 3 w"]);
        let line = explain(world, "shell");
        has(&line, &["Only `kli-sandbox run` does this"]);
        let shell = world.file("shell", &format!("#!/bin/sh\n{look}\n"));
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&shell, mode).unwrap();
        let pasted = world
            .command("timeout")
            .args(["-k", "1", "30", "sh", "-c", &line])
            .env("SHELL", &shell)
            .output()
            .unwrap();
        assert_eq!(ok(&pasted), run);
    });
}

#[test]
fn a_name_in_the_home_is_hidden_in_the_variable_s_and_in_the_account_s() {
    for_both(|world| {
        let account = world.dir("account").display().to_string();
        world.file("passwd", &format!("root:x:0:0::{account}:/bin/sh\n"));
        let places = ["home/.netrc", "account/.netrc", "config/gh/hosts", "home/.config/gh/hosts"];
        for place in places {
            world.file(place, "SECRET");
        }
        world.file("account/.plain", "plain");
        world.spec(r#"{"denyRead":["~/.netrc","~/.later","$XDG_CONFIG_HOME/gh"]}"#);
        // User 0 of a namespace, whose account is the one of that table.
        let script = |start: &str| {
            format!(
                "mount --bind \"$W/passwd\" /etc/passwd && cd \"$W\" && cat {} account/.plain && \
                 cd \"$W/home/project\" && export XDG_CONFIG_HOME=\"$W/config\" && {start}",
                places.join(" ")
            )
        };
        let files = places.map(|place| format!("../../{place}")).join(" ");
        let start = format!(
            "\"$L\" explain \"$SPEC\"; \"$L\" run --spec \"$SPEC\" -- sh -c \
             'cat {files} 2>/dev/null; cat ../../account/.plain; : > ../../account/.later'"
        );
        let ran = world.in_namespace(&script(&start));
        let told = out(&ran);
        assert_eq!(told.matches("SECRET").count(), places.len(), "the control alone: {told}");
        assert!(told.ends_with("\nplain"), "{told}");
        has(&crate::jail::err(&ran), &["Read-only file system"]);
        has(&told, &[&format!("absent           {account}/.later  -- denied: ~/.later")]);
    });
}
