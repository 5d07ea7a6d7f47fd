#![expect(clippy::disallowed_methods, reason = "tests and their support")]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::*;

struct Place {
    root: PathBuf,
    _directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { root: directory.path().canonicalize().unwrap(), _directory: directory }
    }

    fn dir(&self, path: &str) -> PathBuf {
        let full = self.root.join(path);
        fs::create_dir_all(&full).unwrap();
        full
    }

    fn file(&self, path: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let full = self.root.join(path);
        fs::create_dir_all(full.parent().unwrap()).unwrap();
        fs::write(&full, text).unwrap();
        full
    }

    /// A git directory made by hand.
    fn git_dir(&self, path: &str) -> PathBuf {
        self.file(&format!("{path}/HEAD"), "ref: refs/heads/main\n");
        self.dir(&format!("{path}/objects"));
        self.dir(&format!("{path}/refs"));
        self.file(&format!("{path}/config"), "[core]\n");
        self.root.join(path)
    }

    fn git(&self, at: &str, words: &[&str]) {
        let done = Command::new("git")
            .args(["-c", "user.name=n", "-c", "user.email=e@e", "-c", "protocol.file.allow=always"])
            .args(words)
            .current_dir(self.root.join(at))
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", &self.root)
            .output()
            .unwrap();
        assert!(done.status.success(), "{done:?}");
    }

    fn find(&self, workspace: &str) -> Option<Repository> {
        discover(&self.root.join(workspace), own())
    }

    #[track_caller]
    fn refused(&self, workspace: &str) -> String {
        let found = self.find(workspace).unwrap();
        assert!(!found.writable, "{found:?}");
        found.sentence.unwrap()
    }

    #[track_caller]
    fn taken(&self, workspace: &str) -> Repository {
        let found = self.find(workspace).unwrap();
        assert!(found.writable && found.sentence.is_none(), "{found:?}");
        found
    }
}

fn own() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn present(found: &Repository, path: impl AsRef<Path>) -> Option<Present> {
    found.names.iter().find(|name| name.path == path.as_ref()).map(|name| name.present)
}

#[test]
fn a_clone_is_found_from_its_root_and_from_below_with_every_name() {
    let place = Place::new();
    place.dir("work/sub/deep");
    place.git("work", &["init", "-q"]);
    let git = place.root.join("work/.git");
    for from in ["work", "work/sub", "work/sub/deep"] {
        let found = place.taken(from);
        assert_eq!(found.kind, Kind::Clone);
        assert_eq!([&found.git_dir, &found.common_dir, &found.dot_git], [&git, &git, &git]);
        assert_eq!(present(&found, git.join("hooks")), Some(Present::Directory));
        assert_eq!(present(&found, git.join("config")), Some(Present::File));
        for absent in ["config.worktree", "commondir", "gitdir", "info/attributes"] {
            assert_eq!(present(&found, git.join(absent)), Some(Present::Absent), "{absent}");
        }
        assert_eq!(found.pins, [git.clone(), git.join("info")]);
    }
    fs::remove_dir_all(git.join("hooks")).unwrap();
    assert_eq!(present(&place.taken("work"), git.join("hooks")), Some(Present::Absent));
}

#[test]
fn without_a_repository_there_is_none() {
    let place = Place::new();
    place.dir("work/.git");
    place.file("work/.git/notes", "git passes it by");
    assert_eq!(place.find("work"), None);
    // As git does, the next one above is taken.
    place.git_dir(".git");
    assert_eq!(place.taken("work").git_dir, place.root.join(".git"));
}

