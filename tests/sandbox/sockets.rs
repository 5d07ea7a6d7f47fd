//! Law 6: no socket and no named pipe of the host is usable unless it is allowed. Each service counts
//! who came, so that a refusal is seen from both sides.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::jail::{World, err, for_both, has, ok, out, refused, wait_for};

/// Connects to the path in its first argument and prints what comes.
const CONNECT: &str = "perl -MSocket -e 'socket(S,AF_UNIX,SOCK_STREAM,0); \
     connect(S,sockaddr_un($ARGV[0])) or die \"$!\\n\"; print <S>' ";

/// A service of the host at a socket.
struct Service {
    path: PathBuf,
    came: Arc<AtomicUsize>,
}

impl Service {
    /// Listens below the world's root, open to everybody.
    fn at(world: &World, path: &str) -> Self {
        let full = world.root.join(path);
        world.dir(Path::new(path).parent().unwrap());
        let listener = UnixListener::bind(&full).unwrap();
        fs::set_permissions(&full, fs::Permissions::from_mode(0o777)).unwrap();
        let came = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&came);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                count.fetch_add(1, Ordering::SeqCst);
                drop(stream.unwrap().write_all(b"served\n"));
            }
        });
        Self { path: full, came }
    }

    fn came(&self) -> usize {
        self.came.load(Ordering::SeqCst)
    }

    fn connect(&self) -> String {
        format!("{CONNECT} '{}'", self.path.display())
    }

    /// Cut inside, in service outside.
    #[track_caller]
    fn is_cut(&self, world: &World) {
        let before = self.came();
        let tried = world.inside(&self.connect());
        assert_eq!(out(&tried), "");
        // By a mask and by an overlay; what is not seen at all is another test's.
        let because = ["Permission denied\n", "Connection refused\n"];
        assert!(because.contains(&err(&tried).as_str()), "{tried:?}");
        assert_eq!(self.came(), before, "{}", self.path.display());
        assert_eq!(ok(&world.plainly(&self.connect())), "served\n", "control");
        assert_eq!(self.came(), before + 1);
    }

    #[track_caller]
    fn serves(&self, world: &World) {
        let before = self.came();
        assert_eq!(ok(&world.inside(&self.connect())), "served\n", "{}", self.path.display());
        assert_eq!(self.came(), before + 1);
    }
}

fn explain(world: &World) -> Output {
    world.command(world.launcher()).arg("explain").arg(world.spec_file()).output().unwrap()
}

fn pipe(world: &World, path: &str) -> PathBuf {
    let full = world.root.join(path);
    world.dir(Path::new(path).parent().unwrap());
    ok(&world.command("mkfifo").args(["-m", "666"]).arg(&full).output().unwrap());
    full
}

#[test]
fn sockets_of_the_host_are_cut_wherever_they_are_with_the_network_and_without() {
    for_both(|world| {
        world.dir("cache/tool");
        let services = [
            "home/agent.sock",
            "home/.gnupg/S.gpg-agent",
            "home/.docker/run/docker.sock",
            // Too deep for a search of the home; the kernel's table names it.
            "home/a/b/c/d/e/with space.sock",
            "outside/daemon.sock",
            "home/project/.model.sock",
            "home/project/sub/dir/deep.sock",
            "home/project/.git/fsmonitor--daemon.ipc",
            "cache/tool/server.sock",
            "home/.local/state/kli/old.sock",
        ]
        .map(|path| Service::at(world, path));
        for network in [true, false] {
            let writable = [world.root.join("cache")];
            world.spec(&json!({"network": network, "writablePaths": writable}).to_string());
            for service in &services {
                service.is_cut(world);
            }
        }
        let told = ok(&explain(world));
        for service in &services[4..] {
            has(&told, &[&service.path.display().to_string()]);
        }
    });
}

