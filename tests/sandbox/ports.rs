//! `localPorts`: single ports of the host's loopback in a closed network, and nothing besides them.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::jail::{World, err, for_both, has, ok, out, refused, wait_for};

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// A server of the host that counts who came.
struct Server {
    port: u16,
    came: Arc<AtomicUsize>,
}

impl Server {
    fn new(address: IpAddr, serve: impl Fn(TcpStream) + Clone + Send + 'static) -> Self {
        Self::on(TcpListener::bind((address, 0)).unwrap(), serve)
    }

    fn on(listener: TcpListener, serve: impl Fn(TcpStream) + Clone + Send + 'static) -> Self {
        let port = listener.local_addr().unwrap().port();
        let came = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&came);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                count.fetch_add(1, Ordering::SeqCst);
                let serve = serve.clone();
                std::thread::spawn(move || serve(stream.unwrap()));
            }
        });
        Self { port, came }
    }

    fn greeting(address: IpAddr) -> Self {
        Self::new(address, greet)
    }

    fn came(&self) -> usize {
        self.came.load(Ordering::SeqCst)
    }
}

/// Whoever went away again got what it wanted.
fn greet(mut stream: TcpStream) {
    drop(stream.write_all(b"hello\n"));
}

/// A port where nobody listens.
fn nobody(address: IpAddr) -> u16 {
    TcpListener::bind((address, 0)).unwrap().local_addr().unwrap().port()
}

fn closed(world: &World, ports: &[u16]) {
    world.spec(&json!({"network": false, "localPorts": ports}).to_string());
}

/// A client in perl: the socket `S` is connected, then `then` is done.
fn client(address: &str, port: u16, then: &str) -> String {
    let (family, place) = if address.contains(':') {
        ("AF_INET6", format!("pack_sockaddr_in6({port},inet_pton(AF_INET6,\"{address}\"))"))
    } else {
        ("AF_INET", format!("sockaddr_in({port},inet_aton(\"{address}\"))"))
    };
    format!(
        "perl -MSocket=:all -e '$|=1; socket(S,{family},SOCK_STREAM,0) or die \"$!\\n\"; \
         connect(S,{place}) or die \"$!\\n\"; {then}'"
    )
}

const READ: &str = "$n=sysread(S,$b,99); defined $n or die \"$!\\n\"; print $n ? $b : \"end\\n\"";

#[test]
fn a_port_is_reached_at_both_addresses_wherever_its_server_listens() {
    for_both(|world| {
        for address in [V4, V6] {
            let server = Server::greeting(address);
            closed(world, &[server.port, server.port]);
            for inside in ["127.0.0.1", "::1"] {
                assert_eq!(ok(&world.inside(&client(inside, server.port, READ))), "hello\n");
            }
            assert_eq!(server.came(), 2, "{address}");
            // The control: without the key there is nothing, and nobody came.
            closed(world, &[]);
            for inside in ["127.0.0.1", "::1"] {
                let tried = world.inside(&client(inside, server.port, READ));
                assert_eq!(err(&tried), "Connection refused\n");
            }
            assert_eq!(server.came(), 2, "{address}");
        }
    });
}