#[test]
fn a_linked_worktree_is_writable_by_its_link_back_alone() {
    let place = Place::new();
    place.dir("main");
    place.git("main", &["init", "-q"]);
    place.git("main", &["commit", "-q", "--allow-empty", "-m", "m"]);
    place.git("main", &["worktree", "add", "-q", "../linked"]);
    let common = place.root.join("main/.git");
    let own = common.join("worktrees/linked");
    let found = place.taken("linked");
    assert_eq!((found.kind, &found.git_dir, &found.common_dir), (Kind::Worktree, &own, &common));
    assert_eq!(present(&found, place.root.join("linked/.git")), Some(Present::File));
    for name in ["commondir", "gitdir"] {
        assert_eq!(present(&found, own.join(name)), Some(Present::File), "{name}");
    }
    assert_eq!(present(&found, own.join("config.worktree")), Some(Present::Absent));
    assert_eq!(present(&found, common.join("hooks")), Some(Present::Directory));
    assert!(found.pins.contains(&own) && found.pins.contains(&common.join("worktrees")));
    // The text of `commondir` decides nothing.
    place.git_dir("elsewhere.git");
    place.file("main/.git/worktrees/linked/commondir", "../../../../elsewhere.git\n");
    assert_eq!(place.taken("linked").common_dir, common);
    // Relative links are links too.
    place.file("main/.git/worktrees/linked/gitdir", "../../../../linked/.git\n");
    place.file("linked/.git", "gitdir: ../main/.git/worktrees/linked\n");
    assert_eq!(place.taken("linked").common_dir, common);
    // Another directory that claims the same one has no way back.
    place.file("thief/.git", format!("gitdir: {}\n", own.display()));
    assert!(place.refused("thief").contains("does not name this one: run `git worktree repair`"));
    fs::remove_file(own.join("gitdir")).unwrap();
    assert!(place.refused("linked").contains("git worktree repair"));
}

#[test]
fn a_bare_repository_beside_its_worktrees_works_from_each() {
    let place = Place::new();
    place.dir("project");
    place.git("project", &["init", "-q", "--bare", ".bare"]);
    place.file("project/.git", "gitdir: ./.bare\n");
    place.dir("seed");
    place.git("seed", &["init", "-q", "-b", "main"]);
    place.git("seed", &["commit", "-q", "--allow-empty", "-m", "m"]);
    place.git("project", &["fetch", "-q", "../seed", "main:main"]);
    place.git("project", &["worktree", "add", "-q", "main", "main"]);
    let bare = place.root.join("project/.bare");
    let found = place.taken("project/main");
    assert_eq!((found.kind, &found.common_dir), (Kind::Worktree, &bare));
    for from in ["project", "project/.bare"] {
        let found = place.taken(from);
        assert_eq!((found.kind, &found.common_dir), (Kind::Bare, &bare));
        assert_eq!(present(&found, bare.join("config")), Some(Present::File));
        assert_eq!(present(&found, bare.join("worktrees/main/gitdir")), Some(Present::File));
    }
    assert!(place.refused("project/.bare/hooks").contains("lies inside the git directory"));
}

#[test]
fn a_submodule_is_writable_by_its_core_worktree_alone() {
    let place = Place::new();
    place.dir("seed");
    place.git("seed", &["init", "-q"]);
    place.git("seed", &["commit", "-q", "--allow-empty", "-m", "m"]);
    place.dir("super");
    place.git("super", &["init", "-q"]);
    place.git("super", &["submodule", "--quiet", "add", "../seed", "libs/sub"]);
    let module = place.root.join("super/.git/modules/libs/sub");
    let found = place.taken("super/libs/sub");
    assert_eq!((found.kind, &found.common_dir), (Kind::Submodule, &module));
    assert_eq!(present(&found, module.join("config")), Some(Present::File));
    // From the superproject its names are named as well.
    let above = place.taken("super");
    assert_eq!(above.kind, Kind::Clone);
    for name in ["config", "hooks"] {
        assert!(present(&above, module.join(name)).is_some_and(|it| it != Present::Absent));
    }
    for pin in ["modules", "modules/libs", "modules/libs/sub"] {
        assert!(above.pins.contains(&place.root.join("super/.git").join(pin)), "{pin}");
    }
    place.file("thief/.git", format!("gitdir: {}\n", module.display()));
    assert!(place.refused("thief").contains("`core.worktree` does not name this directory"));
}

