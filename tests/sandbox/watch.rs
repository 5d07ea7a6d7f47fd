//! Laws 2 and 9 while the host changes what is held: it is put back at once. And the launcher around
//! it: nothing planted goes unseen, no process more, no busy loop, no signal kept waiting.

use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::git::{LAYOUTS, Layout, for_all, is_gone};
use crate::jail::{World, children, err, for_both, has, kill, ok, out, refused, wait_for};

mod leftovers;
mod namespaces;
mod pointers;

/// How long the watch may take before a test looks; it takes far less.
const SETTLED: Duration = Duration::from_millis(300);

/// A jail that runs one command for each word from outside.
struct Talk<'a> {
    world: &'a World,
    child: Child,
    count: usize,
}

impl<'a> Talk<'a> {
    fn start(world: &'a World) -> Self {
        let script = "mkdir -p .talk; i=0; while :; do i=$((i+1)); \
                      until test -e .talk/go$i; do sleep .01; done; \
                      sh .talk/script$i > .talk/new 2>&1; mv .talk/new .talk/said$i; done";
        let child = world
            .run_with(&[], &["sh", "-c", script])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let up = || world.workspace.join(".talk").exists();
        assert!(wait_for(Duration::from_secs(10), up), "not started");
        Self { world, child, count: 0 }
    }

    /// What a script says inside, after the watch has had its time.
    fn says(&mut self, script: &str) -> String {
        std::thread::sleep(SETTLED);
        self.count += 1;
        let talk = self.world.workspace.join(".talk");
        fs::write(talk.join(format!("script{}", self.count)), script).unwrap();
        fs::write(talk.join(format!("go{}", self.count)), "").unwrap();
        let said = talk.join(format!("said{}", self.count));
        assert!(wait_for(Duration::from_secs(10), || said.exists()), "no answer to: {script}");
        fs::read_to_string(said).unwrap()
    }

    fn pid(&self) -> i32 {
        // `timeout` stands in between.
        children(i32::try_from(self.child.id()).unwrap())[0]
    }

    fn ends(mut self) -> (ExitStatus, String) {
        let ended = wait_for(Duration::from_secs(10), || self.child.try_wait().unwrap().is_some());
        assert!(ended, "the run goes on");
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        (self.child.wait().unwrap(), text)
    }
}

impl Drop for Talk<'_> {
    fn drop(&mut self) {
        if self.child.try_wait().unwrap().is_none() {
            kill(i32::try_from(self.child.id()).unwrap(), Signal::TERM);
            self.child.wait().unwrap();
        }
    }
}

