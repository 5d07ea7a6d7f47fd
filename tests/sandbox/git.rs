//! Law 9: commits work wherever the git directory is, and what makes the host run code later cannot
//! be written, replaced or moved away. Five layouts, each for an ordinary user and for root.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::jail::{Who, World, err, for_both, has, ok, out};

/// Where the git directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    Clone,
    Below,
    Worktree,
    Submodule,
    Bare,
}

pub(super) const LAYOUTS: [Layout; 5] =
    [Layout::Clone, Layout::Below, Layout::Worktree, Layout::Submodule, Layout::Bare];

/// A repository with one commit, hooks and attributes, and a linked worktree or submodule where the
/// layout has one.
pub(super) struct Repository {
    pub(super) world: World,
    pub(super) layout: Layout,
    /// The common directory.
    pub(super) common: PathBuf,
}

const FIRST: &str = "echo one > file && git add file && git commit -qm one";

impl Repository {
    pub(super) fn new(who: Who, layout: Layout) -> Self {
        let mut world = World::new(who);
        world.file(
            "home/.gitconfig",
            "[user]\nname = N\nemail = n@example.org\n[init]\ndefaultBranch = main\n\
             [protocol \"file\"]\nallow = always\n[advice]\ndetachedHead = false\n",
        );
        let (script, workspace, common) = match layout {
            Layout::Clone => {
                (format!("git init -q && {FIRST}"), "home/project", "home/project/.git")
            }
            Layout::Below => (
                format!("git init -q && mkdir -p src/deep && {FIRST}"),
                "home/project/src/deep",
                "home/project/.git",
            ),
            Layout::Worktree => (
                format!(
                    "rmdir ../project; git init -q ../main && cd ../main && {FIRST} && \
                     git worktree add -q ../project"
                ),
                "home/project",
                "home/main/.git",
            ),
            Layout::Submodule => (
                format!(
                    "git init -q ../sub && (cd ../sub && {FIRST}) && git init -q && {FIRST} && \
                     git submodule --quiet add ../sub sub && git commit -qm submodule"
                ),
                "home/project/sub",
                "home/project/.git/modules/sub",
            ),
            Layout::Bare => (
                format!(
                    "git init -q ../seed && (cd ../seed && {FIRST}) && \
                     git clone -q --bare ../seed .bare && echo 'gitdir: ./.bare' > .git && \
                     git worktree add -q side"
                ),
                "home/project/side",
                "home/project/.bare",
            ),
        };
        ok(&world.plainly(&script));
        world.workspace = world.root.join(workspace);
        let common = world.root.join(common);
        let repository = Self { world, layout, common };
        repository.outside("mkdir -p $C/info $C/hooks; echo '* text' > $C/info/attributes");
        repository
    }

    fn scripted(&self, script: &str) -> String {
        format!("C='{}'; {script}", self.common.display())
    }

    pub(super) fn inside(&self, script: &str) -> Output {
        self.world.inside(&self.scripted(script))
    }

    /// On the host; `$C` is the common directory.
    pub(super) fn outside(&self, script: &str) -> String {
        ok(&self.world.plainly(&self.scripted(script)))
    }

    /// Everything that git would run or read settings from, with its content.
    pub(super) fn state(&self) -> String {
        self.outside(
            "cd $C && find . -path '*/hooks*' -o -name config -o -name 'config.*' -o -name commondir \
             -o -name gitdir -o -name attributes | sort | while read -r f; do echo \"$f\"; \
             test -d \"$f\" || cat \"$f\"; done",
        )
    }
}

pub(super) fn for_all(layouts: &[Layout], test: impl Fn(&Repository)) {
    for who in [Who::User, Who::Root] {
        for layout in layouts {
            test(&Repository::new(who, *layout));
        }
    }
}

#[test]
fn commits_work_wherever_the_git_directory_is() {
    for_all(&LAYOUTS, |repository| {
        let (before, count) = (repository.state(), repository.outside("git rev-list --count HEAD"));
        let said = repository.inside("echo two > two && git add two && git commit -qm two");
        assert_eq!((out(&said), err(&said)), (String::new(), String::new()), "{repository:?}");
        ok(&said);
        let count: u32 = count.trim().parse().unwrap();
        let now = repository.outside("git rev-list --count HEAD && git status --porcelain");
        assert_eq!(now, format!("{}\n", count + 1), "{repository:?}");
        assert_eq!(repository.state(), before, "{repository:?}");
        assert_eq!(ok(&repository.inside("git status --porcelain; git fsck --strict 2>&1")), "");
    });
}

