//! Law 7 and law 14: the kernel's surface, the terminal, and limits.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::jail::{Who, World, err, ok, out};

use super::{Row, code, row, start};

pub(super) fn rows() -> Vec<Row> {
    let mut rows = surface();
    rows.extend(limits());
    rows
}

const DENIED: &str = "Operation not permitted|Permission denied";

fn surface() -> Vec<Row> {
    vec![
        code(7, "type into the caller's terminal", |world| {
            // `script` gives each a terminal that is its own.
            let typed = |start: &str, request: &str| {
                let inject = format!(
                    r#"{start} perl -e "ioctl(STDIN, {request}, my \$c = q(x)) and print q(SEC), qq(RET typed\n) or print qq(\$!\n)""#
                );
                ok(&world.command("script").args(["-qec", &inject, "/dev/null"]).output().unwrap())
            };
            let (launcher, spec) = (world.launcher(), world.spec_file());
            let jail = format!("'{}' run --spec '{}' --", launcher.display(), spec.display());
            // TIOCSTI, the same with bits set above the lower half, TIOCLINUX.
            let told = ["0x5412", "0x100005412", "0x541c"].map(|request| typed(&jail, request));
            assert!(told.iter().all(|it| it.contains("Operation not permitted")), "{told:?}");
            // The control, where the kernel itself refuses nothing.
            let kernel = fs::read_to_string("/proc/sys/dev/tty/legacy_tiocsti").unwrap_or_default();
            assert!(kernel.trim() == "0" || typed("", "0x5412").contains("typed"));
            told.concat()
        })
        .refused("Operation not permitted"),
        code(7, "keep the caller's terminal for itself", |world| {
            // TIOCEXCL, and TIOCSETD to the discipline that is there.
            let asks = |start: &str| {
                let ask = format!(
                    r#"{start} perl -e "for my \$it (0x540c, 0x5423) {{ print ioctl(STDIN, \$it, my \$x = pack(q(i), 0)) ? qq(done\n) : qq(\$!\n) }}""#
                );
                ok(&world.command("script").args(["-qec", &ask, "/dev/null"]).output().unwrap())
            };
            assert_eq!(asks("").matches("done").count(), 2);
            let (launcher, spec) = (world.launcher(), world.spec_file());
            let told = asks(&format!("'{}' run --spec '{}' --", launcher.display(), spec.display()));
            assert!(!told.contains("done") && told.lines().count() == 2, "{told}");
            told
        })
        .refused("Operation not permitted"),
        row(7, "make a user namespace", "unshare -U true")
            .refused("unshare failed")
            .control("unshare -U true && echo made", "made"),
        row(7, "make a mount namespace in a user namespace", "unshare -Urm true")
            .refused("unshare failed")
            .control("unshare -Urm true && echo made", "made"),
        row(7, "make a file setuid", "cp /bin/true tool && chmod u+s tool; ls -l tool")
            .refused(DENIED)
            .effect("find . -name tool -perm -4000")
            .control("cp /bin/true other && chmod u+s other && echo made; rm -f other", "made"),
        row(7, "make a setuid file with `install`", "install -m 4755 /bin/true tool; ls -l tool")
            .refused(DENIED)
            .effect("find . -name tool -perm -4000")
            .control("install -m 4755 /bin/true other && echo made; rm -f other", "made"),
        code(7, "become another user by a setuid program", become_another).refused("still"),
        row(7, "keep a capability", "grep -c 'Cap.*0000000000000000' /proc/self/status")
            .refused("5")
            .control("unshare -Ur grep CapEff /proc/self/status", "ffffff"),
        row(
            7,
            "steer the kernel through `/proc`",
            "for it in kernel/core_pattern net/ipv4/ip_forward; do (echo 1 > /proc/sys/$it) && echo SEC''RET; done; echo b > /proc/sysrq-trigger",
        )
        .refused("Read-only file system|Permission denied")
        .control("unshare -Urn sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward && echo steered'", "steered"),
        start(
            7,
            "steer the kernel where the outer `/proc` shows processes alone",
            "unshare -Urmpf sh -c 'mount -t proc -o subset=pid proc /proc; exec \"$L\" run --spec \"$SPEC\" -- \
             sh -c \"echo 1 > /proc/sys/net/ipv4/ip_forward && echo SECRET; cat /proc/keys && echo SECRET\"'",
        )
        .refused("Read-only file system")
        .control("unshare -Urn sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward && echo steered'", "steered"),
        // The script and what it started share a group, which the inside would end with its own.
        start(
            7,
            "share a group's signals with the caller",
            "sleep 60 & \"$L\" run --spec \"$SPEC\" -- sh -c 'kill -TERM 0'; kill -0 $! && echo alive; kill $!",
        )
        .refused("alive")
        .control("bash -c 'set -m; (sleep 60 & kill -TERM 0; echo alive) & wait $!; echo ended by $?'", "ended by 143"),
    ]
}

