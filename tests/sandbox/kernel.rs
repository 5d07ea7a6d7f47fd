//! Law 7 and the signals and abstract sockets of law 6: every refused call is tried inside and, as
//! the control, outside of the jail, where it must be answered differently.

use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::jail::{Who, World, err, for_both, has, ok, out, wait_for};

mod calls;

use calls::{Control, ROWS, Row, SCRIPT};

/// Where user 0 of the tests is that of the machine.
fn machines_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The script that tries rows, one line of answer each: the error's number, 0 for success.
fn attempts<'a>(rows: impl Iterator<Item = &'a Row>) -> String {
    let calls: Vec<String> =
        rows.map(|row| format!("attempt({:?}, sub {{ {} }});", row.name, row.perl())).collect();
    [SCRIPT, &calls.join("\n")].concat()
}

fn answers(text: &str) -> Vec<(String, i32)> {
    text.lines()
        .map(|line| {
            let (name, number) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{text}"));
            (name.to_owned(), number.parse().unwrap_or_else(|_| panic!("{text}")))
        })
        .collect()
}

fn perl(script: &str) -> String {
    assert!(!script.contains('\''), "it goes through a shell");
    format!("rm -rf t; mkdir t; cd t && echo x > f && chmod 644 f && perl -e '{script}'")
}

/// What is in the directory of the attempts: modes and names.
fn left(world: &World) -> Vec<(String, u32)> {
    let mut found: Vec<_> = fs::read_dir(world.workspace.join("t"))
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let mode = entry.metadata().unwrap().permissions().mode() & 0o7777;
            (entry.file_name().into_string().unwrap(), mode)
        })
        .collect();
    found.sort();
    found
}

#[test]
fn each_refused_call_is_refused_inside_and_answered_outside() {
    for_both(|world| {
        let inside = answers(&ok(&world.inside(&perl(&attempts(ROWS.iter())))));
        assert_eq!(inside.len(), ROWS.len());
        for (row, (name, number)) in ROWS.iter().zip(&inside) {
            assert_eq!(row.name, name);
            assert_eq!(*number, row.refused, "{name}");
        }
        assert_eq!(left(world), [("f".to_owned(), 0o644)], "no effect");
        for control in [Control::Plainly, Control::Namespace, Control::Root] {
            let rows = || ROWS.iter().filter(|row| row.control == control && row.is_open_here());
            let script = perl(&attempts(rows()));
            let outside = match control {
                Control::Plainly => world.plainly(&script),
                Control::Namespace => world.in_namespace(&script),
                // Only the machine's root can be told more than that it may not.
                Control::Root if machines_root() => World::new(Who::Root).plainly(&script),
                Control::Root | Control::None => continue,
            };
            let outside = answers(&ok(&outside));
            assert!(outside.len() > 3, "{control:?}");
            for (row, (name, number)) in rows().zip(outside) {
                assert_ne!(number, row.refused, "control of {name}");
            }
        }
    });
}

#[test]
fn every_process_inside_has_the_filter() {
    for_both(|world| {
        // One more than outside, where there may be one already, for process 1 as well.
        let look = "sed -n 's/^Seccomp_filters:\\t//p' /proc/self/status";
        let outside: u32 = ok(&world.plainly(look)).trim().parse().unwrap();
        let inside =
            ok(&world
                .inside(&format!("{look} /proc/1/status; grep -c 'Seccomp:.2' /proc/1/status")));
        assert_eq!(inside, format!("{0}\n{0}\n1\n", outside + 1));
    });
}