#[test]
fn what_git_does_all_day_works() {
    for_all(&LAYOUTS, |repository| {
        let before = repository.state();
        let script = "set -e
            git checkout -q -b topic
            echo t > topic
            git add topic
            git commit -qm topic
            echo more >> topic
            git stash -q
            git stash pop -q
            git commit -qam more
            git tag one
            git rebase -q --force-rebase HEAD~2
            git branch other
            git merge -q other
            git branch -q -D other
            git commit -q --amend -m amended
            git reset -q --hard HEAD~1
            git reflog > /dev/null
            git gc -q
            git fsck --strict --no-dangling
            git worktree add -q /tmp/linked
            git -C /tmp/linked status --porcelain
            git worktree remove /tmp/linked
            git worktree list | wc -l";
        let ran = repository.inside(script);
        let list = ok(&ran);
        assert_eq!(list, repository.outside("git worktree list | wc -l"), "{ran:?}");
        assert_eq!(repository.state(), before, "{repository:?}");
        assert_eq!(repository.outside("git log -1 --format=%s; git status --porcelain"), "topic\n");
    });
}

/// `attempt`, what it says.
const ATTEMPTS: [(&str, &str); 22] = [
    ("echo x > $C/hooks/pre-commit", "Read-only file system"),
    ("mkdir $C/hooks/new", "Read-only file system"),
    ("rm -r $C/hooks", "Read-only|busy"),
    ("mv $C/hooks $C/other", "busy"),
    ("mkdir $C/h && mv -T $C/h $C/hooks", "busy|not empty"),
    ("echo x >> $C/config", "Read-only file system"),
    ("rm -f $C/config", "busy"),
    ("mv $C/config $C/other", "busy"),
    ("echo x > $C/t && mv -f $C/t $C/config", "busy"),
    ("ln -sf /etc/passwd $C/config", "busy"),
    ("git config core.fsmonitor 'touch pwned'", "busy"),
    ("git config --worktree core.fsmonitor 'touch pwned'", "busy|worktreeConfig"),
    ("git config alias.st '!touch pwned'", "busy"),
    ("git remote add evil ext::sh", "busy"),
    ("echo x > $C/config.worktree", "Read-only file system"),
    ("echo x > $C/t && mv -f $C/t $C/config.worktree", "busy"),
    ("echo x > $C/info/attributes", "Read-only file system"),
    ("mv $C/info $C/other", "busy"),
    ("rm -rf $C/info", "busy|Read-only"),
    ("mv $C $C.moved", "busy|Read-only"),
    ("mv -T $C/info $C/hooks", "busy"),
    ("truncate -s 0 $C/config", "Read-only file system"),
];