#[test]
fn nothing_but_the_port_on_the_loopback_is_reached() {
    let any = TcpListener::bind(("0.0.0.0", 0)).unwrap();
    let other = Server::on(any, greet);
    let second = Server::greeting(Ipv4Addr::new(127, 0, 0, 2).into());
    let name = format!("kli-{}", std::process::id());
    let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
    let _service = UnixListener::bind_addr(&abstract_name).unwrap();
    for_both(|world| {
        let server = Server::greeting(V4);
        closed(world, &[server.port]);
        let rows = [
            ("127.0.0.1", other.port, "Connection refused"),
            ("::1", other.port, "Connection refused"),
            ("::ffff:127.0.0.1", other.port, "Connection refused"),
            ("0.0.0.0", other.port, "Connection refused"),
            ("127.0.0.2", second.port, "Connection refused"),
            // Listening is bound to the two addresses: no other one of the loopback leads out.
            ("127.0.0.2", server.port, "Connection refused"),
            ("127.255.255.254", server.port, "Connection refused"),
            ("192.0.2.1", server.port, "Network is unreachable"),
            ("2001:db8::1", server.port, "unreachable"),
            ("10.0.0.1", other.port, "Network is unreachable"),
        ];
        let before = (other.came(), second.came());
        for (address, port, because) in rows {
            let tried = world.inside(&client(address, port, READ));
            assert_eq!(out(&tried), "", "{address}");
            has(&err(&tried), &[because]);
        }
        assert_eq!((other.came(), second.came(), server.came()), (before.0, before.1, 0));
        let datagram = format!(
            "perl -MSocket -e 'socket(S,AF_INET,SOCK_DGRAM,0); \
             send(S,\"x\",0,sockaddr_in({},inet_aton(\"127.0.0.1\"))); \
             send(S,\"x\",0) or print \"$!\\n\"'",
            server.port
        );
        assert_ne!(ok(&world.inside(&datagram)), "", "datagrams lead nowhere");
        let abstract_socket = format!(
            "perl -MSocket -e 'socket(S,AF_UNIX,SOCK_STREAM,0); \
             connect(S,sockaddr_un(\"\\0{name}\")) or die \"$!\\n\"; print \"connected\\n\"'"
        );
        assert_eq!(err(&world.inside(&abstract_socket)), "Connection refused\n");
        // The controls: outside every one of them answers, and the port does inside.
        assert_eq!(ok(&world.plainly(&abstract_socket)), "connected\n");
        assert_eq!(ok(&world.plainly(&client("127.0.0.1", other.port, READ))), "hello\n");
        assert_eq!(ok(&world.plainly(&client("127.0.0.2", second.port, READ))), "hello\n");
        assert_eq!(ok(&world.inside(&client("127.0.0.1", server.port, READ))), "hello\n");
        assert_eq!(server.came(), 1);
    });
}

#[test]
fn an_absent_server_is_told_at_once() {
    for_both(|world| {
        let port = nobody(V4);
        // Below 1024 the inside itself could not listen, the launcher can.
        closed(world, &[port, 1]);
        let start = Instant::now();
        for port in [port, 1] {
            let tried = world.inside(&client("127.0.0.1", port, READ));
            assert_eq!(out(&tried), "");
            assert_eq!(err(&tried), "Connection reset by peer\n");
        }
        assert!(start.elapsed() < Duration::from_secs(5));
        // The control: what is not listed is refused by the jail's own kernel side.
        assert_eq!(err(&world.inside(&client("127.0.0.1", 2, READ))), "Connection refused\n");
    });
}

#[test]
fn each_side_can_end_before_the_other() {
    let server = Server::new(V4, |mut stream| {
        // Answers only after the end of what was sent.
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        stream.write_all(text.to_uppercase().as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
    });
    let first = Server::new(V4, |mut stream| {
        stream.write_all(b"greeting\n").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        // Still hears what is sent after its own end.
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert_eq!(text, "late\n");
    });
    for_both(|world| {
        closed(world, &[server.port, first.port]);
        let then = "syswrite(S,\"quiet\\n\"); shutdown(S,1); print <S>; print \"end\\n\"";
        assert_eq!(ok(&world.inside(&client("127.0.0.1", server.port, then))), "QUIET\nend\n");
        let then = "print <S>; syswrite(S,\"late\\n\") or die; close(S); print \"end\\n\"";
        assert_eq!(ok(&world.inside(&client("::1", first.port, then))), "greeting\nend\n");
    });
    assert_eq!((server.came(), first.came()), (2, 2));
}

#[test]
fn a_reset_arrives_as_a_reset() {
    let server = Server::new(V4, |mut stream| {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    });
    for_both(|world| {
        closed(world, &[server.port]);
        let then = format!("syswrite(S,\"x\"); {READ}");
        let script = client("127.0.0.1", server.port, &then);
        assert_eq!(err(&world.inside(&script)), "Connection reset by peer\n");
        assert_eq!(err(&world.plainly(&script)), "Connection reset by peer\n", "control");
    });
}

/// Bytes whose place in the stream can be told.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect()
}

