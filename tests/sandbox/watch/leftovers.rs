//! Law 9: what stands empty in place of absent hooks and settings. A launcher that is killed leaves it, and
//! the next run in that repository removes it at its end; what is the host's own stays.

use std::os::unix::fs::MetadataExt;

use super::*;

const NAMES: [&str; 2] = ["hooks", "config.worktree"];

#[test]
fn what_a_killed_launcher_leaves_is_removed_by_the_next_run() {
    for_all(&LAYOUTS, |repository| {
        let world = &repository.world;
        let places = NAMES.map(|name| repository.common.join(name));
        repository.outside("rm -rf $C/hooks");
        let before = repository.state();
        let mut talk = Talk::start(world);
        has(&talk.says(&format!("echo x > '{}/x'", places[0].display())), &["Read-only"]);
        kill(talk.pid(), Signal::KILL);
        drop(talk.ends());
        assert!(places.iter().all(|place| !is_gone(place)), "{repository:?}: they are left");
        let tried = repository.inside(
            "echo x > $C/hooks/post-commit; echo x > $C/config.worktree; rm -r $C/hooks; \
             mv $C/hooks $C/x; echo a > a && git add a && git commit -qm a && echo done",
        );
        assert_eq!(out(&tried), "done\n", "{tried:?}");
        has(&err(&tried), &["Read-only file system", "busy"]);
        assert!(places.iter().all(|place| is_gone(place)), "{repository:?}");
        assert_eq!(repository.state(), before, "{repository:?}");
    });
}

#[test]
fn what_the_host_has_made_stays() {
    for_all(&[Layout::Clone, Layout::Worktree], |repository| {
        // Its own empty ones, and what it has put into one that was left.
        repository.outside("rm -rf $C/hooks; mkdir $C/hooks; : > $C/config.worktree");
        ok(&repository.inside("true"));
        assert_eq!(repository.outside("ls -d $C/hooks $C/config.worktree").lines().count(), 2);
        repository.outside(
            "rmdir $C/hooks; mkdir -m 1755 $C/hooks; echo hook > $C/hooks/post-commit; \
             chmod 1644 $C/config.worktree; echo '[core]' > $C/config.worktree",
        );
        ok(&repository.inside("true"));
        assert_eq!(repository.outside("cat $C/hooks/* $C/config.worktree"), "hook\n[core]\n");
        repository.outside("rm $C/hooks/*; : > $C/config.worktree");
        ok(&repository.inside("true"));
        assert_eq!(repository.outside("ls $C | grep -c -e hooks -e worktree$; true"), "0\n");
    });
}

#[test]
fn the_last_of_two_runs_removes_it_and_none_takes_it_from_the_other() {
    for_all(&[Layout::Clone], |repository| {
        let places = NAMES.map(|name| repository.common.join(name));
        repository.outside("rm -rf $C/hooks");
        let number = || fs::symlink_metadata(&places[0]).unwrap().ino();
        let mut first = Talk::start(&repository.world);
        has(&first.says("echo x > .git/hooks/x"), &["Read-only"]);
        let made = number();
        for _ in 0..3 {
            has(&err(&repository.inside("echo x > .git/hooks/x")), &["Read-only"]);
            assert_eq!(number(), made, "a run that ends leaves it to the one that goes on");
        }
        // The other way round: who made it ends first.
        let mut later = repository.world.run_with(
            &[],
            &[
                "sh",
                "-c",
                "touch later; until [ -e go ]; do sleep .02; done; echo x > .git/hooks/x",
            ],
        );
        let later = later.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let up = repository.world.workspace.join("later");
        assert!(wait_for(Duration::from_secs(10), || up.exists()));
        drop(first);
        assert_eq!(number(), made);
        fs::write(repository.world.workspace.join("go"), "").unwrap();
        has(&err(&later.wait_with_output().unwrap()), &["Read-only"]);
        assert!(places.iter().all(|place| is_gone(place)));
    });
}