/// What the groups of refusals leave alone.
#[test]
fn what_programs_need_is_not_refused() {
    for_both(|world| {
        let text = ok(&world.inside(
            "mkdir d && chmod 2755 d f0 2>/dev/null; chmod 2755 d && stat -c %a d; \
             mkdir -m 2750 e && stat -c %a e; touch f && chmod 2755 f && stat -c %a f; \
             mkdir h && chmod 1777 h && stat -c %a h; install -m 755 f g && stat -c %a g; \
             seq 100000 | sort --parallel=4 -R | sort -n --parallel=4 -S 1M | tail -1; \
             git init -q --shared r && stat -c %a r/.git/objects",
        ));
        assert_eq!(text, "2755\n2750\n2755\n1777\n755\n100000\n2775\n");
        let families = "for my $f ([1,1,0],[1,2,0],[2,1,0],[10,2,0],[16,3,0]) { \
             socket(my $s, $f->[0], $f->[1], $f->[2]) or $! == 97 or die \"$f->[0] $!\"; print \"$f->[0]\\n\" } \
             socketpair(my $a, my $b, 1, 1, 0) or die; syswrite($a, \"x\"); sysread($b, my $x, 1); print $x";
        let run = |world: &World| ok(&world.inside(&format!("perl -e '{families}'")));
        assert_eq!(run(world), "1\n1\n2\n10\n16\nx");
        world.spec(r#"{"network":false}"#);
        assert_eq!(run(world), "1\n1\n2\n10\n16\nx");
    });
}

#[test]
fn a_debugger_works_on_its_own_child() {
    for_both(|world| {
        let script = calls::DEBUGGER.replace("PTRACE", &libc::SYS_ptrace.to_string());
        let script = script.replace("READV", &libc::SYS_process_vm_readv.to_string());
        assert_eq!(
            ok(&world.plainly(&format!("perl -e '{script}'"))),
            "secret\nsecret\n",
            "control"
        );
        assert_eq!(ok(&world.inside(&format!("perl -e '{script}'"))), "secret\nsecret\n");
    });
}

/// A 64-bit program that makes one call of another interface and ends with 1 when there is none.
#[cfg(target_arch = "x86_64")]
fn foreign(world: &World, name: &str, number: u32, enter: [u8; 2]) {
    let mut code = vec![0xb8];
    code.extend(number.to_le_bytes());
    code.extend(enter);
    // cmp eax, -ENOSYS; sete dil; movzx edi, dil; mov eax, SYS_exit; syscall
    code.extend([0x83, 0xf8, 0xda, 0x40, 0x0f, 0x94, 0xc7, 0x40, 0x0f, 0xb6, 0xff]);
    code.extend([0xb8, 0x3c, 0, 0, 0, 0x0f, 0x05]);
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".to_vec();
    let base = 0x40_0000_u64;
    for word in [base + 120, 64, 0] {
        file.extend(word.to_le_bytes());
    }
    file.extend(b"\0\0\0\0\x40\0\x38\0\x01\0\0\0\0\0\0\0\x01\0\0\0\x05\0\0\0");
    let length = 120 + code.len() as u64;
    for word in [0, base, base, length, length, 0x1000] {
        file.extend(word.to_le_bytes());
    }
    file.extend(code);
    let path = world.file(format!("home/project/{name}"), "");
    fs::write(&path, file).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[cfg(target_arch = "x86_64")]
#[test]
fn other_interfaces_of_the_machine_answer_nothing() {
    for_both(|world| {
        const GETPID: u32 = 39;
        foreign(world, "i386", 20, [0xcd, 0x80]);
        foreign(world, "x32", 0x4000_0000 + GETPID, [0x0f, 0x05]);
        foreign(world, "native", GETPID, [0x0f, 0x05]);
        for (name, code) in [("i386", 1), ("x32", 1), ("native", 0)] {
            let inside = world.inside(&format!("./{name}"));
            assert_eq!(inside.status.code(), Some(code), "{name}: {inside:?}");
        }
        // 0, or the fault of a kernel without the interface; x32 is left out of most.
        let outside = world.plainly("./i386").status.code();
        assert_ne!(outside, Some(1));
    });
}

#[test]
fn the_session_keyring_of_the_caller_stays_outside() {
    for_both(|world| {
        // keyctl(JOIN_SESSION_KEYRING), add_key to it, then the launcher.
        let [keyctl, add, request] =
            [libc::SYS_keyctl, libc::SYS_add_key, libc::SYS_request_key].map(|it| it.to_string());
        let ask = format!(
            "my ($t, $d) = (\"user\", \"kli-jail-key\"); my $r = syscall({request}, $t, $d, 0, 0); print $r > 0 ? \"found\\n\" : 0 + $! . \"\\n\";"
        );
        let begin = format!(
            "my ($t, $d, $s) = (\"user\", \"kli-jail-key\", \"secret\"); syscall({keyctl}, 1, 0) > 0 or die \"join $!\"; \
             syscall({add}, $t, $d, $s, 6, -3) > 0 or die \"add $!\"; exec @ARGV"
        );
        let list = "grep -c kli-jail-key /proc/keys; cat /proc/keys /proc/key-users";
        let started = |words: &[&str]| {
            let mut command = world.command("timeout");
            command.args(["-k", "1", "30", "perl", "-e", &begin, "--"]).args(words);
            command.output().unwrap()
        };
        let (launcher, spec) = (world.launcher(), world.spec_file());
        let jail = [launcher.to_str().unwrap(), "run", "--spec", spec.to_str().unwrap(), "--"];
        let inside = |words: &[&str]| started(&[&jail[..], words].concat());
        assert_eq!(ok(&started(&["perl", "-e", &ask])), "found\n", "control");
        assert_eq!(ok(&inside(&["perl", "-e", &ask])), "1\n");
        has(&ok(&started(&["sh", "-c", list])), &["1\n", "kli-jail-key"]);
        let listed = inside(&["sh", "-c", list]);
        assert_eq!(out(&listed), "", "{listed:?}");
        assert_eq!(err(&listed).matches("Permission denied").count(), 3, "{listed:?}");
    });
}

/// The word of the marker about abstract sockets.
fn abstract_word(world: &World) -> String {
    let text = ok(&world.inside("cat /run/kli/sandbox.json"));
    let marker: serde_json::Value = serde_json::from_str(&text).unwrap();
    marker["abstractSockets"].as_str().unwrap().to_owned()
}

#[test]
fn an_abstract_socket_of_the_host_is_out_of_reach() {
    for_both(|world| {
        let name = format!("kli-jail-{}-{:?}", std::process::id(), world.who);
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let _listener = UnixListener::bind_addr(&address).unwrap();
        let connect = format!(
            "perl -MSocket -e 'socket(S,AF_UNIX,SOCK_STREAM,0) && connect(S,pack(\"Sxa*\",1,\"{name}\")) or print(0+$!, \"\\n\"), exit; print \"connected\\n\"'"
        );
        assert_eq!(ok(&world.plainly(&connect)), "connected\n", "control");
        let own = "perl -MSocket -e 'socket(L,1,1,0) or die; bind(L,pack(\"Sxa*\",1,\"own\")) or die; listen(L,1); \
             socket(S,1,1,0); connect(S,pack(\"Sxa*\",1,\"own\")) or die; print \"own\\n\"'";
        match abstract_word(world).as_str() {
            "scoped" => {
                assert_eq!(ok(&world.inside(&connect)), format!("{}\n", libc::EPERM));
                assert_eq!(ok(&world.inside(own)), "own\n", "control");
            }
            "no sockets" => {
                assert_eq!(ok(&world.inside(&connect)), format!("{}\n", libc::EAFNOSUPPORT));
            }
            other => panic!("{other}"),
        }
        world.spec(r#"{"network":false}"#);
        assert_eq!(abstract_word(world), "own network");
        let refused = out(&world.inside(&connect));
        let numbers = [libc::ECONNREFUSED, libc::EPERM].map(|number| format!("{number}\n"));
        assert!(numbers.contains(&refused), "{refused}");
        assert_eq!(ok(&world.inside(own)), "own\n", "control");
    });
}

/// A process of the same user outside of the jail.
fn victim(world: &World) -> Child {
    world.command("sleep").arg("60").stdout(Stdio::null()).spawn().unwrap()
}

#[test]
fn no_signal_reaches_a_process_outside() {
    for_both(|world| {
        for spec in ["{}", r#"{"nestedUserns":true}"#] {
            world.spec(spec);
            let mut outside = victim(world);
            let pid = outside.id();
            let script = calls::SIGNALS
                .replace("VICTIM", &pid.to_string())
                .replace("OPEN", &libc::SYS_pidfd_open.to_string())
                .replace("SEND", &libc::SYS_pidfd_send_signal.to_string())
                .replace("QUEUE", &libc::SYS_rt_sigqueueinfo.to_string());
            let text = ok(&world.inside(&format!("perl -e '{script}'")));
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!(lines.len(), 6, "{text}");
            for line in &lines {
                // No such process, or one that may not be asked.
                let (_, number) = line.split_once(' ').unwrap();
                let known = [libc::ESRCH, libc::EPERM, libc::EINVAL, libc::ENOENT];
                assert!(known.contains(&number.parse().unwrap()), "{text}");
            }
            assert!(outside.try_wait().unwrap().is_none(), "{spec}: it still runs");
            ok(&world.plainly(&format!("kill -15 {pid}")));
            let ended = wait_for(Duration::from_secs(5), || outside.try_wait().unwrap().is_some());
            assert!(ended, "control");
        }
    });
}

#[test]
fn the_launcher_can_still_end_the_jail() {
    for_both(|world| {
        let mut command = world.run_with(&[], &["sh", "-c", "echo up; exec sleep 60"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut reader = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut reader, &mut line).unwrap();
        assert_eq!(line, "up\n");
        // To `timeout`, which hands it to the launcher.
        crate::jail::kill(i32::try_from(child.id()).unwrap(), rustix::process::Signal::TERM);
        assert!(wait_for(Duration::from_secs(5), || child.try_wait().unwrap().is_some()));
    });
}

#[test]
fn further_user_namespaces_are_for_those_who_ask() {
    for_both(|world| {
        let own = "unshare -U sh -c 'echo in; readlink /proc/self/ns/user' && readlink /proc/self/ns/user";
        let refused = world.inside(own);
        has(&err(&refused), &["Operation not permitted"]);
        assert_eq!(out(&refused), "");
        world.spec(r#"{"allowUserNamespaces":true}"#);
        let text = ok(&world.inside(own));
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0] == "in" && lines[1] != lines[2], "{text}");
        // The rest of the filter stays.
        let rest: Vec<&Row> = ROWS.iter().filter(|row| !row.with_namespaces()).collect();
        assert!(rest.len() > 30);
        let inside = answers(&ok(&world.inside(&perl(&attempts(rest.iter().copied())))));
        for (row, (name, number)) in rest.iter().zip(inside) {
            assert_eq!(number, row.refused, "{name}");
        }
        // The kernel lets user 0 without capabilities map nobody (user_namespaces(7)).
        if world.who == Who::User {
            let mount = "unshare -Urmpf --mount-proc sh -c 'mount -t tmpfs x /mnt && echo mounted'";
            assert_eq!(ok(&world.inside(mount)), "mounted\n");
        }
    });
}

#[test]
fn with_read_only_sysctls_the_filter_forbids_namespaces() {
    for_both(|world| {
        world.spec(r#"{"nestedUserns":true}"#);
        let start = "mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys && \
             exec \"$L\" run --spec \"$SPEC\" -- sh -c 'unshare -U echo in; echo up'";
        let inside = world.in_namespace(start);
        has(&err(&inside), &["Operation not permitted"]);
        assert_eq!(ok(&inside), "up\n");
        world.spec(r#"{"nestedUserns":true,"allowUserNamespaces":true}"#);
        assert_eq!(ok(&world.in_namespace(start)), "in\nup\n", "control");
    });
}

#[test]
fn explain_names_what_the_kernel_refuses() {
    for_both(|world| {
        let explained = |format: &str| {
            let mut command = world.command(world.launcher());
            command.arg("explain").arg(world.spec_file()).args(["--format", format]);
            ok(&command.output().unwrap())
        };
        let text = explained("words");
        for group in [
            "terminal",
            "namespaces",
            "mounts",
            "file handles",
            "keyrings",
            "kernel",
            "io_uring",
            "sockets",
            "setuid files",
        ] {
            has(&text, &[&format!("refused calls: {group}")]);
        }
        has(&text, &["abstract sockets: ", "signals: kept in by the PID namespace"]);
        world.spec(r#"{"allowUserNamespaces":true}"#);
        let text = explained("words");
        assert!(!text.contains("refused calls: mounts"), "{text}");
        has(&text, &["refused calls: keyrings", "`allowUserNamespaces`: the inside can mount"]);
        let json: serde_json::Value = serde_json::from_str(&explained("json")).unwrap();
        assert!(json["refusedCalls"].as_array().unwrap().contains(&"setuid files".into()));
    });
}
