//! Law 12: what people do all day works inside as it does outside.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::jail::{Who, World, err, for_both, has, ok, out};

const GIT: &str = "git -c user.name=n -c user.email=e@e";

/// Runs a script inside that may take long on a busy machine.
fn slowly(world: &World, path: Option<&Path>, script: &str) -> Output {
    let mut command = world.command("timeout");
    command.args(["-k", "1", "100"]).arg(world.launcher()).arg("run").arg("--spec");
    command.arg(world.spec_file()).args(["--", "sh", "-ec", script]);
    if let Some(path) = path {
        command.env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", path.display()));
    }
    command.output().unwrap()
}

/// Asserts that a command says inside what it says outside, and returns it.
#[track_caller]
fn same(world: &World, script: &str) -> String {
    let (inside, plainly) = (world.inside(script), world.plainly(script));
    assert_eq!(inside.status.code(), plainly.status.code(), "{inside:?} {plainly:?}");
    assert_eq!((out(&inside), err(&inside)), (out(&plainly), err(&plainly)), "{script}");
    out(&inside)
}

/// Whether the world's user has an account, without which some programs do nothing at all.
fn has_account(world: &World) -> bool {
    world.plainly("id -un").status.success()
}

#[test]
fn git_commits_stashes_and_shows_as_ever() {
    for_both(|world| {
        ok(&world.plainly(&format!("git init -q . && {GIT} commit -q --allow-empty -m one")));
        world.file("home/project/file", "a");
        ok(&world.inside(&format!(
            "git add file && {GIT} commit -qm two && echo b > file && {GIT} stash -q && {GIT} stash pop -q && \
             {GIT} commit -qam three && git tag t && git branch b && {GIT} rebase -q HEAD~1 && git gc -q && \
             test \"$(git format-patch -1 HEAD)\" = 0001-three.patch && rm 0001-three.patch"
        )));
        assert_eq!(ok(&world.plainly("git log --format=%s")), "three\ntwo\none\n");
        assert_eq!(
            ok(&world.plainly("git status --porcelain && git fsck 2>&1 | grep -c error; true")),
            "0\n"
        );
    });
}

/// The directory of a Rust toolchain that the world's user can run.
fn toolchain(world: &World) -> std::path::PathBuf {
    let own = Path::new(env!("CARGO")).parent().unwrap();
    let sysroot = own.parent().unwrap();
    let uid = rustix::process::geteuid().as_raw();
    if uid != 0 || world.who == Who::Root || sysroot == Path::new("/usr") {
        return own.to_path_buf();
    }
    // Root's home is closed to others.
    let copy = world.root.join("toolchain");
    fs::create_dir_all(copy.join("bin")).unwrap();
    for (from, to) in [("bin/cargo", "bin/"), ("bin/rustc", "bin/"), ("lib", "")] {
        let to = copy.join(to);
        let linked =
            Command::new("cp").arg("-al").arg(sysroot.join(from)).arg(&to).output().unwrap();
        if !linked.status.success() {
            let copied = Command::new("cp").arg("-a").arg(sysroot.join(from)).arg(&to).output();
            assert!(copied.unwrap().status.success(), "{linked:?}");
        }
    }
    copy.join("bin")
}