#[test]
fn a_named_pipe_of_the_host_takes_nothing_and_gives_nothing() {
    for_both(|world| {
        for path in ["home/project/orders", "home/project/sub/orders", "home/orders"] {
            let pipe = pipe(world, path);
            let name = pipe.display();
            // A reader of the host waits at it.
            let reads = || {
                let mut reader = world.command("timeout");
                let reader = reader.args(["5", "cat"]).arg(&pipe);
                reader.stdout(std::process::Stdio::piped()).spawn().unwrap()
            };
            let reader = reads();
            // A mask refuses; through an overlay it is another pipe, where nobody reads or writes.
            let tried = world.inside(&format!("timeout 1 sh -c 'echo evil > \"{name}\"'"));
            assert_eq!(out(&tried), "");
            let refused = ["Permission denied", "Read-only file system"];
            assert!(
                tried.status.code() == Some(124)
                    || refused.iter().any(|it| err(&tried).contains(it)),
                "{tried:?}"
            );
            assert_eq!(out(&world.inside(&format!("timeout 1 cat '{name}'"))), "");
            ok(&world.plainly(&format!("timeout 5 sh -c 'echo good > \"{name}\"'")));
            assert_eq!(ok(&reader.wait_with_output().unwrap()), "good\n");
            // Allowed, it is the host's.
            world.spec(&json!({"allowSockets": [pipe]}).to_string());
            let reader = reads();
            ok(&world.inside(&format!("timeout 5 sh -c 'echo allowed > \"{name}\"'")));
            assert_eq!(ok(&reader.wait_with_output().unwrap()), "allowed\n");
            world.spec("{}");
        }
    });
}

#[test]
fn an_allowed_socket_is_reached_and_no_other() {
    for_both(|world| {
        let allowed = ["home/agent.sock", "outside/a.sock", "home/project/m.sock"]
            .map(|path| Service::at(world, path));
        let others = ["home/other.sock", "outside/b.sock", "home/project/n.sock"]
            .map(|path| Service::at(world, path));
        let outside = world.root.join("outside/a.sock");
        for network in [true, false] {
            let sockets = json!(["~/agent.sock", outside, "./m.sock"]);
            world.spec(&json!({"network": network, "allowSockets": sockets}).to_string());
            for service in &allowed {
                service.serves(world);
            }
            for service in &others {
                service.is_cut(world);
            }
        }
    });
}

/// A world whose `/run`, `/tmp` and `/etc` are of the test's own.
fn elsewhere(world: &World, script: &str) -> Output {
    world.in_namespace(&format!(
        "mount --bind \"$W/run\" /run && mount --bind \"$W/tmp\" /tmp && {script}"
    ))
}

const JAIL: &str = "\"$L\" run --spec \"$SPEC\" --";