/// Runs a program that belongs to another user and has that user's rights. Where the tests' own
/// surroundings give nobody such rights (a container that forbids new privileges, a file system mounted
/// so), the control shows that by the same program, and that the program is what it should be.
fn become_another(world: &World) -> String {
    let other = if world.who == Who::Root { 54_322 } else { 0 };
    let tool = world.workspace.join("become");
    fs::copy("/usr/bin/id", &tool).unwrap();
    let given = std::os::unix::fs::chown(&tool, Some(other), Some(other)).is_ok();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o4755)).unwrap();
    let own = ok(&world.plainly("id -u"));
    let inside =
        ok(&world.inside("./become -u; stat -c %a become; grep NoNewPrivs /proc/self/status"));
    assert_eq!(inside, format!("{own}4755\nNoNewPrivs:\t1\n"), "it is setuid, and changes nothing");
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mount = rustix::fs::statvfs(&world.workspace).unwrap().f_flag;
    let forbidden = status.contains("NoNewPrivs:\t1")
        || mount.contains(rustix::fs::StatVfsMountFlags::NOSUID)
        || !given;
    let outside = ok(&world.plainly("./become -u"));
    if forbidden {
        return format!("still {}, as outside, where the surroundings forbid it too", own.trim());
    }
    assert_eq!(outside, format!("{other}\n"), "control");
    format!("still {}", own.trim())
}

fn limits() -> Vec<Row> {
    let spec = r#"{"limits":{"fileSize":"1M","memory":"200M"}}"#;
    vec![
        row(14, "write a file larger than its bound", "head -c 3000000 /dev/zero > big")
            .spec(spec)
            .refused("File too large|size limit")
            .effect("find . -name big -size +2048k")
            .control("head -c 3000000 /dev/zero > other && find . -name other -size +2048k && rm other", "other"),
        row(14, "take more memory than its bound", "perl -e 'my $x = \"x\" x 400_000_000; print \"SEC\", \"RET taken\\n\"'; echo ended")
            .spec(spec)
            .refused("Out of memory|ended|Killed")
            .control("perl -e 'my $x = \"x\" x 400_000_000; print \"taken\\n\"'", "taken"),
        code(14, "start more processes than its bound", |world: &World| {
            let fork = "perl -e 'my $n = 0; for (1..120) { my $pid = fork; last unless defined $pid; if (!$pid) { sleep 2; exit } $n++ } print \"started $n\\n\"'";
            assert!(ok(&world.plainly(fork)).contains("started 120"));
            world.spec(r#"{"limits":{"tasks":30}}"#);
            let tried = world.inside(fork);
            let told = format!("{}{}", out(&tried), err(&tried));
            assert!(!told.contains("started 120"), "{told}");
            told
        })
        .refused("started|cannot be enforced"),
        row(14, "fill the host's memory through `/tmp` and `/dev/shm`", "df -k --output=size /tmp /dev/shm /run | awk 'NR>1 {s+=$1} END {getline m < \"/proc/meminfo\"; split(m,a,\" \"); print (s < a[2]/4+65536 ? \"bounded\" : \"SECRET unbounded\")}'")
            .refused("bounded")
            .control("grep MemTotal /proc/meminfo", "MemTotal"),
        row(14, "write into `/dev`", "head -c 1000 /dev/zero > /dev/new")
            .refused("Read-only file system|Permission denied")
            .effect("ls /dev/new 2>/dev/null")
            .control("head -c 1000 /dev/zero > new && echo written && rm new", "written"),
    ]
}
