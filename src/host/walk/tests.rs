#![expect(clippy::disallowed_methods, reason = "tests set up the disk themselves")]

use std::{fs, os::unix::fs::symlink, time::Duration};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::*;
use crate::host::files::{self, Opened};

const RULES: Rules = Rules { ignore: true, threads: 2 };

fn root(path: &Path) -> Arc<Beneath> {
    let Ok(Opened::Directory(handle)) = files::open(path) else { panic!("{path:?}") };
    Arc::new(Beneath::new(handle, path))
}

/// A workspace with a directory whose file has `own` in it, and one outside with `secret`.
fn place() -> (tempfile::TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let base = fs::canonicalize(place.path()).unwrap();
    fs::create_dir_all(base.join("ws/dir/deep")).unwrap();
    fs::create_dir_all(base.join("outside/deep")).unwrap();
    for (name, content) in [("ws/dir/deep/own", "own"), ("outside/deep/leak", "secret")] {
        fs::write(base.join(name), content).unwrap();
        fs::write(base.join(name).with_file_name("both"), content).unwrap();
    }
    (place, base)
}

/// What one walk could see: the content of files that it opened, and the names that it verified.
fn seen(root: &Arc<Beneath>, before: &(dyn Fn(&Path) + Sync)) -> (Vec<String>, Vec<PathBuf>) {
    let contents = Mutex::new(Vec::new());
    let names = Mutex::new(Vec::new());
    let stop = AtomicBool::new(false);
    walk(root, RULES, &stop, &|| {
        Box::new(|relative, _| {
            before(relative);
            if root.kind(relative).is_some() {
                names.lock().unwrap().push(relative.to_owned());
            }
            let Ok(mut file) = root.open_file(relative) else { return Visit::Unreadable };
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            contents.lock().unwrap().push(text);
            Visit::Taken
        })
    });
    (contents.into_inner().unwrap(), names.into_inner().unwrap())
}

#[test]
fn a_directory_that_is_swapped_for_a_link_between_look_and_open_leads_nowhere() {
    let (_place, base) = place();
    let root = root(&base.join("ws"));
    let (contents, names) = seen(&root, &|_| {});
    assert_eq!(contents, ["own", "own"], "control");
    assert_eq!(names.len(), 4, "control: {names:?}");
    let is_swapped = AtomicBool::new(false);
    let (contents, names) = seen(&root, &|relative| {
        if relative.starts_with("dir/deep/") && !is_swapped.swap(true, Ordering::SeqCst) {
            fs::rename(base.join("ws/dir"), base.join("kept")).unwrap();
            symlink("../outside", base.join("ws/dir")).unwrap();
        }
    });
    assert!(is_swapped.load(Ordering::SeqCst));
    assert_eq!(contents, Vec::<String>::new());
    assert!(names.iter().all(|name| !name.starts_with("dir/deep/")), "{names:?}");
}

#[test]
fn a_directory_that_flips_to_a_link_under_way_never_lets_a_walk_out() {
    let (_place, base) = place();
    symlink("../outside", base.join("ws/evil")).unwrap();
    let root = root(&base.join("ws"));
    let stop = AtomicBool::new(false);
    let own = std::thread::scope(|scope| {
        scope.spawn(|| {
            for flip in 0_u32.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                if flip % 64 == 0 {
                    std::thread::sleep(Duration::from_micros(300));
                }
                let (a, b) = (base.join("ws/dir"), base.join("ws/evil"));
                renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE).unwrap();
            }
        });
        let mut own = 0;
        for round in 0..5000 {
            if round >= 300 && own >= 5 {
                break;
            }
            let (contents, names) = seen(&root, &|_| {});
            assert!(contents.iter().all(|text| text == "own"), "{contents:?}");
            assert!(names.iter().all(|name| !name.ends_with("leak")), "{names:?}");
            own += contents.len();
        }
        stop.store(true, Ordering::Relaxed);
        own
    });
    assert!(own > 0, "control: some walks met the directory");
}

/// What no walk can read to its end stands where the walker looks for rules.
#[test]
fn ignore_files_that_never_end_or_never_begin_do_not_hold_a_walk() {
    fn fifo(path: &Path) {
        rustix::fs::mknodat(CWD, path, FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    }
    let zero: &dyn Fn(&Path) = &|path| symlink("/dev/zero", path).unwrap();
    let kernel: &dyn Fn(&Path) = &|path| symlink("/proc/self/stat", path).unwrap();
    let waits: &dyn Fn(&Path) = &fifo;
    let to_one: &dyn Fn(&Path) = &|path| {
        fifo(&path.with_file_name("waits"));
        symlink("waits", path).unwrap();
    };
    let long: &dyn Fn(&Path) = &|path| {
        let file = fs::File::create(path).unwrap();
        file.set_len(rules::LONGEST + 1).unwrap();
    };
    let exclude = |path: &Path| path.with_file_name(".git").join("info/exclude");
    let in_git: &dyn Fn(&Path) = &|path| {
        fs::create_dir_all(path.with_file_name(".git/info")).unwrap();
        zero(&exclude(path));
    };
    let in_common: &dyn Fn(&Path) = &|path| {
        let elsewhere = path.with_file_name("elsewhere");
        fs::create_dir_all(&elsewhere).unwrap();
        fs::write(path.with_file_name(".git"), format!("gitdir: {}\n", elsewhere.display()))
            .unwrap();
        zero(&elsewhere.join("commondir"));
    };
    let cases = [
        (".gitignore", zero),
        (".ignore", zero),
        (".gitignore", kernel),
        (".ignore", waits),
        (".gitignore", to_one),
        (".gitignore", long),
        (".gitignore", in_git),
        (".gitignore", in_common),
    ];
    for (at, (name, arrange)) in cases.into_iter().enumerate() {
        for (place, is_entered) in [("ws/dir", false), ("ws", true), ("", true)] {
            let (_place, base) = self::place();
            fs::write(base.join("ws/there"), "there").unwrap();
            arrange(&base.join(place).join(name));
            let root = root(&base.join("ws"));
            let stop = AtomicBool::new(false);
            let seen = Mutex::new(Vec::new());
            let left_out = walk(&root, RULES, &stop, &|| {
                Box::new(|relative, _| {
                    seen.lock().unwrap().push(relative.to_owned());
                    Visit::Taken
                })
            });
            let seen = seen.into_inner().unwrap();
            let case = format!("{at} in `{place}`: {seen:?} {left_out:?}");
            assert_eq!(left_out.unreadable, 1, "{case}");
            assert!(seen.iter().any(|path| path.ends_with("there")), "{case}");
            let deep = seen.iter().any(|path| path.ends_with("dir/deep/own"));
            assert_eq!(deep, is_entered, "{case}");
            assert!(!is_ignored(&base.join("ws"), &base.join("ws/dir/deep")), "{case}");
        }
    }
    // The control: such files that can be read do count, a link as well.
    for place in ["ws/dir", "ws", ""] {
        let (_place, base) = self::place();
        fs::write(base.join("rules"), "own\n").unwrap();
        symlink(base.join("rules"), base.join(place).join(".gitignore")).unwrap();
        let left_out = walk(&root(&base.join("ws")), RULES, &AtomicBool::new(false), &|| {
            Box::new(|_, _| Visit::Taken)
        });
        assert_eq!((left_out.ignored_files, left_out.unreadable), (1, 0), "{place}: {left_out:?}");
    }
}
