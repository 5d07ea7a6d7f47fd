//! Law 3: nothing comes to be on the host, at no moment, whoever kills what.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;

use crate::jail::{World, children, for_both, kill, ok, wait_for};

/// Every path below a directory, without following links.
fn all(below: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut open = vec![below.to_path_buf()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(entry.path());
            }
            found.insert(entry.path());
        }
    }
    found
}

fn prepared(world: &World) -> String {
    world.file("home/.aws/credentials", "SECRET");
    world.file("home/.config/gh/hosts.yml", "SECRET");
    world.file("data/token", "SECRET");
    world.file("home/project/.env", "SECRET");
    world.link("home/dangling", "nowhere");
    let data = world.root.join("data");
    let absent: Vec<String> = ["absent", "no/such/thing", "token.later"]
        .iter()
        .map(|it| data.join(it).display().to_string())
        .collect();
    serde_json::json!({
        "stateDir": false,
        "denyRead": [
            "~/.aws", "~/.config/gh/hosts.yml", data.join("token"), "./.env", "./.env.local", "~/.absent",
            "~/a/b/c", "~/dangling", "~/.config/x/y", absent[0], absent[1], absent[2], "/no/such",
        ],
        "denyReadGlobs": ["./**/*.pem"],
        "readOnlyPaths": ["./later", "~/.later"],
    })
    .to_string()
}

#[test]
fn hiding_makes_nothing_on_the_host_at_any_moment() {
    for_both(|world| {
        let spec = prepared(world);
        world.spec(&spec);
        let before = all(&world.root);
        let mut child = world
            .run_with(
                &[],
                &["sh", "-c", "n=0; while [ $n -lt 30 ]; do sleep 0.02; n=$((n+1)); done"],
            )
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut looks = 0;
        while child.try_wait().unwrap().is_none() {
            assert_eq!(all(&world.root), before);
            looks += 1;
        }
        assert!(looks > 10, "{looks}");
        ok(&child.wait_with_output().unwrap());
        assert_eq!(all(&world.root), before);
        // Control: what is written in the workspace is seen by the same look.
        ok(&world.inside("touch made"));
        assert_eq!(all(&world.root).len(), before.len() + 1);
    });
}

#[test]
fn a_kill_at_any_step_leaves_nothing_on_the_host() {
    for_both(|world| {
        let spec = prepared(world);
        world.spec(&spec);
        let before = all(&world.root);
        let mounts = fs::read("/proc/self/mountinfo").unwrap();
        let own = |text: &[u8]| {
            String::from_utf8_lossy(text).lines().filter(|line| line.contains("kli-jail-")).count()
        };
        for step in 0..24 {
            let mut command = world.command(world.launcher());
            command.arg("run").arg("--spec").arg(world.spec_file()).args(["--", "sleep", "20"]);
            let mut child = command.stderr(Stdio::null()).spawn().unwrap();
            std::thread::sleep(Duration::from_micros(step * 400));
            let pid = i32::try_from(child.id()).unwrap();
            // Now the launcher itself, now what it has started.
            let target = children(pid).first().copied().filter(|_| step % 2 == 1).unwrap_or(pid);
            kill(target, Signal::KILL);
            let gone = wait_for(Duration::from_secs(5), || child.try_wait().unwrap().is_some());
            assert!(gone, "step {step}");
            assert_eq!(all(&world.root), before, "step {step}");
        }
        assert_eq!(own(&fs::read("/proc/self/mountinfo").unwrap()), own(&mounts));
    });
}

#[test]
fn an_absent_path_in_git_s_work_tree_shows_nowhere() {
    for_both(|world| {
        world.file("home/project/.env", "SECRET=1\n");
        world.spec(r#"{"denyRead":["./.env","./.env.local","~/.absent"]}"#);
        let git =
            "git -c user.name=n -c user.email=e@x -c init.defaultBranch=m -c safe.directory='*'";
        ok(&world.plainly(&format!("{git} init -q && {git} add .env && {git} commit -qm one")));
        let inside = world.inside(&format!(
            "{git} add . && {git} stash -q && {git} stash pop -q; {git} status --porcelain"
        ));
        let text = crate::jail::out(&inside);
        assert!(text.lines().all(|line| line.ends_with(" .env")), "{inside:?}");
        assert_eq!(fs::read_to_string(world.workspace.join(".env")).unwrap(), "SECRET=1\n");
        assert_eq!(
            ok(&world.plainly(&format!("{git} status --porcelain -uall"))).matches("??").count(),
            0
        );
    });
}