#[test]
fn a_forged_git_file_gains_nothing() {
    let place = Place::new();
    place.file("home/.ssh/id_ed25519", "key");
    place.git_dir("home/separate.git");
    place.git_dir("home/other/.git");
    for (text, sentence) in [
        ("gitdir: ../.ssh\n".to_owned(), "is no git directory"),
        (format!("gitdir: {}/home/.ssh", place.root.display()), "is no git directory"),
        ("gitdir: ../absent\n".into(), "a place that is not there"),
        ("gitdir: ../separate.git\n".into(), "has no link back to it"),
        ("gitdir: ../other/.git\n".into(), "has no link back to it"),
        ("gitdir: /\n".into(), "is no git directory"),
        ("gitdir: \n".into(), "does not say `gitdir: PATH`"),
        (String::new(), "does not say"),
        ("gitdir: a\nb\n".into(), "does not say"),
        ("gitdir: a\0b\n".into(), "does not say"),
        (format!("gitdir: {}", "x/".repeat(10_000)), "cannot be read"),
    ] {
        place.file("home/work/.git", &text);
        let found = place.find("home/work").unwrap();
        assert!(!found.writable, "{text}: {found:?}");
        assert!(found.sentence.as_ref().unwrap().contains(sentence), "{text}: {found:?}");
        assert_eq!(found.kind, Kind::Other);
        // Nothing of the place it points at is named.
        assert!(found.names.iter().all(|name| name.path.ends_with("work/.git")), "{found:?}");
    }
    // Shaped like a worktree, but without what only the repository's owner can write.
    place.dir("home/.ssh/worktrees/x");
    place.file("home/work/.git", "gitdir: ../.ssh/worktrees/x\n");
    assert!(place.refused("home/work").contains("is no git directory"));
    place.file("home/.ssh/worktrees/x/gitdir", format!("{}/home/work/.git", place.root.display()));
    assert!(place.refused("home/work").contains("is no git directory"));
}

#[test]
fn links_and_strange_files_are_read_only() {
    let place = Place::new();
    place.git_dir("real.git");
    place.dir("linked");
    symlink("../real.git", place.root.join("linked/.git")).unwrap();
    assert!(place.refused("linked").contains("symbolic link"));
    place.dir("loop");
    symlink(".git", place.root.join("loop/.git")).unwrap();
    assert!(place.refused("loop").contains("symbolic link"));
    place.dir("socket");
    let _listener = UnixListener::bind(place.root.join("socket/.git")).unwrap();
    assert!(place.refused("socket").contains("neither a directory nor a file"));
    for name in ["hooks", "config.worktree", "info", "modules", "worktrees"] {
        let work = format!("odd-{name}");
        place.git_dir(&format!("{work}/.git"));
        place.taken(&work);
        symlink("/etc", place.root.join(&work).join(".git").join(name)).unwrap();
        let sentence = place.refused(&work);
        assert!(sentence.contains(&format!(".git/{name}` is a symbolic link")), "{sentence}");
    }
    // Broken for git, but not nothing: what is in it could become something.
    place.file("broken/.git/config", "[core]\n");
    assert!(place.refused("broken").contains("is no git directory"));
}

