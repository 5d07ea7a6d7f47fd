//! Law 14: bounds on processes, memory and file sizes, each with the same attempt without the bound.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::jail::{World, err, for_both, has, kill, ok, out, processes, refused, wait_for};

/// Starts children until one is refused or there are `most`; prints their number and the error.
fn forks(most: u32) -> String {
    format!(
        "perl -e 'my @k; my $e = 0; for (1..{most}) {{ my $p = fork(); if (!defined $p) {{ $e = 0 + $!; last }} \
         if (!$p) {{ sleep 20; exit }} push @k, $p }} kill 9, @k; print scalar(@k), \" $e\\n\"'"
    )
}

/// Whether the limit of tasks can be kept here; where it cannot, that is said and nothing starts.
fn tasks_can_be_bound(world: &World) -> bool {
    world.spec(r#"{"limits":{"tasks":20}}"#);
    let mut explain = world.command(world.launcher());
    let told = explain.arg("explain").arg(world.spec_file()).output().unwrap();
    if told.status.success() {
        has(&out(&told), &["limit: 20 processes and threads, by a "]);
        return true;
    }
    let text = refused(&world.inside("touch effect"));
    assert_eq!(text, err(&told), "the same sentence");
    has(&text, &["`tasks` cannot be enforced", "systemd-run --scope", "take `tasks` out"]);
    assert!(!world.workspace.join("effect").exists());
    // Only the machine's own user 0, where nobody has made a place for its groups.
    assert!(rustix::process::geteuid().is_root() && world.who == crate::jail::Who::Root);
    assert_eq!(own_group(), None);
    world.spec(r#"{"limits":{"memory":"1G"}}"#);
    ok(&world.inside("touch effect"));
    false
}

/// The directory of this process's own group for tasks, where groups can be made.
fn own_group() -> Option<PathBuf> {
    let text = fs::read_to_string("/proc/self/cgroup").unwrap();
    text.lines().find_map(|line| {
        let own = line.split_once(":pids:").map(|(_, own)| own)?;
        let directory = Path::new("/sys/fs/cgroup/pids").join(own.trim_start_matches('/'));
        rustix::fs::access(&directory, rustix::fs::Access::WRITE_OK).ok().map(|()| directory)
    })
}

/// Whether the launcher with this number has a group, in any hierarchy.
fn has_group(launcher: u32) -> bool {
    let name = format!("kli-sandbox-{launcher}");
    let mut open = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).into_iter().flatten().flatten() {
            if entry.file_name().to_str() == Some(&name) {
                return true;
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(entry.path());
            }
        }
    }
    false
}

#[test]
fn the_number_of_processes_is_bound() {
    for_both(|world| {
        assert_eq!(ok(&world.inside(&forks(40))), "40 0\n", "control: no limit");
        if !tasks_can_be_bound(world) {
            return;
        }
        // Process 1, the shell that starts it, and perl are three of the twenty, where the shell
        // does not become perl.
        let text = ok(&world.inside(&forks(40)));
        let expected = [17, 18].map(|count| format!("{count} {}\n", libc::EAGAIN));
        assert!(expected.contains(&text), "{text}");
        // Nobody inside lifts it.
        let text = ok(&world.inside(&format!(
            "ulimit -u 4000 2>/dev/null; ulimit -Hu 4000 2>/dev/null; {}",
            forks(40)
        )));
        assert!(expected.contains(&text), "{text}");
        has(&ok(&world.inside("cat /run/kli/sandbox.json")), &["20 processes and threads"]);
    });
}

/// Threads count as processes do.
#[test]
fn a_group_cannot_be_left_or_widened_from_inside() {
    for_both(|world| {
        if !tasks_can_be_bound(world) {
            return;
        }
        let text = ok(&world.inside(
            "for d in $(find /sys/fs/cgroup -maxdepth 3 -name cgroup.procs 2>/dev/null | head -50); do \
             (echo $$ > \"$d\") 2>/dev/null && echo moved; done; \
             for d in $(find /sys/fs/cgroup -maxdepth 4 -path '*kli-sandbox-*' -name pids.max 2>/dev/null); do \
             (echo max > \"$d\") 2>/dev/null && echo widened; done; echo end",
        ));
        assert_eq!(text, "end\n");
    });
}

