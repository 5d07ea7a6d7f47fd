//! Law 6 and the closed network: sockets, pipes, ports and names.

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;

use crate::jail::{World, err, ok, out};

use super::{Row, code, row};

pub(super) fn rows() -> Vec<Row> {
    let mut rows = sockets();
    rows.extend(network());
    rows
}

/// A client that prints `SECRET` when it is let in, so that no row can pass with it.
const CONNECT: &str = "perl -MSocket -e 'socket(S,AF_UNIX,SOCK_STREAM,0) or die \"$!\\n\"; \
    connect(S,sockaddr_un($ARGV[0])) or die \"$!\\n\"; print \"SEC\", \"RET connected\\n\"' ";

/// Listens at `path`, tries from inside, and controls from outside.
fn pathname(world: &World, path: &Path, spec: &str) -> String {
    let listener = UnixListener::bind(path).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    world.spec(spec);
    let connect = format!("{CONNECT} '{}'", path.display());
    assert!(ok(&world.plainly(&connect)).contains("connected"));
    listener.accept().unwrap();
    let tried = world.inside(&connect);
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "somebody was let in");
    format!("{}{}", out(&tried), err(&tried))
}

const REFUSED: &str =
    "Connection refused|No such file|Permission denied|Operation not permitted|Read-only";