#[test]
fn pipes_devices_and_huge_files_do_not_block() {
    let place = Place::new();
    let start = Instant::now();
    for name in ["HEAD", "config", "gitdir"] {
        let work = format!("pipe-{name}");
        let git = place.git_dir(&format!("{work}/.git"));
        drop(fs::remove_file(git.join(name)));
        let made = Command::new("mkfifo").arg(git.join(name)).status().unwrap();
        assert!(made.success());
        place.refused(&work);
    }
    place.dir("pipe");
    assert!(Command::new("mkfifo").arg(place.root.join("pipe/.git")).status().unwrap().success());
    place.refused("pipe");
    place.dir("huge");
    let huge = fs::File::create(place.root.join("huge/.git")).unwrap();
    huge.set_len(1 << 40).unwrap();
    assert!(place.refused("huge").contains("cannot be read"));
    place.git_dir("large/.git");
    fs::File::create(place.root.join("large/.git/config")).unwrap().set_len(1 << 40).unwrap();
    place.taken("large");
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn another_owner_s_repository_is_read_only() {
    let place = Place::new();
    place.git_dir("work/.git");
    let found = discover(&place.root.join("work"), own() + 1).unwrap();
    assert!(!found.writable);
    let sentence = found.sentence.unwrap();
    assert!(sentence.contains(&format!("belongs to user {}", own())), "{sentence}");
    assert!(sentence.contains("start as its owner"));
    place.taken("work");
}

#[test]
fn names_that_are_not_utf_8_work() {
    let place = Place::new();
    let bytes = OsStr::from_bytes(b"w\xffork");
    let common = place.git_dir("main/.git");
    let own_dir = common.join("worktrees").join(bytes);
    fs::create_dir_all(&own_dir).unwrap();
    let work = place.root.join(bytes);
    fs::create_dir(&work).unwrap();
    let line = |path: &Path, before: &str| {
        [before.as_bytes(), path.as_os_str().as_bytes(), b"\n"].concat()
    };
    fs::write(work.join(".git"), line(&own_dir, "gitdir: ")).unwrap();
    fs::write(own_dir.join("gitdir"), line(&work.join(".git"), "")).unwrap();
    let found = discover(&work, own()).unwrap();
    assert!(found.writable, "{found:?}");
    assert_eq!(found.git_dir, own_dir);
}

#[test]
fn too_many_submodules_are_protected_as_a_whole() {
    let place = Place::new();
    place.git_dir("work/.git");
    for number in 0..300 {
        place.file(&format!("work/.git/modules/m{number}/HEAD"), "ref: refs/heads/main\n");
    }
    let modules = place.root.join("work/.git/modules");
    let found = place.taken("work");
    let whole: Vec<&Name> = found.names.iter().filter(|name| name.group == Group::Tree).collect();
    assert_eq!(whole.len(), 1);
    assert_eq!(whole[0].path, modules);
    assert!(found.names.iter().filter(|name| name.path.starts_with(&modules)).count() == 1);
    for number in 200..300 {
        fs::remove_dir_all(modules.join(format!("m{number}"))).unwrap();
    }
    let found = place.taken("work");
    assert_eq!(present(&found, modules.join("m7/hooks")), Some(Present::Absent));
    assert_eq!(present(&found, modules.join("m7/HEAD")), None);
}

#[test]
fn mercurial_and_jujutsu_are_named_where_they_are() {
    let place = Place::new();
    place.file("hg/.hg/hgrc", "[hooks]\n");
    let found = place.taken("hg");
    assert_eq!(found.kind, Kind::Foreign);
    assert_eq!(present(&found, place.root.join("hg/.hg/hgrc")), Some(Present::File));
    place.file("jj/.jj/repo/config.toml", "");
    place.git_dir("jj/.jj/repo/store/git");
    place.git_dir("jj/.git");
    let found = place.taken("jj");
    assert_eq!(found.kind, Kind::Clone);
    for name in [".jj/repo/config.toml", ".jj/repo/store/git/config", ".git/config"] {
        assert_eq!(present(&found, place.root.join("jj").join(name)), Some(Present::File));
    }
    assert_eq!(place.find(".").map(|found| found.kind), None);
}

#[test]
fn the_configuration_is_read_as_git_reads_it() {
    let text = b"# a comment\n[core]\n\tworktree = ../x ; y\n bare\n[Core \"Sub\\\"x\"] KEY = \"a;b\" c \\\n d\n\
        [includeif \"gitdir:~/w/\"]\npath = ~/other\n[old.style]\nk=\\t\\\"v\r\n[core]worktree=last\n";
    let found: Vec<(String, String)> = config::variables(text)
        .into_iter()
        .map(|it| (String::from_utf8(it.name).unwrap(), String::from_utf8(it.value).unwrap()))
        .collect();
    let expected = [
        ("core.worktree", "../x"),
        ("core.bare", ""),
        ("core.Sub\"x.key", "a;b c  d"),
        ("includeif.gitdir:~/w/.path", "~/other"),
        ("old.style.k", "\t\"v"),
        ("core.worktree", "last"),
    ];
    assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let variables = config::variables(text);
    assert_eq!(config::last(&variables, "core.worktree"), Some(b"last".as_slice()));
    for broken in ["[core", "[core]\nx = \"open\n", "[core]\n=\n", "]\n", "[a \"b]\nx=y"] {
        assert_eq!(config::variables(broken.as_bytes()), [], "{broken}");
    }
}