#[test]
fn what_the_host_runs_later_cannot_be_written_replaced_or_moved() {
    for_all(&LAYOUTS, |repository| {
        repository.outside("echo hook > $C/hooks/post-commit");
        let before = repository.state();
        // Each is tried by itself, and a `git config` that would have worked is seen by the state.
        let mut script = "LC_ALL=C; export LC_ALL; exec 2>&1\n".to_owned();
        for (index, (attempt, _)) in ATTEMPTS.iter().enumerate() {
            writeln!(script, "echo '== {index}'; ( {attempt} ) && echo '!! {index}'").unwrap();
        }
        let said = out(&repository.inside(&script));
        for (index, (attempt, message)) in ATTEMPTS.iter().enumerate() {
            let part = said.split("== ").find(|part| part.starts_with(&format!("{index}\n")));
            let part = part.unwrap();
            let what = format!("{repository:?}: {attempt}: {part}");
            assert!(message.split('|').any(|word| part.contains(word)), "{what}");
            assert!(!part.contains("!! "), "{what}");
        }
        assert_eq!(repository.state(), before, "{repository:?}");
        // Control: the same works where nothing is protected.
        repository.world.spec(r#"{"git":"unprotected"}"#);
        ok(&repository.inside("git config core.fsmonitor 'touch pwned' && echo x > $C/hooks/new"));
        assert_ne!(repository.state(), before);
    });
}

#[test]
fn the_file_that_says_where_the_git_directory_is_stays() {
    for_all(&[Layout::Worktree, Layout::Submodule, Layout::Bare], |repository| {
        let before = repository.outside("cat .git");
        for (attempt, message) in [
            ("echo 'gitdir: ./evil' > .git", "Read-only file system"),
            ("rm -f .git", "busy"),
            ("mv .git other", "busy"),
            ("echo x > t; mv -f t .git", "busy"),
            ("rm -f .git; git init -q", "busy"),
        ] {
            let tried = repository.inside(attempt);
            has(&err(&tried), &[message]);
            assert_eq!(repository.outside("cat .git"), before, "{attempt}");
        }
        repository.world.spec(r#"{"git":"unprotected"}"#);
        ok(&repository.inside("mv .git other && echo changed > .git && rm .git && mv other .git"));
    });
}

#[test]
fn only_the_git_directory_of_the_main_checkout_is_writable() {
    for_all(&[Layout::Below, Layout::Worktree, Layout::Submodule, Layout::Bare], |repository| {
        let place = repository.common.parent().unwrap().join("file-of-the-main-checkout");
        let script = format!("echo x > '{}'", place.display());
        let tried = repository.inside(&script);
        if repository.layout == Layout::Submodule {
            // Its place is the list of submodules.
            assert!(repository.common.ends_with(".git/modules/sub"));
        }
        has(&err(&tried), &["Read-only file system"]);
        assert!(!place.exists());
        repository.outside(&script);
        // A file of the main checkout, where there is one, can be neither removed nor moved.
        if matches!(repository.layout, Layout::Below | Layout::Worktree) {
            let tried = repository.inside("rm -f $C/../file; mv $C/../file $C/../x");
            assert_eq!(err(&tried).matches("Read-only file system").count(), 2, "{tried:?}");
            assert_eq!(
                repository.outside("cat $C/../file; ls -d $C/../x 2>/dev/null || :"),
                "one\n"
            );
        }
        ok(&repository.inside("git commit -q --allow-empty -m still"));
    });
}

#[test]
fn git_directories_of_submodules_are_protected_from_their_parent() {
    for_both_below(|repository| {
        let before = repository.state();
        for (attempt, message) in [
            ("echo x > .git/modules/sub/config", "Read-only file system"),
            ("echo x > .git/modules/sub/hooks/pre-commit", "Read-only file system"),
            ("mv .git/modules .git/other", "busy"),
            ("mv .git/modules/sub .git/modules/other", "busy"),
            ("rm -f .git/modules/sub/config", "busy"),
            ("git -C sub config core.fsmonitor 'touch pwned'", "busy"),
            ("mkdir .git/m && mv -T .git/m .git/modules", "busy|not empty"),
        ] {
            let tried = repository.inside(attempt);
            let said = err(&tried);
            assert!(message.split('|').any(|part| said.contains(part)), "{attempt}: {said}");
            assert_eq!(repository.state(), before, "{attempt}");
        }
        ok(&repository.inside("cd sub && echo x > x && git add x && git commit -qm x"));
        ok(&repository.inside("git add sub && git commit -qm bump && git status --porcelain"));
        repository.world.spec(r#"{"git":"unprotected"}"#);
        ok(&repository.inside("git -C sub config core.fsmonitor 'touch pwned'"));
    });
}

/// The submodule's layout with its parent as the workspace.
fn for_both_below(test: impl Fn(&Repository)) {
    for who in [Who::User, Who::Root] {
        let mut repository = Repository::new(who, Layout::Submodule);
        repository.world.workspace = repository.world.root.join("home/project");
        repository.common = repository.world.workspace.join(".git");
        test(&repository);
    }
}

#[test]
fn read_only_leaves_the_repository_as_it_is() {
    for_all(&LAYOUTS, |repository| {
        repository.world.spec(r#"{"git":"read-only"}"#);
        let head = repository.outside("git rev-parse HEAD");
        let tried = repository.inside("echo x > new; git add new; git commit -qm x");
        has(&err(&tried), &["Read-only file system"]);
        assert_eq!(repository.outside("git rev-parse HEAD"), head);
        assert_eq!(ok(&repository.inside("git log --format=%s -1 >&2; git diff; cat new")), "x\n");
        repository.world.spec("{}");
        ok(&repository.inside("git add new && git commit -qm x"));
    });
}

#[test]
fn a_forged_git_file_gains_nothing() {
    for_both(|world| {
        let key = world.file("home/.ssh/id", "KEY");
        world.file("home/.ssh/HEAD", "ref: refs/heads/main\n");
        world.dir("home/.ssh/objects");
        world.dir("home/.ssh/refs");
        for target in ["../.ssh", "../../home/.ssh/", "/etc", "..", "/"] {
            world.file("home/project/.git", &format!("gitdir: {target}\n"));
            let tried = world.inside("echo x > ~/.ssh/id; echo x > ~/.ssh/new; echo x > ~/new");
            assert_eq!(err(&tried).matches("Read-only file system").count(), 3, "{tried:?}");
            assert_eq!(fs::read_to_string(&key).unwrap(), "KEY", "{target}");
            assert!(!world.home.join(".ssh/new").exists() && !world.home.join("new").exists());
        }
        // Control: a link that goes both ways does make its directory writable.
        fs::remove_file(world.workspace.join(".git")).unwrap();
        ok(&world.plainly(
            "git init -q ~/main && cd ~/main && git -c user.name=n -c user.email=e commit -q \
             --allow-empty -m one && git worktree add -q --force ~/project-2",
        ));
        ok(&world.plainly("cp ~/project-2/.git .git && echo \"$PWD/.git\" > ~/main/.git/worktrees/project-2/gitdir"));
        ok(&world.inside("echo x > ~/main/.git/worktrees/project-2/new"));
    });
}

#[test]
fn protected_paths_stay_and_cannot_be_moved_away() {
    for_both(|world| {
        world.file("home/project/.envrc", "export A=1");
        world.file("home/project/.kli/settings.json", "{}");
        world.file("home/project/.kli/extensions/one.scm", "1");
        world.file("home/project/tools/deep/run", "run");
        world.file("home/project/shared/rc", "rc");
        world.link("home/project/rc", "shared/rc");
        world.spec(
            r#"{"protect":[".envrc",".kli/settings.json",".kli/extensions","tools/deep","rc","no"]}"#,
        );
        for (attempt, message) in [
            ("echo x > .envrc", "Read-only file system"),
            ("rm -f .envrc", "busy"),
            ("echo x > t; mv -f t .envrc", "busy"),
            ("mv .kli other", "busy"),
            ("rm -rf .kli", "busy"),
            ("echo x > .kli/settings.json", "Read-only file system"),
            ("echo x > .kli/extensions/two.scm", "Read-only file system"),
            ("rm .kli/extensions/one.scm", "Read-only file system"),
            ("mv tools other", "busy"),
            ("mv tools/deep other", "Read-only file system"),
            ("echo x > tools/deep/run", "Read-only file system"),
            ("rm rc", "busy"),
            ("ln -sf /etc/passwd rc", "busy"),
            ("echo x > shared/rc", "Read-only file system"),
            ("mv shared other", "busy"),
        ] {
            let tried = world.inside(attempt);
            has(&err(&tried), &[message]);
            let now = "cat .envrc .kli/settings.json .kli/extensions/* tools/deep/run rc";
            assert_eq!(ok(&world.plainly(now)), "export A=1{}1runrc", "{attempt}");
        }
        ok(&world.inside("echo x > .kli/other && echo x > tools/other && rm t && echo x > no"));
        world.spec(r#"{"protect":[]}"#);
        ok(&world.inside("echo x > .envrc && rm rc && mv .kli moved && mv tools moved-too"));
    });
}

#[test]
fn other_version_control_is_protected_likewise() {
    for_both(|world| {
        world.dir("home/project/.hg");
        world.file("home/project/.jj/repo/config.toml", "a");
        for (attempt, message) in [
            ("echo '[hooks]' > .hg/hgrc", "Read-only file system"),
            ("echo x > t; mv -f t .hg/hgrc", "busy"),
            ("mv .hg other", "busy"),
            ("echo x > .jj/repo/config.toml", "Read-only file system"),
            ("mv .jj other", "busy"),
        ] {
            has(&err(&world.inside(attempt)), &[message]);
            assert!(!world.workspace.join(".hg/hgrc").exists(), "{attempt}");
            assert_eq!(fs::read(world.workspace.join(".jj/repo/config.toml")).unwrap(), b"a");
        }
        ok(&world.inside("echo x > .hg/store && echo x > .jj/repo/store"));
        world.spec(r#"{"git":"unprotected"}"#);
        ok(&world.inside("echo '[hooks]' > .hg/hgrc && mv .jj other"));
    });
}

impl std::fmt::Debug for Repository {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {:?}", self.layout, self.world.who)
    }
}

/// Whether nothing is left of what stood there empty.
pub(super) fn is_gone(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err()
}