fn bomb(world: &World, token: &str) -> Child {
    // Each child goes on; a refused one tries again.
    let script =
        format!("perl -e 'while (1) {{ fork(); select(undef, undef, undef, 0.01) }}' {token}");
    let mut command = world.command(world.launcher());
    command.arg("run").arg("--spec").arg(world.spec_file()).args(["--", "sh", "-c", &script]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn a_fork_bomb_leaves_the_host_responsive_and_ends_with_the_launcher() {
    for_both(|world| {
        if !tasks_can_be_bound(world) {
            return;
        }
        world.spec(r#"{"limits":{"tasks":50}}"#);
        let token = format!("kli-bomb-{}-{:?}", std::process::id(), world.who);
        let mut launcher = bomb(world, &token);
        let full = wait_for(Duration::from_secs(20), || processes(&token).len() >= 40);
        assert!(full, "control: it grows");
        let begun = Instant::now();
        for _ in 0..5 {
            // The launcher and the monitor have the token too.
            let count = processes(&token).len();
            assert!(count <= 52, "{count}");
            ok(&world.plainly("true"));
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        kill(i32::try_from(launcher.id()).unwrap(), Signal::KILL);
        launcher.wait().unwrap();
        assert!(wait_for(Duration::from_secs(5), || processes(&token).is_empty()));
    });
}

#[test]
fn a_group_goes_with_its_jail_or_with_the_next_start() {
    for_both(|world| {
        if !tasks_can_be_bound(world) {
            return;
        }
        let start = || {
            let mut command = world.command(world.launcher());
            command.arg("run").arg("--spec").arg(world.spec_file());
            command.args(["--", "sh", "-c", "touch up; exec sleep 60"]);
            let child = command.spawn().unwrap();
            let up = world.workspace.join("up");
            assert!(wait_for(Duration::from_secs(10), || up.exists()));
            fs::remove_file(up).unwrap();
            child
        };
        let mut ended = start();
        let made = has_group(ended.id());
        let by_group =
            ok(&world.inside("cat /run/kli/sandbox.json")).contains("by a control group");
        assert_eq!(made, by_group);
        kill(i32::try_from(ended.id()).unwrap(), Signal::TERM);
        ended.wait().unwrap();
        assert!(!has_group(ended.id()));
        let mut killed = start();
        kill(i32::try_from(killed.id()).unwrap(), Signal::KILL);
        killed.wait().unwrap();
        let gone = || {
            ok(&world.inside("true"));
            !has_group(killed.id())
        };
        assert!(wait_for(Duration::from_secs(5), gone));
    });
}

#[test]
fn the_memory_of_a_process_is_bound() {
    for_both(|world| {
        let take = "perl -e 'my $x = chr(1) x (200 << 20); print length($x), \"\\n\"'";
        assert_eq!(ok(&world.inside(take)), "209715200\n", "control");
        world.spec(r#"{"limits":{"memory":"64M"}}"#);
        let tried = world.inside(take);
        assert!(!tried.status.success() && out(&tried).is_empty(), "{tried:?}");
        has(&err(&tried), &["Out of memory"]);
        let lifted = world.inside(&format!("ulimit -d 4000000 2>/dev/null; {take}"));
        assert!(!lifted.status.success() && out(&lifted).is_empty(), "{lifted:?}");
        assert_eq!(ok(&world.inside("perl -e 'my $x = chr(1) x (20 << 20); print 1'")), "1");
        // Reserved address space that is not written is not memory.
        let reserve = format!(
            "perl -e 'print syscall({}, 0, 1 << 36, 0, 0x22, -1, 0) > 0 ? 1 : 0 + $!'",
            libc::SYS_mmap
        );
        assert_eq!(ok(&world.inside(&reserve)), "1");
    });
}

#[test]
fn the_size_of_a_file_is_bound() {
    for_both(|world| {
        let write = "head -c 3M /dev/zero > big; echo $?; stat -c %s big";
        assert_eq!(ok(&world.inside(write)), "0\n3145728\n", "control");
        world.spec(r#"{"limits":{"fileSize":"1M"}}"#);
        assert_eq!(ok(&world.inside(write)), format!("{}\n1048576\n", 128 + libc::SIGXFSZ));
        let ignoring = "perl -e '$SIG{XFSZ} = \"IGNORE\"; open(F, \">\", \"x\"); \
             syswrite(F, \"x\" x (1 << 20)); print defined syswrite(F, \"x\") ? \"more\" : 0 + $!'";
        assert_eq!(ok(&world.inside(ignoring)), libc::EFBIG.to_string());
        let lifted = ok(&world.inside(&format!("ulimit -f unlimited 2>/dev/null; {write}")));
        assert_eq!(lifted, format!("{}\n1048576\n", 128 + libc::SIGXFSZ));
    });
}

#[test]
fn limits_without_sense_are_refused() {
    for_both(|world| {
        for (spec, part) in [
            (r#"{"limits":{"tasks":1}}"#, "`tasks` is 1"),
            (r#"{"limits":{"memory":"1M"}}"#, "no program starts in less"),
        ] {
            world.spec(spec);
            has(&refused(&world.inside("touch effect")), &["`limits`: ", part]);
            assert!(!world.workspace.join("effect").exists());
        }
        world.spec(r#"{"limits":{"memory":"1G","fileSize":"1G"}}"#);
        ok(&world.inside("touch effect"));
        assert!(world.workspace.join("effect").exists());
    });
}

#[test]
fn files_in_memory_take_a_quarter_of_it_at_most() {
    for_both(|world| {
        let text = ok(&world.inside(
            "perl -lane 'print $F[4] if / - tmpfs /' /proc/self/mountinfo | sort -u | \
             while read -r d; do test -w \"$d\" && stat -f -c '%n %b %S' \"$d\"; done; echo end",
        ));
        assert!(text.ends_with("end\n"), "{text}");
        let memory = fs::read_to_string("/proc/meminfo").unwrap();
        let memory: u64 = memory.split_whitespace().nth(1).unwrap().parse().unwrap();
        let mut total = 0;
        let mut places = Vec::new();
        for line in text.lines().filter(|line| line.starts_with('/')) {
            let fields: Vec<&str> = line.split(' ').collect();
            let [name, blocks, size] = fields[..] else { panic!("{text}") };
            total += blocks.parse::<u64>().unwrap() * size.parse::<u64>().unwrap();
            places.push(name);
        }
        assert!(places.contains(&"/tmp") && places.contains(&"/dev/shm"), "{text}");
        assert!(!places.contains(&"/dev"), "{text}");
        assert!(
            total > 0 && total <= memory * 1024 / 4 + (1 << 20),
            "{total} of {memory} kB: {text}"
        );
    });
}