#[test]
fn allowed_sockets_of_replaced_trees_are_shown_there_with_their_variables() {
    for_both(|world| {
        let services = ["run/user/77/bus", "run/user/77/agent", "tmp/.X11-unix/X7", "run/d.sock"]
            .map(|path| Service::at(world, path));
        let _others =
            ["run/user/77/other", "tmp/other", "run/other"].map(|path| Service::at(world, path));
        world.link("run/way.sock", "d.sock");
        fs::set_permissions(world.root.join("run/user/77"), fs::Permissions::from_mode(0o700))
            .unwrap();
        let variables = "export XDG_RUNTIME_DIR=/run/user/77 SSH_AUTH_SOCK=/run/user/77/agent \
             DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/77/bus,guid=12 DISPLAY=:7.0 \
             DOCKER_HOST=unix:///run/way.sock PULSE_SERVER=unix:/run/user/77/other \
             WAYLAND_DISPLAY=other TMUX=/tmp/other,1,0 OTHER=/run/other; ";
        let paths =
            ["/run/user/77/bus", "/run/user/77/agent", "/tmp/.X11-unix/X7", "/run/way.sock"];
        let others = ["/run/user/77/other", "/tmp/other", "/run/other"];
        let names = "echo $SSH_AUTH_SOCK $DBUS_SESSION_BUS_ADDRESS $DISPLAY $DOCKER_HOST; \
             echo .$PULSE_SERVER$WAYLAND_DISPLAY$TMUX$OTHER.";
        world.spec(
            &json!({"network": false, "allowSockets":
                ["$XDG_RUNTIME_DIR/bus", "/run/user/77/agent", "/tmp/.X11-unix/X7", "/run/way.sock"]})
            .to_string(),
        );
        let text = ok(&elsewhere(world, &format!("{variables} {JAIL} sh -c '{names}'")));
        let kept =
            "/run/user/77/agent unix:path=/run/user/77/bus,guid=12 :7.0 unix:///run/way.sock\n..\n";
        assert_eq!(text, kept);
        for path in paths {
            let tried = elsewhere(world, &format!("{variables} {JAIL} {CONNECT} {path}"));
            assert_eq!(ok(&tried), "served\n", "{path}");
        }
        assert!(services.iter().all(|service| service.came() == 1));
        for path in others {
            let tried = elsewhere(world, &format!("{variables} {JAIL} {CONNECT} {path}"));
            assert_eq!(err(&tried), "No such file or directory\n", "{path}");
            let plainly = elsewhere(world, &format!("{variables} {CONNECT} {path}"));
            assert_eq!(ok(&plainly), "served\n", "control");
        }
        // Nothing allowed: neither sockets nor names of them.
        world.spec("{}");
        let text = ok(&elsewhere(world, &format!("{variables} {JAIL} sh -c '{names}'")));
        assert_eq!(text, "\n..\n");
        for path in paths {
            let tried = elsewhere(world, &format!("{variables} {JAIL} {CONNECT} {path}"));
            assert_eq!(err(&tried), "No such file or directory\n", "{path}");
        }
        assert!(services.iter().all(|service| service.came() == 1));
    });
}

#[test]
fn the_address_of_a_server_stays_though_its_socket_is_cut() {
    for_both(|world| {
        let service = Service::at(world, "home/model.sock");
        let address = format!("unix:{}", service.path.display());
        let run = world
            .run_with(&[], &["sh", "-c", "echo $OPENAI_BASE_URL $DOCKER_HOST"])
            .env("OPENAI_BASE_URL", &address)
            .env("DOCKER_HOST", &address)
            .output()
            .unwrap();
        // Without it the client would ask another server, which nobody meant.
        assert_eq!(ok(&run), format!("{address}\n"));
        service.is_cut(world);
    });
}

