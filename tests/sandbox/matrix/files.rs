//! Laws 1, 2 and 3: what is seen, what is hidden, and what is not there.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::jail::{Who, World, err, ok, out, wait_for};

use super::{Row, code, outside, row};

const READ_ONLY: &str = "Read-only file system";
const NO_MOUNT: &str = "must be superuser|permission denied|Operation not permitted";

pub(super) fn rows() -> Vec<Row> {
    let mut rows = view();
    rows.extend(hidden());
    rows.extend(replaced());
    rows.extend(absent());
    rows
}

fn view() -> Vec<Row> {
    vec![
        row(1, "write beside the workspace", "touch ../new")
            .refused(READ_ONLY)
            .effect("ls ../new 2>/dev/null")
            .control("touch ../new && echo made && rm ../new", "made"),
        row(1, "write elsewhere on the machine", "echo x > $R/outside/file")
            .refused(READ_ONLY)
            .effect("grep -L outside $R/outside/file")
            .control("echo outside >> $R/outside/file && echo written", "written"),
        row(
            1,
            "make a file in `/run`, `/dev` and `/`",
            "for it in /run/x /dev/x /x; do touch $it && echo SEC''RET; done",
        )
            .refused(READ_ONLY)
            .effect("ls /run/x /dev/x /x 2>/dev/null")
            .control("touch $R/outside/x && echo made", "made"),
        row(1, "mount the root writable", "mount -o remount,rw,bind /; touch $R/outside/new")
            .refused(NO_MOUNT)
            .effect("ls $R/outside/new 2>/dev/null")
            .control(
                "unshare -Urm sh -c 'mount --bind $R/outside $R/outside && \
                 mount -o remount,rw,bind $R/outside && echo remounted'",
                "remounted",
            ),
        row(1, "write what the host reads from `/tmp`", "echo x > /tmp/kli-matrix-left && echo private")
            .refused("private")
            .effect("ls /tmp/kli-matrix-left 2>/dev/null")
            .control("echo x > /tmp/kli-matrix-$$ && rm /tmp/kli-matrix-$$ && echo made", "made"),
        row(
            1,
            "name the host to the kernel",
            "echo other > /proc/sys/kernel/hostname; perl -e 'my $n = \"other\"; syscall(170, $n, 5); print \"$!\\n\"'",
        )
        .refused("Operation not permitted")
        .effect("grep other /proc/sys/kernel/hostname")
        .control("unshare -Uru perl -e 'my $n = \"other\"; syscall(170, $n, 5) == 0 and print \"named\\n\"'", "named"),
        row(1, "see shared memory of the host", "tail -n +2 /proc/sysvipc/shm | sed \"s/^/SEC''RET /\"; echo none")
            .setup("ipcmk -M 4096 | tr -dc 0-9 > $R/data/shm")
            .refused("none")
            .control("cut -c1-40 /proc/sysvipc/shm; ipcrm -m $(cat $R/data/shm)", "shmid"),
        code(1, "see a process of the host", |world| {
            let mut child = world.command("sleep").arg("3600.25").spawn().unwrap();
            let seen = "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -o '3600[.]25' | head -n 1";
            assert_eq!(ok(&world.plainly(seen)).trim(), "3600.25");
            let inside = ok(&world.inside(&format!("{seen}; echo none")));
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(!inside.contains("3600"), "{inside}");
            inside
        })
        .refused("none"),
        code(1, "see what the host mounts while it runs", |world| {
            let script = "mount --make-rshared / && cd \"$W/home/project\" && mkdir m && \
                (\"$L\" run --spec \"$SPEC\" -- sh -c 'touch up; while [ ! -e go ]; do sleep 0.02; done; ls m; echo end') & \
                until [ -e \"$W/home/project/up\" ]; do sleep 0.02; done; cd \"$W/home/project\" && \
                mount -t tmpfs t m && touch m/SECRET-FILE && ls m > ../seen && touch go && wait";
            let output = world.in_namespace(script);
            let outside = fs::read_to_string(world.home.join("seen")).unwrap();
            assert_eq!(outside, "SECRET-FILE\n", "{output:?}");
            out(&output)
        })
        .refused("end"),
    ]
}