#[test]
fn a_hundred_megabytes_pass_unchanged_in_both_directions() {
    const PIECE: usize = 251 * 4000;
    const PIECES: usize = 100;
    let piece = Arc::new(pattern(PIECE));
    let sent = Arc::clone(&piece);
    let sends = Server::new(V4, move |mut stream| {
        for _ in 0..PIECES {
            stream.write_all(&sent).unwrap();
        }
    });
    let takes = Server::new(V4, move |mut stream| {
        let mut got = vec![0; PIECE];
        for _ in 0..PIECES {
            stream.read_exact(&mut got).unwrap();
            assert!(got == *piece);
        }
        assert_eq!(stream.read(&mut got).unwrap(), 0);
        stream.write_all(b"whole\n").unwrap();
    });
    for_both(|world| {
        closed(world, &[sends.port, takes.port]);
        let make = format!("$p=join(\"\",map{{chr}}0..250) x {}; ", PIECE / 251);
        let receive = format!(
            "{make} for(1..{PIECES}){{ $b=\"\"; while(length $b < {PIECE}){{ \
             sysread(S,$b,{PIECE}-length $b,length $b) or die \"short\\n\" }} $b eq $p or die \"changed\\n\" }} \
             sysread(S,$b,1)==0 or die \"more\\n\"; print \"whole\\n\""
        );
        assert_eq!(ok(&world.inside(&client("127.0.0.1", sends.port, &receive))), "whole\n");
        let sending = format!(
            "{make} for(1..{PIECES}){{ $o=0; while($o < {PIECE}){{ \
             $o += syswrite(S,$p,{PIECE}-$o,$o) or die \"$!\\n\" }} }} shutdown(S,1); print <S>"
        );
        assert_eq!(ok(&world.inside(&client("::1", takes.port, &sending))), "whole\n");
    });
}

#[test]
fn a_slow_reader_holds_its_sender_and_nobody_else() {
    const WHOLE: u64 = 64 << 20;
    let written = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&written);
    let sends = Server::new(V4, move |mut stream| {
        let piece = vec![b'x'; 1 << 16];
        while count.load(Ordering::SeqCst) < WHOLE {
            stream.write_all(&piece).unwrap();
            count.fetch_add(1 << 16, Ordering::SeqCst);
        }
    });
    let server = Server::greeting(V4);
    for_both(|world| {
        written.store(0, Ordering::SeqCst);
        closed(world, &[sends.port, server.port]);
        let slow = client(
            "127.0.0.1",
            sends.port,
            "sysread(S,$b,1); open(U,\">up\"); close U; \
             select(undef,undef,undef,0.02) until -e \"go\"; \
             $n=1; while($r=sysread(S,$b,1<<16)){$n+=$r} print \"$n\\n\"",
        );
        let quick = client("127.0.0.1", server.port, READ);
        let script = format!(
            "{slow} & until test -e up; do sleep 0.02; done; {quick}; {quick}; touch quick; wait"
        );
        let child = world
            .run_with(&[], &["sh", "-c", &script])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let launcher = wait_for_launcher(world);
        let quick = world.workspace.join("quick");
        assert!(wait_for(Duration::from_secs(10), || quick.exists()), "others are served");
        std::thread::sleep(Duration::from_millis(200));
        let held = written.load(Ordering::SeqCst);
        assert!(held < WHOLE / 2, "{held} bytes were taken from the server");
        // Nothing turns in circles meanwhile: ticks of a hundredth of a second (proc(5)).
        let before = ticks(launcher);
        std::thread::sleep(Duration::from_millis(500));
        assert!(ticks(launcher) - before < 10);
        world.file("home/project/go", "");
        let output = child.wait_with_output().unwrap();
        assert_eq!(ok(&output), format!("hello\nhello\n{WHOLE}\n"));
        for left in ["up", "go", "quick"] {
            std::fs::remove_file(world.workspace.join(left)).unwrap();
        }
    });
}

