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