#[test]
fn a_runtime_directory_outside_run_is_empty_but_for_what_is_allowed() {
    for_both(|world| {
        let bus = Service::at(world, "home/runtime/bus");
        let other = Service::at(world, "home/runtime/other");
        let directory = world.home.join("runtime");
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
        world.spec(r#"{"allowSockets":["$XDG_RUNTIME_DIR/bus"]}"#);
        let run = |script: &str| {
            let mut run = world.run_with(&[], &["sh", "-c", script]);
            run.env("XDG_RUNTIME_DIR", &directory).output().unwrap()
        };
        assert_eq!(ok(&run(&bus.connect())), "served\n");
        assert_eq!(err(&run(&other.connect())), "No such file or directory\n");
        assert_eq!((bus.came(), other.came()), (1, 0));
        assert_eq!(ok(&world.plainly(&other.connect())), "served\n", "control");
    });
}

#[test]
fn what_cannot_be_allowed_is_refused_with_the_repair() {
    for_both(|world| {
        let docker = Service::at(world, "outside/docker.sock");
        world.file("home/file", "");
        for (path, because) in [
            ("~/project", "it is a directory: name the sockets in it"),
            ("~/file", "it is neither a socket nor a named pipe"),
        ] {
            world.spec(&json!({"allowSockets": [path]}).to_string());
            has(&refused(&world.inside("touch effect")), &["`allowSockets`", path, because]);
        }
        // What an earlier start planted decides nothing.
        ok(&world.plainly(&format!("ln -s '{}' model.sock", docker.path.display())));
        world.spec(r#"{"allowSockets":["./model.sock"]}"#);
        let text = refused(&world.inside("touch effect"));
        has(&text, &["is a symbolic link inside", "an earlier start could write"]);
        assert!(!world.workspace.join("effect").exists());
        assert_eq!(docker.came(), 0);
        world.spec(&json!({"allowSockets": [docker.path]}).to_string());
        docker.serves(world);
    });
}

#[test]
fn an_absent_socket_is_a_note_and_comes_alive_where_the_jail_shows_the_host() {
    for_both(|world| {
        world.spec(r#"{"allowSockets":["./late.sock","/run/late.sock"]}"#);
        let told = ok(&explain(world));
        has(&told, &["late.sock` is not there yet: it is reachable when it is"]);
        has(&told, &["`/run/late.sock` is not there: start its server before the jail"]);
        let script =
            format!("touch up; until test -S late.sock; do sleep 0.02; done; {CONNECT} late.sock");
        let child = world
            .run_with(&[], &["sh", "-c", &script])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let up = world.workspace.join("up");
        assert!(wait_for(Duration::from_secs(10), || up.exists()));
        // Made elsewhere and moved, so that it is open to everybody when it appears.
        let service = Service::at(world, "home/project/new/late.sock");
        fs::rename(&service.path, world.workspace.join("late.sock")).unwrap();
        assert_eq!(ok(&child.wait_with_output().unwrap()), "served\n");
        assert_eq!(service.came(), 1);
        fs::remove_file(up).unwrap();
    });
}

#[test]
fn a_denied_socket_stays_hidden_though_it_is_allowed() {
    for_both(|world| {
        let service = Service::at(world, "home/keys/agent.sock");
        world.spec(r#"{"allowSockets":["~/keys/agent.sock"]}"#);
        service.serves(world);
        world.spec(r#"{"allowSockets":["~/keys/agent.sock"],"denyRead":["~/keys"]}"#);
        has(&ok(&explain(world)), &["is allowed and stays hidden"]);
        let tried = world.inside(&service.connect());
        assert_eq!(err(&tried), "No such file or directory\n");
        assert_eq!(service.came(), 1);
    });
}

#[test]
fn a_hidden_socket_can_be_neither_removed_nor_moved_from_inside() {
    for_both(|world| {
        let service = Service::at(world, "home/project/m.sock");
        let tried =
            world.inside("rm -f m.sock; mv m.sock n.sock; ln m.sock o.sock; echo x > m.sock");
        assert_eq!(err(&tried).lines().count(), 4, "{tried:?}");
        assert!(fs::symlink_metadata(&service.path).unwrap().file_type().is_socket());
        assert_eq!(fs::read_dir(&world.workspace).unwrap().count(), 1);
        service.is_cut(world);
    });
}

#[test]
fn the_inside_has_sockets_and_pipes_of_its_own() {
    for_both(|world| {
        let own = "perl -MSocket -e 'for(@ARGV){ socket(S,AF_UNIX,SOCK_STREAM,0) or die; \
             bind(S,sockaddr_un($_)) or die \"$_: $!\\n\"; listen(S,1); socket(C,AF_UNIX,SOCK_STREAM,0); \
             connect(C,sockaddr_un($_)) or die \"$_: $!\\n\"; print \"own\\n\" } \
             socketpair(A,B,AF_UNIX,SOCK_STREAM,0) or die; syswrite(A,\"x\"); sysread(B,$x,1); print \"$x\\n\"' \
             own.sock /tmp/own.sock \"$XDG_RUNTIME_DIR/own.sock\"; mkfifo p; cat p & echo piped > p; wait";
        let run = world
            .run_with(&[], &["sh", "-c", own])
            .env("XDG_RUNTIME_DIR", "/run/user/77")
            .output()
            .unwrap();
        assert_eq!(ok(&run), "own\nown\nown\nx\npiped\n");
    });
}

/// Runs a script where `/nix` is a tree of the test's own.
fn with_nix(world: &World, script: &str) -> Output {
    let outer = format!(
        "set -- --tmpfs /; for top in /*; do test \"$top\" = /nix && continue; \
         if test -L \"$top\"; then set -- \"$@\" --symlink \"$(readlink \"$top\")\" \"$top\"; \
         else set -- \"$@\" --dev-bind \"$top\" \"$top\"; fi; done; \
         exec bwrap \"$@\" --bind '{}' /nix --chdir '{}' -- sh -c \"$0\"",
        world.root.join("nix").display(),
        world.workspace.display()
    );
    let mut command = world.command("timeout");
    command.args(["-k", "1", "30", "sh", "-c", &outer, script]);
    command.env("L", world.launcher()).env("SPEC", world.spec_file()).output().unwrap()
}

#[test]
fn the_nix_daemon_is_cut_unless_it_is_allowed() {
    let socket = "/nix/var/nix/daemon-socket/socket";
    for_both(|world| {
        let daemon = Service::at(world, "nix/var/nix/daemon-socket/socket");
        assert_eq!(ok(&with_nix(world, &format!("{CONNECT} {socket}"))), "served\n", "control");
        let start = format!("{JAIL} {CONNECT} {socket}");
        for network in [true, false] {
            world.spec(&json!({"network": network}).to_string());
            let tried = with_nix(world, &start);
            assert_eq!(err(&tried), "No such file or directory\n", "{tried:?}");
            assert_eq!(ok(&with_nix(world, &format!("{JAIL} ls /nix/var/nix"))), "daemon-socket\n");
        }
        assert_eq!(daemon.came(), 1);
        for spec in [json!({"allowNixDaemon": true}), json!({"allowSockets": [socket]})] {
            world.spec(&spec.to_string());
            assert_eq!(ok(&with_nix(world, &start)), "served\n");
            let told = ok(&with_nix(world, "\"$L\" explain \"$SPEC\""));
            has(&told, &["the daemon acts outside the jail and has the network"]);
        }
        assert_eq!(daemon.came(), 3);
    });
}

#[test]
fn the_keys_of_x_servers_are_hidden_unless_a_socket_of_one_is_allowed() {
    for_both(|world| {
        let server = Service::at(world, "tmp/.X11-unix/X7");
        world.file("home/.Xauthority", "COOKIE");
        world.file("run/user/77/auth", "COOKIE");
        let show = "export XAUTHORITY=/run/user/77/auth DISPLAY=:7;";
        let script = "sh -c 'cat ~/.Xauthority; cat /run/user/77/auth; echo $DISPLAY'";
        let hidden = elsewhere(world, &format!("{show} {JAIL} {script}"));
        assert_eq!(out(&hidden), "\n");
        assert_eq!(ok(&elsewhere(world, &format!("{show} {script}"))), "COOKIECOOKIE:7\n");
        world.spec(r#"{"allowSockets":["/tmp/.X11-unix/X7"]}"#);
        let shown = elsewhere(world, &format!("{show} {JAIL} {script}"));
        assert_eq!(ok(&shown), "COOKIECOOKIE:7\n");
        assert_eq!(server.came(), 0);
    });
}

#[test]
fn names_resolve_through_every_chain_of_links() {
    for_both(|world| {
        world.dir("tmp");
        world.dir("store/etc");
        world.file("run/systemd/resolve/stub-resolv.conf", "nameserver 127.0.0.53\n");
        world.file("run/secret", "SECRET");
        let resolve = Service::at(world, "run/systemd/resolve/io.systemd.Resolve");
        let cache = Service::at(world, "run/nscd/socket");
        let other = Service::at(world, "run/dbus/socket");
        world.dir("etc");
        let copy = "cp -rP /etc/passwd /etc/group /etc/ld.so.cache /etc/alternatives \"$W/etc/\"";
        ok(&world.in_namespace(copy));
        world.link("etc/static", world.root.join("store/etc"));
        let cases: [(&str, &[(&str, &str)]); 6] = [
            // systemd-resolved.
            (
                "nameserver 127.0.0.53",
                &[("etc/resolv.conf", "../run/systemd/resolve/stub-resolv.conf")],
            ),
            // NixOS.
            (
                "nameserver 127.0.0.53",
                &[
                    ("etc/resolv.conf", "/etc/static/resolv.conf"),
                    ("store/etc/resolv.conf", "/run/systemd/resolve/stub-resolv.conf"),
                ],
            ),
            // A file of another manager's.
            ("nameserver 192.0.2.7", &[("etc/resolv.conf", "/run/own/manager/resolv.conf")]),
            // Through a link in `/run` that is on no list, and out of it again.
            (
                "nameserver 192.0.2.8",
                &[("etc/resolv.conf", "/run/own/current"), ("run/own/current", "/etc/real")],
            ),
            // By the old name of `/run`, where that is a link.
            (
                "nameserver 127.0.0.53",
                &[("etc/resolv.conf", "/var/run/systemd/resolve/stub-resolv.conf")],
            ),
            // No link at all.
            ("nameserver 192.0.2.9", &[]),
        ];
        world.file("run/own/manager/resolv.conf", "nameserver 192.0.2.7\n");
        world.file("etc/real", "nameserver 192.0.2.8\n");
        for (expected, links) in cases {
            for (path, target) in links {
                world.link(path, target);
            }
            if links.is_empty() {
                world.file("etc/resolv.conf", "nameserver 192.0.2.9\n");
            }
            let run = |script: &str| {
                elsewhere(world, &format!("mount --bind \"$W/etc\" /etc && {JAIL} {script}"))
            };
            assert_eq!(ok(&run("cat /etc/resolv.conf")), format!("{expected}\n"));
            assert_ne!(run("cat /run/secret").status.code(), Some(0));
            for (path, _) in links {
                fs::remove_file(world.root.join(path)).unwrap();
            }
        }
        // The services that look names up are on the list with the network only; no other one is.
        let reach = |path: &str| elsewhere(world, &format!("{JAIL} {CONNECT} {path}"));
        for (service, path) in
            [(&resolve, "/run/systemd/resolve/io.systemd.Resolve"), (&cache, "/run/nscd/socket")]
        {
            world.spec(r#"{"network":true}"#);
            assert_eq!(ok(&reach(path)), "served\n");
            world.spec(r#"{"network":false}"#);
            assert_eq!(err(&reach(path)), "No such file or directory\n");
            assert_eq!(service.came(), 1);
        }
        world.spec(r#"{"network":true}"#);
        assert_eq!(err(&reach("/run/dbus/socket")), "No such file or directory\n");
        assert_eq!(other.came(), 0);
        let plainly = elsewhere(world, &format!("{CONNECT} /run/dbus/socket"));
        assert_eq!(ok(&plainly), "served\n", "control");
    });
}

#[test]
fn a_search_that_comes_to_its_bounds_says_so() {
    for_both(|world| {
        assert!(!ok(&explain(world)).contains("it is too deep"));
        world.dir(format!("home/project/{}", "d/".repeat(40)));
        has(
            &ok(&explain(world)),
            &["the search for sockets and named pipes ended at", "it is too deep"],
        );
    });
}

#[test]
fn a_pasted_command_cuts_the_same_sockets() {
    for_both(|world| {
        let service = Service::at(world, "home/project/m.sock");
        let allowed = Service::at(world, "home/project/n.sock");
        world.spec(r#"{"allowSockets":["./n.sock"]}"#);
        let mut command = world.command(world.launcher());
        let text = ok(&command
            .args(["explain", "--format", "shell"])
            .arg(world.spec_file())
            .output()
            .unwrap());
        // A socket of another test may be gone before this is pasted.
        let own = world.root.to_str().unwrap();
        let others = |line: &&str| line.contains("/kli-jail-") && !line.contains(own);
        let text: String = text.split_inclusive('\n').filter(|line| !others(line)).collect();
        let inner = world.file(
            "outside/script",
            &format!("#!/bin/sh\n{}\n{}\n", service.connect(), allowed.connect()),
        );
        fs::set_permissions(&inner, fs::Permissions::from_mode(0o755)).unwrap();
        let ran = world.plainly(&format!("SHELL='{}'; export SHELL\n{text}", inner.display()));
        assert_eq!((out(&ran).as_str(), err(&ran).as_str()), ("served\n", "Permission denied\n"));
        assert_eq!((service.came(), allowed.came()), (0, 1));
    });
}
