//! Law 7 and law 14: the kernel's surface, the terminal, and limits.

use std::fs::OpenOptions;

use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};

use crate::jail::{World, err, ok, out};

use super::{Row, code, row};

pub(super) fn rows() -> Vec<Row> {
    let mut rows = surface();
    rows.extend(limits());
    rows
}

const DENIED: &str = "Operation not permitted|Permission denied";

fn surface() -> Vec<Row> {
    vec![
        code(7, "type into the caller's terminal", |world| {
            let inject = |request: &str| {
                format!("perl -e 'my $c = \"x\"; ioctl(STDIN, {request}, $c) and print \"SEC\", \"RET injected\\n\" or print \"$!\\n\"'")
            };
            let mut told = String::new();
            // TIOCSTI, the same with bits set above the lower half, TIOCLINUX.
            for request in ["0x5412", "0x100005412", "0x541c"] {
                let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
                let ours = openpt(flags).unwrap();
                unlockpt(&ours).unwrap();
                let name = ptsname(&ours, Vec::new()).unwrap();
                let theirs = OpenOptions::new().read(true).write(true).open(name.to_str().unwrap());
                let mut command = world.run_with(&[], &["sh", "-c", &inject(request)]);
                let output = command.stdin(theirs.unwrap()).output().unwrap();
                told.push_str(&out(&output));
                told.push_str(&err(&output));
            }
            told
        })
        .refused("Operation not permitted|Inappropriate|Permission denied|No such"),
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
        row(7, "become root by a setuid program", "grep NoNewPrivs /proc/self/status; grep CapBnd /proc/self/status")
            .refused("NoNewPrivs:\t1")
            .control("grep NoNewPrivs /proc/self/status", "NoNewPrivs:"),
        row(7, "keep a capability", "grep -c 'Cap.*0000000000000000' /proc/self/status")
            .refused("5")
            .control("unshare -Ur grep CapEff /proc/self/status", "ffffff"),
        row(7, "steer the kernel through `/proc`", "echo x > /proc/sys/kernel/core_pattern; echo b > /proc/sysrq-trigger")
            .refused("Read-only file system|Permission denied"),
        row(7, "share a group's signals with the caller", "kill -TERM 0; echo survived")
            .refused("")
            .control("sh -c 'exit 0' && echo alive", "alive"),
    ]
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
            .effect("ls /dev/new 2>/dev/null"),
    ]
}