fn hidden() -> Vec<Row> {
    let size = |file: &str| format!("cat {file}; stat -L -c 'size %s' {file}");
    vec![
        row(2, "read a hidden file", size("~/.netrc"))
            .refused("size 0")
            .control("cat ~/.netrc", "SECRET-NETRC"),
        row(2, "read in a hidden directory", "ls -A ~/.aws; cat ~/.aws/credentials")
            .refused("No such file")
            .control("cat ~/.aws/credentials", "SECRET-AWS"),
        row(2, "read a hidden file of the workspace", size(".env"))
            .refused("size 0")
            .control("cat .env", "SECRET-ENV"),
        row(2, "read the target of a hidden link", "cat ~/linked/key; cat $R/data/key")
            .refused("No such file")
            .control("cat $R/data/key", "SECRET-LINKED"),
        row(
            2,
            "read through `/proc`",
            "cat /proc/self/root$HOME/.netrc /proc/1/root$HOME/.netrc /proc/self/cwd/.env; echo end",
        )
        .refused("end")
        .control("cat /proc/self/cwd/.env", "SECRET-ENV"),
        row(2, "write a hidden file", "echo x > ~/.netrc")
            .refused(READ_ONLY)
            .effect("grep -L SECRET ~/.netrc")
            .control("echo SECRET-NETRC > ~/.netrc && echo written", "written"),
        row(2, "make a file in a hidden directory", "echo x > ~/.aws/new")
            .refused(READ_ONLY)
            .effect("ls ~/.aws/new 2>/dev/null")
            .control("touch ~/.aws/new && echo made", "made"),
        row(2, "rename a hidden name of the workspace", "mv .env other; cat other")
            .refused("busy")
            .effect("[ -e .env ] || echo moved")
            .control("mv .env other && mv other .env && echo moved", "moved"),
        row(2, "delete a hidden name of the workspace", "rm -f .env; cat .env")
            .refused("busy")
            .effect("[ -s .env ] || echo gone")
            .control("cp .env e && rm .env && mv e .env && echo removed", "removed"),
        row(2, "link a hidden file to another name", "ln .env copy; cat copy")
            .refused("cross-device|not permitted|Read-only")
            .effect("ls copy 2>/dev/null")
            .control("ln .env copy && rm copy && echo linked", "linked"),
        row(2, "unmount a mask", "umount .env; umount ~/.aws; cat .env ~/.aws/credentials")
            .refused(NO_MOUNT)
            .control(
                "unshare -Urm sh -c 'mount --bind /dev/null .env && umount .env && cat .env'",
                "SECRET-ENV",
            ),
        row(2, "move a mask away", "mount --move ~/.aws ./d; cat ~/.aws/credentials")
            .setup("mkdir -p d")
            .refused(NO_MOUNT)
            .control(
                "unshare -Urm sh -c 'mount --make-rprivate / && mount --bind d ~/.aws && \
                 mount --no-mtab --move ~/.aws d && cat ~/.aws/credentials'",
                "SECRET-AWS",
            ),
        row(2, "unmount a mask in a namespace of its own", "unshare -Urm umount .env; cat .env")
            .refused("unshare failed")
            .control("unshare -Urm true && echo unshared", "unshared"),
        row(
            2,
            "rename a directory around a hidden file",
            "mv ~/cache/sub ~/cache/moved; mkdir -p ~/cache/sub; cat ~/cache/*/key",
        )
        .setup("mkdir -p ~/cache/sub && echo SECRET-KEY > ~/cache/sub/key")
        .spec(r#"{"denyRead":["~/cache/sub/key"],"writablePaths":["~/cache"]}"#)
        .refused("busy")
        .effect("ls -d ~/cache/moved 2>/dev/null")
        .control("mv ~/cache/sub ~/cache/moved && cat ~/cache/*/key", "SECRET-KEY"),
        row(2, "rename a directory around what a pattern hides", "mv keys moved; cat moved/a.pem")
            .setup("mkdir -p keys && echo SECRET-PEM > keys/a.pem")
            .spec(r#"{"denyReadGlobs":["./keys/*.pem"]}"#)
            .refused("busy")
            .effect("ls -d moved 2>/dev/null")
            .control("mv keys moved && cat moved/a.pem", "SECRET-PEM"),
        row(2, "read what a pattern hides", size("keys/a.pem"))
            .setup("mkdir -p keys && echo SECRET-PEM > keys/a.pem")
            .spec(r#"{"denyReadGlobs":["./**/*.pem"]}"#)
            .refused("size 0")
            .control("cat keys/a.pem", "SECRET-PEM"),
        row(2, "learn the hidden names", "cat /proc/self/mountinfo /proc/1/cmdline /run/kli/sandbox.json 2>/dev/null | grep -a -c -e 'netr[c]' -e '[.]aw[s]' | sed 's/^/lines: /'")
            .refused("lines: 0\n")
            .control("echo ~/.netrc | grep -c netrc", "1"),
        row(2, "hide less by another list", "cat ~/.netrc; ls ~/.aws; stat -c 'size %s' ~/.netrc")
            .spec(r#"{"writablePaths":["~/.aws","~/.netrc"],"readOnlyPaths":["~/.netrc"],"denyRead":["~/.aws","~/.netrc"]}"#)
            .refused("size 0")
            .control("cat ~/.netrc", "SECRET-NETRC"),
        code(2, "read by the name of another mount", |world| {
            let bind = "mkdir -p \"$W/data/second\" && mount --bind \"$W/home\" \"$W/data/second\" && ";
            let look = "cat \"$W/data/second/.netrc\" \"$W/data/second/.aws/credentials\"";
            assert!(ok(&world.in_namespace(&format!("{bind}{look}"))).contains("SECRET-NETRC"));
            let script = format!("{bind}cd \"$W/home/project\" && \"$L\" run --spec \"$SPEC\" -- sh -c '{look}; echo end'");
            out(&world.in_namespace(&script))
        })
        .refused("end"),
        code(2, "read after the host made the workspace anew", |world| {
            let run = outside(
                world,
                "mkdir ~/ws && echo SECRET-OLD > ~/ws/.env && cd ~/ws || exit; \
                 (until test -e up; do sleep 0.02; done; mv ~/ws ~/old; mkdir ~/ws; \
                 echo SECRET-NEW > ~/ws/.env; sleep 0.3; touch ~/old/go) & \
                 \"$L\" run --spec \"$SPEC\" -- sh -c 'touch up; until test -e go; do sleep 0.02; done; \
                 ls ../old >/dev/null; cat .env ../ws/.env; echo end'; \
                 wait; cat ~/old/.env ~/ws/.env >&2; rm -r ~/old ~/ws",
            );
            assert_eq!(err(&run).matches("SECRET").count(), 2, "{run:?}");
            out(&run)
        })
        .refused("end"),
        code(2, "read in a layer of an overlay", |world| {
            let options = if world.who == Who::Root { "" } else { "userxattr," };
            let mount = format!("cd \"$W/data\" && mkdir -p up work merged && mount -t overlay -o {options}lowerdir=$W/home,upperdir=$W/data/up,workdir=$W/data/work o merged && ");
            let look = "cat \"$W/data/merged/.netrc\" \"$W/data/merged/.aws/credentials\"";
            assert!(ok(&world.in_namespace(&format!("{mount}{look}"))).contains("SECRET-NETRC"));
            let script = format!("{mount}cd \"$W/home/project\" && \"$L\" run --spec \"$SPEC\" -- sh -c '{look}; echo end'");
            out(&world.in_namespace(&script))
        })
        .refused("end"),
    ]
}

/// Runs `reader` inside until the outside has done `action`, then once more, and returns all that it
/// printed after that when there is a window, else all that it ever printed.
fn while_running(world: &World, reader: &str, window: bool, action: impl FnOnce()) -> String {
    let during = if window { format!("{reader} >/dev/null") } else { reader.to_owned() };
    let script =
        format!("touch up; while [ ! -e go ]; do {during}; done 2>/dev/null; {reader}; echo end");
    let child = world
        .run_with(&[], &["sh", "-c", &script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let up = world.workspace.join("up");
    assert!(wait_for(Duration::from_secs(10), || up.exists()), "not started");
    action();
    // What is put back is back long before this.
    std::thread::sleep(Duration::from_millis(if window { 300 } else { 50 }));
    // The control: outside the new content is there.
    let seen = ok(&world.plainly(reader));
    assert!(seen.contains("SECRET"), "the control reads nothing: {seen}");
    fs::write(world.workspace.join("go"), "").unwrap();
    out(&child.wait_with_output().unwrap())
}

fn put(path: &Path, text: &str) {
    let fresh = path.with_extension("fresh");
    fs::write(&fresh, text).unwrap();
    fs::rename(&fresh, path).unwrap();
}

fn replaced() -> Vec<Row> {
    vec![
        code(2, "read after the host replaced the file", |world| {
            while_running(world, "cat ~/.netrc", false, || {
                put(&world.home.join(".netrc"), "SECRET-NEW\n");
            })
        })
        .refused("end"),
        code(2, "read after the host removed it and made it anew", |world| {
            while_running(world, "cat ~/.netrc", false, || {
                fs::remove_file(world.home.join(".netrc")).unwrap();
                fs::write(world.home.join(".netrc"), "SECRET-NEW\n").unwrap();
            })
        })
        .refused("end"),
        code(2, "read after the host remade the directory", |world| {
            while_running(world, "cat ~/.aws/credentials", false, || {
                fs::rename(world.home.join(".aws"), world.root.join("outside/old")).unwrap();
                world.file("home/.aws/credentials", "SECRET-NEW\n");
            })
        })
        .refused("end"),
        code(2, "read after the host pointed the link elsewhere", |world| {
            while_running(world, "cat ~/linked/key", false, || {
                world.file("other/key", "SECRET-OTHER\n");
                fs::remove_file(world.home.join("linked")).unwrap();
                world.link("home/linked", world.root.join("other"));
            })
        })
        .refused("end"),
        code(2, "read what the host makes only later", |world| {
            while_running(world, "cat ~/.absent", false, || {
                world.file("home/.absent", "SECRET-LATER\n");
            })
        })
        .refused("end"),
        code(2, "read in the workspace after the host replaced the file", |world| {
            while_running(world, "cat .env", true, || {
                put(&world.workspace.join(".env"), "SECRET-NEW\n");
            })
        })
        .refused("end"),
        code(2, "read in the workspace after the host made it anew", |world| {
            while_running(world, "cat .env", true, || {
                fs::remove_file(world.workspace.join(".env")).unwrap();
                fs::write(world.workspace.join(".env"), "SECRET-NEW\n").unwrap();
            })
        })
        .refused("end"),
    ]
}

fn absent() -> Vec<Row> {
    vec![
        row(3, "read an absent name", "cat ~/.absent")
            .refused("No such file")
            .effect("ls -d ~/.absent 2>/dev/null")
            .control("echo x > ~/.absent && cat ~/.absent && rm ~/.absent", "x"),
        row(3, "make an absent hidden name", "echo x > ~/.absent; mkdir ~/.absent")
            .refused(READ_ONLY)
            .effect("ls -d ~/.absent 2>/dev/null")
            .control("mkdir ~/.absent && rmdir ~/.absent && echo made", "made"),
        row(3, "find a mount point left in the workspace", "ls -A | grep -c later; echo end")
            .spec(r#"{"denyRead":["./.later","./no/where"]}"#)
            .refused("0\nend")
            .effect("ls -d .later no 2>/dev/null")
            .control("touch .later && ls -A | grep later && rm .later", ".later"),
        code(3, "find one after a kill", |world| {
            world.spec(r#"{"denyRead":["./.later","~/.absent","~/.netrc","./no/where"]}"#);
            let before = ok(&world.plainly("ls -A . ~"));
            let mut command = world.command(world.launcher());
            command.arg("run").arg("--spec").arg(world.spec_file());
            let mut child = command
                .args(["--", "sh", "-c", "touch ~/cache/x; touch up; sleep 3600"])
                .spawn()
                .unwrap();
            let up = world.workspace.join("up");
            assert!(wait_for(Duration::from_secs(10), || up.exists()));
            child.kill().unwrap();
            child.wait().unwrap();
            fs::remove_file(&up).unwrap();
            assert_eq!(ok(&world.plainly("ls -A . ~")).replace(".local\n", ""), before);
            "as before".to_owned()
        })
        .refused("as before"),
    ]
}