fn sockets() -> Vec<Row> {
    vec![
        code(6, "reach a socket in the home", |world| {
            pathname(world, &world.home.join("agent.sock"), "{}")
        })
        .refused(REFUSED),
        code(6, "reach a socket in the home with the network off", |world| {
            pathname(world, &world.home.join("agent.sock"), r#"{"network":false}"#)
        })
        .refused(REFUSED),
        code(6, "reach a socket in the workspace", |world| {
            pathname(world, &world.workspace.join("server.sock"), "{}")
        })
        .refused(REFUSED),
        code(6, "reach a socket in a writable path", |world| {
            pathname(world, &world.home.join("cache/server.sock"), r#"{"writablePaths":["~/cache"]}"#)
        })
        .refused(REFUSED),
        code(6, "reach a socket elsewhere on the machine", |world| {
            pathname(world, &world.root.join("outside/service.sock"), "{}")
        })
        .refused(REFUSED),
        code(6, "reach a socket below `/run`", |world| {
            world.dir("run");
            let listener = UnixListener::bind(world.root.join("run/docker.sock")).unwrap();
            let everyone = fs::Permissions::from_mode(0o777);
            fs::set_permissions(world.root.join("run/docker.sock"), everyone).unwrap();
            let bind = "mount --bind \"$W/run\" /run; ";
            assert!(ok(&world.in_namespace(&format!("{bind}{CONNECT} /run/docker.sock"))).contains("connected"));
            listener.accept().unwrap();
            let tried = world.in_namespace(&format!(
                "{bind}cd \"$W/home/project\" && \"$L\" run --spec \"$SPEC\" -- {CONNECT} /run/docker.sock"
            ));
            format!("{}{}", out(&tried), err(&tried))
        })
        .refused(REFUSED),
        code(6, "reach an abstract socket", |world| {
            let name = format!("kli-matrix-{}", std::process::id());
            let address = SocketAddr::from_abstract_name(&name).unwrap();
            let listener = UnixListener::bind_addr(&address).unwrap();
            world.spec("{}");
            let connect = format!(
                "perl -MSocket -e 'socket(S,AF_UNIX,SOCK_STREAM,0) or die \"$!\\n\"; \
                 connect(S,pack(\"S a*\",AF_UNIX,\"\\0{name}\")) or die \"$!\\n\"; print \"SEC\", \"RET connected\\n\"'"
            );
            assert!(ok(&world.plainly(&connect)).contains("connected"));
            listener.accept().unwrap();
            let tried = world.inside(&connect);
            format!("{}{}", out(&tried), err(&tried))
        })
        .refused("Operation not permitted|Connection refused"),
        code(6, "write into a FIFO of the host", |world| {
            let fifo = world.home.join("fifo");
            ok(&world.plainly("mkfifo -m 666 ~/fifo"));
            let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NONBLOCK;
            let held = rustix::fs::open(&fifo, flags, rustix::fs::Mode::empty()).unwrap();
            let mut held = std::fs::File::from(held);
            let mut seen = [0; 16];
            ok(&world.plainly("echo control > ~/fifo"));
            assert_eq!(held.read(&mut seen).unwrap(), 8);
            world.spec("{}");
            let tried = world.inside("timeout 1 sh -c 'echo x > ~/fifo'; echo ended");
            assert!(held.read(&mut seen).is_err(), "it was written");
            format!("{}{}", out(&tried), err(&tried))
        })
        .refused("ended"),
        code(6, "signal a process of the host", |world| {
            let mut child = world.command("sleep").arg("3600.5").spawn().unwrap();
            let pid = child.id();
            ok(&world.plainly(&format!("kill -0 {pid}")));
            let tried = world.inside(&format!("kill -KILL {pid}; kill -KILL -1; echo ended"));
            assert!(child.try_wait().unwrap().is_none(), "it was killed");
            child.kill().unwrap();
            child.wait().unwrap();
            // What the second kill leaves of the inside is the program's code.
            format!("{}{}{:?}", out(&tried), err(&tried), tried.status.code())
        })
        .refused("No such process|Operation not permitted"),
        code(6, "follow `DBUS_SESSION_BUS_ADDRESS`", |world| {
            let bus = world.home.join("bus");
            let _listener = UnixListener::bind(&bus).unwrap();
            let address = format!("unix:path={}", bus.display());
            let mut command = world.run_with(&[], &["sh", "-c", "printenv DBUS_SESSION_BUS_ADDRESS; echo end"]);
            let output = command.env("DBUS_SESSION_BUS_ADDRESS", &address).output().unwrap();
            assert_eq!(ok(&output), "end\n");
            world.spec(&serde_json::json!({ "allowSockets": [bus] }).to_string());
            let mut command = world.run_with(&[], &["sh", "-c", "printenv DBUS_SESSION_BUS_ADDRESS; echo end"]);
            let allowed = command.env("DBUS_SESSION_BUS_ADDRESS", &address).output().unwrap();
            assert!(ok(&allowed).contains(&address), "{allowed:?}");
            "not set".to_owned()
        })
        .refused("not set"),
    ]
}

/// A client for a port, as [`CONNECT`] is for a path.
fn dial(address: &str, port: u16) -> String {
    format!(
        "perl -MSocket -e 'socket(S,AF_INET,SOCK_STREAM,0) or die \"$!\\n\"; \
         connect(S,sockaddr_in({port},inet_aton(\"{address}\"))) or die \"$!\\n\"; print \"SEC\", \"RET connected\\n\"'"
    )
}

fn network() -> Vec<Row> {
    vec![
        code(1, "reach a port of the host with the network off", |world| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let script = dial("127.0.0.1", listener.local_addr().unwrap().port());
            assert!(ok(&world.plainly(&script)).contains("connected"));
            let tried = world.inside(&script);
            format!("{}{}", out(&tried), err(&tried))
        })
        .refused("Connection refused"),
        row(1, "reach any address with the network off", dial("192.0.2.1", 9))
            .refused("Network is unreachable")
            .control(
                "perl -MSocket -e 'socket(S,AF_INET,SOCK_STREAM,0); bind(S,sockaddr_in(0,INADDR_LOOPBACK)); \
                 listen(S,1); socket(C,AF_INET,SOCK_STREAM,0); connect(C,getsockname(S)) and print \"connected\\n\"'",
                "connected",
            ),
        code(1, "reach another port than those of `localPorts`", |world| {
            let allowed = TcpListener::bind("127.0.0.1:0").unwrap();
            let other = TcpListener::bind("127.0.0.1:0").unwrap();
            let ports = [&allowed, &other].map(|it| it.local_addr().unwrap().port());
            let [port, other] = ports;
            world.spec(&format!(r#"{{"network":false,"localPorts":[{port}]}}"#));
            let seen = ok(&world.inside(&dial("127.0.0.1", port)));
            assert!(seen.contains("connected"), "the allowed one: {seen}");
            let tried = world.inside(&dial("127.0.0.1", other));
            format!("{}{}", out(&tried), err(&tried))
        })
        .refused("Connection refused"),
        row(
            1,
            "see more than loopback with the network off",
            "tail -n +3 /proc/self/net/dev | cut -d: -f1 | tr -d ' ' | sed \"s/./SEC''RET &/; s/.*RET lo$/only lo/\"",
        )
        .refused("only lo")
        .control("unshare -Urn true && tail -n +3 /proc/self/net/dev", ":"),
    ]
}