/// Replaces as programs do: another file, renamed over the old one.
fn replace(path: &Path, text: &str) {
    let new = path.with_file_name(".new-of-the-host");
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

/// Asserts that the launcher ended the run, and returns the sentence, which is its last word.
#[track_caller]
fn ended(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    let said = err(output);
    let last = said.lines().last().unwrap_or_default();
    assert!(last.starts_with("kli-sandbox: "), "{said}");
    last.to_owned()
}

#[test]
fn a_name_that_the_host_replaces_is_hidden_again() {
    for_both(|world| {
        let env = world.file("home/project/.env", "SECRET");
        let deep = world.file("home/project/sub/deep/.env", "SECRET");
        let keys = world.dir("home/project/keys");
        world.file("home/project/keys/one", "SECRET");
        world.file("home/project/plain", "PLAIN");
        world.spec(r#"{"denyRead":["./.env","./sub/deep/.env","./keys"]}"#);
        let look = "cat .env sub/deep/.env keys/* plain 2>/dev/null";
        let control = ok(&world.plainly(look));
        assert_eq!(control, "SECRETSECRETSECRETPLAIN");
        let mut talk = Talk::start(world);
        assert_eq!(talk.says(look), "PLAIN");
        replace(&env, "SECRET-2");
        replace(&deep, "SECRET-2");
        replace(&world.workspace.join("plain"), "OTHER");
        assert_eq!(talk.says(look), "OTHER", "renamed over");
        fs::remove_file(&env).unwrap();
        fs::remove_file(&deep).unwrap();
        assert_eq!(talk.says(look), "OTHER", "removed");
        fs::write(&env, "SECRET-3").unwrap();
        fs::write(&deep, "SECRET-3").unwrap();
        assert_eq!(talk.says(look), "OTHER", "made again");
        fs::rename(&keys, world.workspace.join("old")).unwrap();
        world.file("home/project/keys/one", "SECRET-4");
        assert_eq!(talk.says(look), "OTHER", "a directory made again");
        fs::rename(world.workspace.join("sub"), world.workspace.join("moved")).unwrap();
        world.file("home/project/sub/deep/.env", "SECRET-5");
        assert_eq!(talk.says(look), "OTHER", "the parent moved and made again");
        assert_eq!(talk.says("cat moved/deep/.env old/* 2>/dev/null"), "", "and where it went");
        world.file("home/project/next/deep/.env", "SECRET-6");
        fs::rename(world.workspace.join("sub"), world.workspace.join("moved-2")).unwrap();
        fs::rename(world.workspace.join("next"), world.workspace.join("sub")).unwrap();
        assert_eq!(talk.says(look), "OTHER", "another parent moved there");
        fs::remove_file(&env).unwrap();
        world.file("home/project/.env/inner", "SECRET-7");
        assert_eq!(talk.says("cat .env .env/* 2>/dev/null"), "", "a directory in place of a file");
        assert_eq!(ok(&world.plainly("cat .env/inner sub/deep/.env")), "SECRET-7SECRET-6");
    });
}

#[test]
fn a_link_that_is_pointed_elsewhere_is_followed() {
    for_both(|world| {
        world.file("home/secrets/one", "SECRET-1");
        let two = world.file("home/secrets/two", "SECRET-2");
        world.file("home/project/three", "SECRET-3");
        world.file("home/project/dir-a/key", "SECRET-A");
        world.file("home/project/dir-b/key", "SECRET-B");
        let env = world.link("home/project/.env", "../secrets/one");
        let dir = world.link("home/project/dir", "dir-a");
        world.spec(r#"{"denyRead":["./.env","./dir/key"]}"#);
        let look = "cat .env dir/key";
        let mut talk = Talk::start(world);
        let again = |link: &Path, target: &Path| {
            let new = link.with_file_name(".new-link");
            symlink(target, &new).unwrap();
            fs::rename(new, link).unwrap();
        };
        assert_eq!(talk.says(look), "");
        again(&env, &two);
        again(&dir, Path::new("dir-b"));
        assert_eq!(talk.says(look), "");
        assert_eq!(talk.says("cat ../secrets/two dir-b/key dir-a/key"), "", "by every name");
        replace(&two, "SECRET-2b");
        assert_eq!(talk.says(look), "", "the new target was replaced");
        again(&env, Path::new("three"));
        assert_eq!(talk.says("cat .env three"), "");
        // The inside cannot lead it elsewhere, for the next start.
        let said = talk.says("rm .env; ln -sfn three dir; mv dir other");
        assert_eq!(said.matches("busy").count(), 3, "{said}");
        assert_eq!(fs::read_link(&env).unwrap(), Path::new("three"));
        // Nor does a link that leads to everything take everything away.
        again(&env, Path::new("/"));
        assert_eq!(
            talk.says("cat dir-a/../three; test -s /run/kli/sandbox.json && echo there"),
            "there\n"
        );
        assert_eq!(ok(&world.plainly("cat dir/key")), "SECRET-B");
    });
}

#[test]
fn a_directory_around_a_hidden_name_stays_also_when_the_host_makes_another() {
    for_both(|world| {
        world.file("home/project/sub/deep/.env", "SECRET");
        world.spec(r#"{"denyRead":["./sub/deep/.env"]}"#);
        let take = "mv sub other; mv sub/deep sub/other; rm -r sub/deep";
        let mut talk = Talk::start(world);
        let said = talk.says(take);
        assert_eq!(said.matches("busy").count(), 3, "{said}");
        fs::rename(world.workspace.join("sub"), world.workspace.join("moved")).unwrap();
        world.file("home/project/sub/deep/.env", "SECRET-2");
        let said = talk.says(take);
        assert_eq!(said.matches("busy").count(), 3, "made again: {said}");
        has(&talk.says("mv moved other"), &["busy"]);
        assert_eq!(talk.says("cat sub/deep/.env moved/deep/.env"), "");
        drop(talk);
        assert_eq!(ok(&world.inside("cat sub/deep/.env")), "", "the next start");
        assert_eq!(ok(&world.plainly("mv sub other && cat other/deep/.env")), "SECRET-2");
    });
}

#[test]
fn what_is_around_a_name_stays_as_soon_as_the_name_is_there() {
    for_both(|world| {
        world.dir("home/project/here");
        world.spec(r#"{"denyRead":["./a/b/.env","./here/.env"],"readOnlyPaths":["./c/d/rc"]}"#);
        let mut talk = Talk::start(world);
        // As long as there is nothing to hide, the inside does there what it likes.
        let free = "mkdir -p a/b c/d && mv a x && mv x a && mv here there && mv there here && \
                    rm -r a/b && mkdir a/b && echo free";
        assert_eq!(talk.says(free), "free\n");
        world.file("home/project/a/b/.env", "SECRET");
        world.file("home/project/here/.env", "SECRET");
        world.file("home/project/c/d/rc", "rc");
        let said =
            talk.says("mv a x; mv a/b a/x; mv here there; mv c x; mv c/d c/x; echo y > c/d/rc");
        assert_eq!(said.matches("busy").count(), 5, "{said}");
        has(&said, &["Read-only file system"]);
        assert_eq!(talk.says("cat a/b/.env here/.env x/* there/* 2>/dev/null"), "");
        assert_eq!(ok(&world.plainly("cat a/b/.env here/.env")), "SECRETSECRET");
    });
}

#[test]
fn the_window_after_a_replacement_is_short() {
    for_both(|world| {
        let env = world.file("home/project/.env", "SECRET");
        let reader = "$n = $seen = 0; mkdir 'up'; until (-e 'stop') { open(F, '<', '.env') or next; \
                      $n++; $seen++ if defined(<F>); close F } print \"$n $seen\"";
        let count = |spec: &str| {
            world.spec(spec);
            let child = world
                .run_with(&[], &["perl", "-e", reader])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            assert!(wait_for(Duration::from_secs(10), || world.workspace.join("up").exists()));
            for round in 0..100 {
                replace(&env, &format!("SECRET-{round}"));
                std::thread::sleep(Duration::from_millis(10));
            }
            std::thread::sleep(SETTLED);
            fs::write(world.workspace.join("stop"), "").unwrap();
            let said = ok(&child.wait_with_output().unwrap());
            ok(&world.plainly("rm stop; rmdir up"));
            let (reads, seen) = said.split_once(' ').unwrap();
            (reads.parse::<u64>().unwrap(), seen.parse::<u64>().unwrap())
        };
        let (reads, seen) = count(r#"{"denyRead":["./.env"]}"#);
        println!("{:?}: {seen} of {reads} reads saw one of 100 replacements", world.who);
        // On a busy machine the watch waits for its turn as everybody does; without it, all see it.
        assert!(reads > 1000 && seen < reads / 2, "{seen} of {reads}");
        let (reads, seen) = count("{}");
        assert_eq!((reads > 1000, seen), (true, reads), "control: all of them see it");
    });
}

#[test]
fn a_host_that_replaces_without_pause_keeps_no_signal_waiting() {
    for_both(|world| {
        let env = world.file("home/project/.env", "SECRET");
        world.spec(r#"{"denyRead":["./.env"]}"#);
        let talk = Talk::start(world);
        let (launcher, stop) = (talk.pid(), std::sync::atomic::AtomicBool::new(false));
        std::thread::scope(|scope| {
            for name in ["a", "b"] {
                let (env, stop) = (&env, &stop);
                scope.spawn(move || {
                    let new = env.with_file_name(name);
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        fs::write(&new, "SECRET").unwrap();
                        fs::rename(&new, env).unwrap();
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(500));
            let start = Instant::now();
            kill(launcher, Signal::TERM);
            let ended = talk.ends();
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(ended.0.signal(), Some(15), "it dies as its program did: {ended:?}");
            assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        });
    });
}

#[test]
fn the_watch_sleeps_and_is_no_process() {
    for_both(|world| {
        world.file("home/project/.env", "SECRET");
        world.spec(r#"{"denyRead":["./.env"]}"#);
        let talk = Talk::start(world);
        let launcher = talk.pid();
        assert_eq!(children(launcher).len(), 1, "bubblewrap alone");
        assert_eq!(fs::read_dir(format!("/proc/{launcher}/task")).unwrap().count(), 1);
        let ticks = || {
            let text = fs::read_to_string(format!("/proc/{launcher}/stat")).unwrap();
            let fields: Vec<&str> = text.rsplit(')').next().unwrap().split(' ').collect();
            fields[12].parse::<u64>().unwrap() + fields[13].parse::<u64>().unwrap()
        };
        let before = ticks();
        std::thread::sleep(Duration::from_secs(1));
        // The script inside makes files in the workspace all the time; a tick is ten milliseconds.
        assert!(ticks() - before < 20, "{}", ticks() - before);
    });
}

#[test]
fn a_kernel_that_watches_nothing_more_stops_the_start() {
    for_both(|world| {
        world.file("home/project/.env", "SECRET");
        world.spec(r#"{"denyRead":["./.env"]}"#);
        let start = "cd $W/home/project && $L run --spec $SPEC -- touch effect";
        for (limit, message) in [
            ("max_inotify_instances", "raise `fs.inotify.max_user_instances`"),
            ("max_inotify_watches", "raise `fs.inotify.max_user_watches`"),
        ] {
            let script = format!("echo 0 > /proc/sys/user/{limit}; {start}");
            has(&refused(&world.in_namespace(&script)), &[message]);
            assert!(!world.workspace.join("effect").exists(), "{limit}");
        }
        ok(&world.in_namespace(start));
        assert!(world.workspace.join("effect").exists());
    });
}

#[test]
fn what_git_on_the_host_replaces_is_protected_again() {
    for_all(&LAYOUTS, |repository| {
        repository.outside("git init -q --bare ~/remote");
        let mut talk = Talk::start(&repository.world);
        let common = repository.common.display();
        let attempts = format!(
            "C='{common}'; LC_ALL=C; export LC_ALL; echo x >> $C/config; rm -f $C/config; \
             git config core.fsmonitor x; echo x > $C/hooks/pre-commit; rm -rf $C/hooks"
        );
        let ways = [
            "git config some.key value",
            "git remote add there ~/remote",
            "git push -q -u there HEAD:refs/heads/pushed",
            "git config --unset some.key",
            "cp $C/config $C/new && mv $C/new $C/config",
            "mv $C/hooks $C/old-hooks && mkdir -p $C/hooks",
            "rm -rf $C/hooks && mkdir -p $C/hooks && echo hook > $C/hooks/post-commit",
        ];
        for way in ways {
            repository.outside(way);
            let before = repository.state();
            let said = talk.says(&attempts);
            assert_eq!(said.matches("cannot create").count(), 2, "{repository:?} {way}: {said}");
            has(&said, &["Read-only file system", "could not write config file"]);
            assert_eq!(repository.state(), before, "{repository:?} {way}");
        }
        assert_eq!(
            talk.says("git -c advice.ignoredHook=false commit -q --allow-empty -m still"),
            ""
        );
    });
}

#[test]
fn a_git_directory_that_the_host_makes_anew_is_held_again() {
    for_all(&[Layout::Clone], |repository| {
        let mut talk = Talk::start(&repository.world);
        repository.outside("mv .git old && git clone -q --no-checkout old new && mv new/.git .git");
        let there = repository.common.join("config.worktree");
        assert!(wait_for(Duration::from_secs(5), || fs::symlink_metadata(&there).is_ok()));
        let before = repository.state();
        let said = talk.says(
            "LC_ALL=C; export LC_ALL; mv .git x; echo x > .git/hooks/pre-commit; echo x > \
             .git/config; git config core.fsmonitor x",
        );
        assert_eq!(said.matches("cannot create").count(), 2, "{said}");
        assert_eq!(said.matches("busy").count(), 2, "{said}");
        assert_eq!(repository.state(), before);
    });
}

#[test]
fn absent_hooks_and_settings_stand_empty_for_the_time_of_the_run_only() {
    for_all(&LAYOUTS, |repository| {
        repository.outside("rm -rf $C/hooks");
        let hooks = repository.common.join("hooks");
        let tried = repository.inside(
            "LC_ALL=C; export LC_ALL; mkdir $C/new; echo x > $C/new/pre-commit; mv -T $C/new \
             $C/hooks; echo x > $C/hooks/pre-commit; rm -rf $C/hooks; ls -A $C/hooks | wc -l; cat \
             $C/config.worktree",
        );
        assert_eq!(out(&tried), "0\n", "{tried:?}");
        let said = err(&tried);
        assert_eq!(said.matches("busy").count(), 2, "{said}");
        has(&said, &["Read-only file system"]);
        assert!(is_gone(&hooks) && is_gone(&repository.common.join("config.worktree")));
        // The host's own stay, and what it removes comes back.
        let mut talk = Talk::start(&repository.world);
        repository.outside("rmdir $C/hooks");
        has(&talk.says(&format!("echo x > '{}/x'", hooks.display())), &["Read-only file system"]);
        repository.outside("echo hook > $C/hooks/post-commit");
        drop(talk);
        assert_eq!(repository.outside("ls $C/hooks"), "post-commit\n");
    });
}

#[test]
fn a_planted_commondir_ends_the_run_and_is_set_aside() {
    for_all(&LAYOUTS, |repository| {
        // For a linked worktree there is one, which is protected.
        let own = repository.common.join("commondir");
        let aside = repository.common.join("commondir.refused");
        let evil = "mkdir -p /tmp/e && echo ../../evil > /tmp/e/commondir";
        for plant in
            ["echo ../evil > $C/commondir", "cp /tmp/e/commondir $C/t; mv $C/t $C/commondir"]
        {
            let tried = repository.inside(&format!("{evil}; {plant}; sleep 20; touch effect"));
            let said = ended(&tried);
            has(&said, &["commondir", "was planted", "set aside as `commondir.refused`"]);
            assert!(is_gone(&own) && fs::symlink_metadata(&aside).unwrap().is_file());
            assert!(!repository.world.workspace.join("effect").exists());
            fs::remove_file(&aside).unwrap();
            repository.outside("git status");
        }
        // Also when the program ends at once: the last look is after everything inside is dead.
        let tried = repository.inside("ln -s /evil $C/commondir");
        has(&ended(&tried), &["was planted"]);
        assert!(is_gone(&own));
        repository.world.spec(r#"{"git":"unprotected"}"#);
        fs::remove_file(&aside).unwrap();
        ok(&repository.inside("echo ../evil > $C/commondir"));
        assert!(own.exists(), "control");
    });
}

#[test]
fn a_new_linked_worktree_points_to_its_own_repository_only() {
    for_all(&[Layout::Clone, Layout::Below, Layout::Worktree, Layout::Bare], |repository| {
        let script = "git worktree add -q /tmp/new && cd /tmp/new && echo n > n && git add n && \
                      git commit -qm n && git status --porcelain";
        assert_eq!(ok(&repository.inside(script)), "");
        let place = repository.common.join("worktrees/new");
        for (index, plant) in [
            "echo ../../evil > $C/worktrees/new/commondir; sleep 1",
            "printf x >> $C/worktrees/new/commondir; sleep 1",
            "echo ../../evil > /tmp/e; mv /tmp/e $C/worktrees/new/commondir; sleep 20",
            "rm $C/worktrees/new/commondir; ln -s /evil $C/worktrees/new/commondir; sleep 20",
            "echo /evil > $C/worktrees/new/commondir",
        ]
        .iter()
        .enumerate()
        {
            repository
                .outside("rm -rf $C/worktrees/new; git worktree prune; git branch -D new || :");
            let tried = repository.inside(&format!("git worktree add -q /tmp/new && {plant}"));
            // Opened before it is written, it is made anew, and the words go into the old file.
            let kept = fs::read_to_string(place.join("commondir"));
            if tried.status.success() {
                assert_eq!(kept.unwrap(), "../..\n", "{index}");
                continue;
            }
            has(&ended(&tried), &["worktrees/new/commondir", "was planted"]);
            assert!(is_gone(&place.join("commondir")), "{index}");
        }
        for plant in ["ln -s /evil $C/worktrees/new; sleep 20", "ln -s /evil $C/worktrees/new"] {
            repository
                .outside("rm -rf $C/worktrees/new $C/worktrees.refused; mkdir -p $C/worktrees");
            has(&ended(&repository.inside(plant)), &["worktrees/new", "was planted"]);
            assert!(is_gone(&place), "{plant}");
        }
        if repository.layout == Layout::Clone {
            repository.outside("rm -rf $C/worktrees");
            let tried = repository.inside("ln -s /evil $C/worktrees; sleep 20");
            has(&ended(&tried), &["worktrees", "was planted", "`worktrees.refused`"]);
            assert!(is_gone(&repository.common.join("worktrees")));
        }
    });
}

#[test]
fn a_writable_directory_that_the_host_replaces_shows_nothing_hidden() {
    for_both(|world| {
        world.file("store/keys/key", "SECRET");
        world.dir("store/keys/mounted");
        world.spec(
            &r#"{"writablePaths":["W/store/keys"],"denyRead":["W/store/keys/key","W/store/keys/later"]}"#
                .replace('W', world.root.to_str().unwrap()),
        );
        // Something is mounted in it, so no overlay lies around it.
        let script = |start: &str| {
            format!(
                "mount -t tmpfs x \"$W/store/keys/mounted\" && cd \"$W/home/project\" || exit 9; \
                 {start} sh -c 'touch up; until test -e go; do sleep 0.02; done; sleep 0.3; \
                 cat \"$W/store/keys/key\" \"$W/store/keys/later\" \"$W/store/keys/plain\"' & \
                 until test -e up; do sleep 0.02; done; \
                 mv \"$W/store/keys\" \"$W/store/old\"; mkdir \"$W/store/keys\"; \
                 printf SECRET > \"$W/store/keys/key\"; printf SECRET > \"$W/store/keys/later\"; \
                 printf PLAIN > \"$W/store/keys/plain\"; touch go; wait $!; rm up go; \
                 rm -r \"$W/store/keys\"; mv \"$W/store/old\" \"$W/store/keys\""
            )
        };
        assert_eq!(ok(&world.in_namespace(&script(""))), "SECRETSECRETPLAIN");
        let own = "\"$L\" run --spec \"$SPEC\" -- env W=\"$W\"";
        assert_eq!(ok(&world.in_namespace(&script(own))), "PLAIN");
    });
}

#[test]
fn kli_s_configuration_that_the_host_replaces_stays_read_only() {
    for_both(|world| {
        let settings = world.file("home/.config/kli/settings.json", "{}");
        let (config, all) = (world.home.join(".config/kli"), world.home.join(".config"));
        for list in ["~/.config", "~/"] {
            world.spec(&format!(r#"{{"writablePaths":["{list}"]}}"#));
            let mut talk = Talk::start(world);
            let plant = "echo EVIL > ~/.config/kli/settings.json; touch ~/.config/free";
            has(&talk.says(plant), &["Read-only file system"]);
            fs::rename(&config, all.join("old")).unwrap();
            world.file("home/.config/kli/settings.json", "NEW");
            has(&talk.says(plant), &["Read-only file system"]);
            if list == "~/" {
                fs::rename(&all, world.home.join("config-old")).unwrap();
                world.file("home/.config/kli/settings.json", "NEWER");
                has(&talk.says(plant), &["Read-only file system"]);
                has(&talk.says("mv ~/.config ~/x"), &["busy"]);
            }
            has(&fs::read_to_string(&settings).unwrap(), &["NEW"]);
            assert!(all.join("free").exists());
            drop(talk);
            ok(&world.plainly("rm -rf .talk ~/.config/old"));
        }
        ok(&world.plainly("echo EVIL > ~/.config/kli/settings.json"));
        assert_eq!(fs::read_to_string(&settings).unwrap(), "EVIL\n");
    });
}

#[test]
fn in_the_repository_around_the_workspace_hiding_leaves_git_at_work() {
    for_both(|world| {
        // Not below the home, which has an overlay of its own.
        let repository = world.dir("repository/sub");
        world.file("repository/one", "SECRET");
        world.file("repository/two", "SECRET");
        world.file("repository/conf/key", "SECRET");
        let at = |program: &str, arguments: &[&str]| {
            let mut command = world.command(program);
            command.args(arguments).current_dir(&repository);
            command
        };
        ok(&at("git", &["init", "-q", ".."]).output().unwrap());
        let link = world.root.join("repository/link");
        symlink("one", &link).unwrap();
        world.spec(
            &r#"{"denyRead":["W/link","W/conf/key"]}"#
                .replace('W', world.root.join("repository").to_str().unwrap()),
        );
        let look = "git rev-parse --show-prefix; cat ../conf/key ../link; touch up; \
                    until test -e go; do sleep 0.02; done; cat ../link ../conf/key";
        let control = "git rev-parse --show-prefix; cat ../conf/key ../link";
        assert_eq!(ok(&at("sh", &["-c", control]).output().unwrap()), "sub/\nSECRETSECRET");
        let mut start = world.command(world.launcher());
        start.arg("run").arg("--spec").arg(world.spec_file()).args(["--", "sh", "-c", look]);
        start.current_dir(&repository).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = start.spawn().unwrap();
        assert!(wait_for(Duration::from_secs(10), || repository.join("up").exists()));
        symlink("two", world.root.join("repository/new")).unwrap();
        fs::rename(world.root.join("repository/new"), &link).unwrap();
        replace(&world.root.join("repository/conf/key"), "SECRET");
        std::thread::sleep(SETTLED);
        fs::write(repository.join("go"), "").unwrap();
        assert_eq!(ok(&child.wait_with_output().unwrap()), "sub/\n");
    });
}

#[test]
fn what_is_read_only_by_the_list_is_not_moved_away_with_what_contains_it() {
    for_both(|world| {
        let file = world.file("home/project/a/b/file", "KEPT");
        world.spec(r#"{"readOnlyPaths":["./a/b"]}"#);
        let swap = "mv a x && mkdir -p a/b && echo EVIL > a/b/file; touch a/free";
        has(&err(&world.inside(swap)), &["busy"]);
        assert_eq!(fs::read_to_string(&file).unwrap(), "KEPT");
        assert!(world.workspace.join("a/free").exists());
        ok(&world.plainly(swap));
        assert_eq!(fs::read_to_string(&file).unwrap(), "EVIL\n");
    });
}