fn wait_for_launcher(world: &World) -> i32 {
    let token = world.spec_file().display().to_string();
    let mut found = None;
    wait_for(Duration::from_secs(10), || {
        found = crate::jail::processes(&token).into_iter().find(|pid| {
            std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == world.launcher())
        });
        found.is_some()
    });
    found.unwrap()
}

/// The processor time of a process, from proc(5).
fn ticks(pid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = text.rsplit(')').next().unwrap();
    fields.split_whitespace().skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum()
}

#[test]
fn more_connections_than_are_handed_on_at_once_wait_for_their_turn() {
    let server = Server::new(V4, |mut stream| {
        let mut byte = [0];
        while stream.read(&mut byte).is_ok_and(|read| read == 1) {
            drop(stream.write_all(&byte));
        }
    });
    for_both(|world| {
        let before = server.came();
        closed(world, &[server.port]);
        let script = format!(
            "perl -MSocket -e 'for $i (0..299) {{ socket($s[$i],AF_INET,SOCK_STREAM,0) or die \"$!\\n\"; \
             connect($s[$i],sockaddr_in({},inet_aton(\"127.0.0.1\"))) or die \"$!\\n\"; }} \
             for $i (0..299) {{ syswrite($s[$i],\"x\")==1 or die \"$!\\n\"; \
             sysread($s[$i],$b,1)==1 or die \"$i: $!\\n\"; close($s[$i]); }} print \"all\\n\"'",
            server.port
        );
        assert_eq!(ok(&world.inside(&script)), "all\n");
        assert_eq!(server.came() - before, 300);
    });
}

#[test]
fn a_listed_port_is_taken_inside_and_the_others_are_free() {
    for_both(|world| {
        let port = nobody(V4);
        let free = nobody(V4);
        closed(world, &[port]);
        let bind = |port: u16| {
            format!(
                "perl -MSocket -e 'socket(S,AF_INET,SOCK_STREAM,0); \
                 bind(S,sockaddr_in({port},inet_aton(\"127.0.0.1\"))) or die \"$!\\n\"; print \"own\\n\"'"
            )
        };
        assert_eq!(err(&world.inside(&bind(port))), "Address already in use\n");
        assert_eq!(ok(&world.inside(&bind(free))), "own\n");
    });
}

#[test]
fn ports_are_told_and_too_many_are_refused() {
    for_both(|world| {
        let explain = |world: &World| {
            ok(&world
                .command(world.launcher())
                .arg("explain")
                .arg(world.spec_file())
                .output()
                .unwrap())
        };
        let server = Server::greeting(V4);
        world.spec(&json!({"localPorts": [server.port]}).to_string());
        has(&explain(world), &["`localPorts` has no effect while `network` is true"]);
        // It is the host's network, after all.
        assert_eq!(ok(&world.inside(&client("127.0.0.1", server.port, READ))), "hello\n");
        closed(world, &[server.port]);
        has(&explain(world), &[&format!("TCP port {} of the host's loopback", server.port)]);
        closed(world, &(1..=65).collect::<Vec<u16>>());
        let text = refused(&world.inside("touch effect"));
        has(&text, &["`localPorts`: 65 ports", "name fewer"]);
        assert!(!world.workspace.join("effect").exists());
        closed(world, &(1..=64).collect::<Vec<u16>>());
        ok(&world.inside("touch effect"));
        assert!(world.workspace.join("effect").exists());
    });
}

#[test]
fn too_few_descriptors_for_the_relay_are_said_and_nothing_starts() {
    for_both(|world| {
        closed(world, &[nobody(V4)]);
        let start = |limit: &str| {
            world.plainly(&format!(
                "ulimit -n {limit} && '{}' run --spec '{}' -- touch effect",
                world.launcher().display(),
                world.spec_file().display()
            ))
        };
        has(&refused(&start("60")), &["`localPorts`", "raise the limit"]);
        assert!(!world.workspace.join("effect").exists());
        ok(&start("256"));
        assert!(world.workspace.join("effect").exists());
    });
}