#[test]
fn cargo_builds_a_small_crate_offline() {
    for_both(|world| {
        world.spec(r#"{"writablePaths":["@cargo"],"network":false}"#);
        world.file(
            "home/project/Cargo.toml",
            "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2021\"\nbuild = \"build.rs\"\n\
             [dependencies]\npart = { path = \"part\" }\n",
        );
        world.file(
            "home/project/build.rs",
            "fn main() { println!(\"cargo:rustc-env=BUILT=yes\"); }\n",
        );
        world.file(
            "home/project/src/main.rs",
            "fn main() { println!(\"{} {}\", part::word(), env!(\"BUILT\")); }\n",
        );
        world.file(
            "home/project/part/Cargo.toml",
            "[package]\nname = \"part\"\nversion = \"0.1.0\"\n",
        );
        world.file("home/project/part/src/lib.rs", "pub fn word() -> &'static str { \"small\" }\n");
        let tools = toolchain(world);
        let run = slowly(world, Some(&tools), "cargo build -q --offline && target/debug/small");
        assert_eq!(ok(&run), "small yes\n", "{run:?}");
        // What the preset opens, and that without it the home is closed.
        ok(&world.inside("touch ~/.cargo/registry/x ~/.cargo/git/x"));
        let tried = world.inside("touch ~/.cargo/config.toml");
        has(&err(&tried), &["Read-only file system"]);
        world.spec("{}");
        let tried = world.inside("touch ~/.cargo/registry/y");
        has(&err(&tried), &["Read-only file system"]);
        assert!(!world.home.join(".cargo/registry/y").exists());
    });
}

/// What npm does with a local tarball: into the cache by its digest, unpacked beside its place,
/// renamed, its programs linked, its script run.
const INSTALL: &str = "sum=$(sha512sum < dep.tgz | cut -c 1-128); cache=~/.npm/_cacache; \
    mkdir -p $cache/tmp $cache/content-v2; cp dep.tgz $cache/tmp/new; mv $cache/tmp/new $cache/content-v2/$sum; \
    mkdir -p node_modules/.dep-new node_modules/.bin; \
    tar -xzf $cache/content-v2/$sum --strip-components=1 -C node_modules/.dep-new; \
    mv node_modules/.dep-new node_modules/dep; chmod 755 node_modules/dep/cli.sh; \
    ln -s ../dep/cli.sh node_modules/.bin/dep; (cd node_modules/dep && sh postinstall.sh); \
    node_modules/.bin/dep";

#[test]
fn a_package_is_installed_from_a_tarball_as_npm_does() {
    for_both(|world| {
        world.file("home/project/package/package.json", r#"{"name":"dep","version":"1.0.0"}"#);
        world.file(
            "home/project/package/cli.sh",
            "#!/bin/sh\ncat \"$(dirname \"$(readlink -f \"$0\")\")/made\"\n",
        );
        world.file(
            "home/project/package/postinstall.sh",
            "mktemp > /dev/null && echo built > made\n",
        );
        ok(&world.plainly("tar -czf dep.tgz package && rm -r package"));
        world.spec(r#"{"writablePaths":["@npm"],"network":false}"#);
        assert_eq!(ok(&slowly(world, None, INSTALL)), "built\n");
        assert!(world.home.join(".npm/_cacache/content-v2").is_dir());
        world.spec("{}");
        let tried = slowly(world, None, "rm -r node_modules; touch ~/.npm/_cacache/tmp/x");
        has(&err(&tried), &["Read-only file system"]);
    });
}

#[test]
fn python_makes_a_virtual_environment() {
    for_both(|world| {
        // pip is unpacked once; the rest is the same for both.
        let option = if world.who == Who::User { "" } else { "--without-pip" };
        world.spec(r#"{"writablePaths":["@pip"],"network":false}"#);
        let script = format!(
            "/usr/bin/python3 -m venv {option} v && v/bin/python -c 'import sys; print(sys.prefix)'"
        );
        let run = slowly(world, None, &script);
        assert_eq!(ok(&run), format!("{}\n", world.workspace.join("v").display()));
        if world.who == Who::User {
            has(&ok(&slowly(world, None, "v/bin/pip --version")), &["pip ", "/v/lib"]);
        }
    });
}

#[test]
fn make_runs_jobs_side_by_side() {
    for_both(|world| {
        world.file(
            "home/project/Makefile",
            "all: $(addprefix t,1 2 3 4 5 6 7 8)\nt%: ; @sleep 0.1; $(MAKE) -s sub N=$@\nsub: ; @echo $(N) > out-$(N)\n",
        );
        let run = slowly(world, None, "make -s -j8 2>&1; cat out-*");
        assert_eq!(ok(&run), "t1\nt2\nt3\nt4\nt5\nt6\nt7\nt8\n");
    });
}

#[test]
fn sudo_fails_at_once_and_says_why() {
    for_both(|world| {
        let run = slowly(
            world,
            None,
            "sudo -n true 2>&1 || echo code $?; sudo -n touch effect 2>/dev/null || true",
        );
        let text = ok(&run);
        has(&text, &["sudo: ", "code 1"]);
        assert!(!world.workspace.join("effect").exists());
        if has_account(world) {
            has(&ok(&world.plainly("sudo --version")), &["Sudo version"]);
        }
    });
}

#[test]
fn temporary_files_work_whatever_the_caller_says() {
    for_both(|world| {
        for value in ["/run/user/1/nix-shell.x", "/absent", "relative", ""] {
            let script = "f=$(mktemp) && d=$(mktemp -d) && echo x > $d/y && cat <<END && dirname $f\nhere $(cat $d/y)\nEND";
            let mut command = world.run_with(&[], &["bash", "-c", script]);
            let run = command.env("TMPDIR", value).output().unwrap();
            assert_eq!(ok(&run), "here x\n/tmp\n", "{value}");
        }
        assert_eq!(ok(&world.inside("stat -c %a /tmp /dev/shm")), "1777\n1777\n");
    });
}

#[test]
fn ssh_starts_and_reads_the_system_s_settings() {
    for_both(|world| {
        // Who has no account is told so, inside as outside.
        let version = same(world, "ssh -V 2>&1");
        let settings = same(world, "ssh -G host 2>&1 | head -n 3");
        if has_account(world) {
            has(&version, &["OpenSSH"]);
            has(&settings, &["host"]);
        }
        assert!(!settings.contains("Bad owner"), "{settings}");
    });
}

#[test]
fn names_and_roots_of_trust_are_there() {
    for_both(|world| {
        for network in ["true", "false"] {
            world.spec(&format!(r#"{{"network":{network}}}"#));
            has(&ok(&world.inside("getent hosts localhost")), &["localhost"]);
            assert!(!same(world, "sha256sum /etc/ssl/certs/ca-certificates.crt").is_empty());
        }
        let bundle = fs::metadata("/etc/ssl/certs/ca-certificates.crt").unwrap();
        assert!(bundle.size() > 10_000);
        for script in [
            "id -u; id -g; id -un; id -gn",
            "getent passwd root; getent group root; getent services https",
            "date +%Z; date -d @0",
            "LC_ALL=C.UTF-8 locale charmap",
            "LC_ALL=C.UTF-8 printf '\\303\\244' | wc -m",
            "echo ~; echo $HOME; echo $PATH; umask",
            "command -v git perl bash; cat /etc/os-release | head -n 1",
        ] {
            same(world, script);
        }
    });
}

#[test]
fn descriptors_pipes_and_devices_are_there() {
    for_both(|world| {
        let bash =
            |script: &str| ok(&world.run_with(&[], &["bash", "-c", script]).output().unwrap());
        assert_eq!(
            bash("cat <(echo in) - <<< word; echo x | cat /dev/fd/0; echo y > >(cat); sleep 0.1"),
            "in\nword\nx\ny\n"
        );
        assert_eq!(
            bash("{ echo o > /dev/stdout; } | cat; { echo e > /dev/stderr; } 2>&1 | cat"),
            "o\ne\n"
        );
        assert_eq!(
            bash(
                "head -c 4 /dev/zero | wc -c; head -c 4 /dev/urandom | wc -c; echo x > /dev/null; mkfifo p; (echo f > p &); cat p"
            ),
            "4\n4\nf\n"
        );
        assert_eq!(
            bash(
                "coproc cat; echo c >&${COPROC[1]}; read l <&${COPROC[0]}; echo $l; yes | head -n 1"
            ),
            "c\ny\n"
        );
        assert_eq!(
            bash("grep -c . | cat; ls /proc/self/fd | wc -l; ulimit -n > /dev/null && echo limits"),
            "0\n4\nlimits\n"
        );
    });
}

#[test]
fn ps_shows_the_own_processes_and_no_others() {
    for_both(|world| {
        let text = ok(&world.inside("sleep 7 & ps -e -o comm=; kill $!"));
        has(&text, &["sleep", "ps"]);
        assert!(text.lines().count() < 8, "{text}");
        assert!(ok(&world.plainly("ps -e -o comm=")).lines().count() > text.lines().count());
        assert_eq!(
            ok(&world.inside("sleep 60 & kill %1 2>/dev/null || kill $!; wait $!; echo $?")),
            "143\n"
        );
        ok(&world.inside("cat /proc/cpuinfo /proc/meminfo /proc/loadavg > /dev/null; nproc"));
    });
}

#[test]
fn every_directory_on_the_path_holds_what_it_held() {
    for_both(|world| {
        let script = "IFS=:; for d in $PATH; do ls -L $d 2>/dev/null | wc -l; done";
        let text = same(world, script);
        assert!(text.lines().any(|line| line.trim().parse::<u32>().unwrap() > 100), "{text}");
    });
}
