//! Whole runs in a jail without a network: a model of this machine is reached through `localPorts` or
//! `allowSockets`, and nothing else is.

use std::{
    fs,
    net::TcpListener,
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            fs::PermissionsExt as _,
            net::{SocketAddr, UnixListener},
        },
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    fake_model::{Answer, FakeModel, Wire, text, tool_use},
    harness::Ran,
    jail::{World, for_both},
};

/// kli where the world's user can start it.
fn program(world: &World) -> PathBuf {
    let built = env!("CARGO_BIN_EXE_kli");
    let place = world.root.join("kli");
    if fs::hard_link(built, &place).is_err() {
        fs::copy(built, &place).unwrap();
    }
    place
}

/// Two turns with tools, and the last word. The command leaves in `tried` what it reached.
fn whole_task(wire: Wire, command: &str) -> Vec<Answer> {
    let edit = json!({"path": "a.txt", "edits": [{"old": "grün", "new": "blau 👍"}]}).to_string();
    [
        wire.answer([text("Let me look. "), tool_use("c1", "read", "{\"path\": \"a.txt\"}")]),
        wire.answer([tool_use("c2", "edit", &edit)]),
        wire.answer([tool_use("c3", "bash", &json!({ "command": command }).to_string())]),
        wire.answer([text("Fertig: "), text("漢字 ✓")]),
    ]
    .map(Answer::new)
    .into()
}

/// Runs the task in a jail of this specification.
fn jailed(world: &World, spec: &Value, wire: Wire, address: &str) -> Ran {
    world.spec(&spec.to_string());
    world.file("home/project/a.txt", "eins\ngrün\n");
    let kli = world.root.join("kli");
    let model = format!("{}/m", wire.provider());
    let words =
        [kli.to_str().unwrap(), "-p", "Make it blue", "--model", &model, "--output-format", "json"];
    let mut command = world.run_with(&[], &words);
    Ran::from(command.env(wire.address_variable(), address).output().unwrap())
}

#[track_caller]
fn is_done(world: &World, ran: &Ran, fake: &FakeModel) {
    ran.exits(0);
    let result = ran.json();
    assert_eq!((&result["outcome"], &result["turns"]), (&json!("ok"), &json!(4)));
    assert_eq!(result["text"], "Fertig: 漢字 ✓");
    let edited = fs::read_to_string(world.workspace.join("a.txt")).unwrap();
    assert_eq!(edited, "eins\nblau 👍\n");
    assert_eq!((fake.left(), fake.requests().len()), (0, 4), "nothing was asked twice");
}

/// Ends at once, with the sentence, and nobody was asked.
#[track_caller]
fn is_refused(ran: &Ran, since: Instant, fake: &FakeModel) {
    ran.exits(4)
        .says("the sandbox has no network: set `network` to true")
        .says("`localPorts`")
        .says("`allowSockets` with a `unix:` address");
    assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
    assert_eq!(ran.json()["error"]["kind"], "network");
    assert!(fake.requests().is_empty() && !ran.err.contains("retry"), "{ran:?}");
}

/// A command that tries to reach services of the host and notes what came of it.
struct Others {
    _services: (TcpListener, UnixListener, UnixListener),
    command: String,
}

impl Others {
    fn new(world: &World) -> Self {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = tcp.local_addr().unwrap().port();
        let name = format!("kli-closed-{}-{:?}", std::process::id(), world.who);
        let hidden =
            UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let path = world.home.join("other.sock");
        let unix = UnixListener::bind(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        let path = path.display();
        let command = format!(
            "perl -MSocket -e 'sub t {{ my($f,$a)=@_; socket(S,$f,SOCK_STREAM,0); \
             print connect(S,$a) ? \"reached\" : \"no\", \"\\n\" }} \
             t(AF_INET,pack_sockaddr_in({port},inet_aton(\"127.0.0.1\"))); \
             t(AF_INET,pack_sockaddr_in(443,inet_aton(\"192.0.2.1\"))); \
             t(AF_UNIX,pack_sockaddr_un(\"\\0{name}\")); t(AF_UNIX,pack_sockaddr_un(\"{path}\"));' > tried"
        );
        Self { _services: (tcp, hidden, unix), command }
    }

    #[track_caller]
    fn were_not_reached(&self, world: &World) {
        let tried = world.workspace.join("tried");
        assert_eq!(fs::read_to_string(&tried).unwrap(), "no\nno\nno\nno\n");
        // The control: outside all are reached but the address that is nobody's.
        fs::remove_file(&tried).unwrap();
        let outside =
            self.command.replace("t(AF_INET,pack_sockaddr_in(443,inet_aton(\"192.0.2.1\")));", "");
        assert!(world.plainly(&outside).status.success());
        assert_eq!(fs::read_to_string(&tried).unwrap(), "reached\nreached\nreached\n");
        fs::remove_file(&tried).unwrap();
    }
}

#[test]
fn a_model_on_a_port_of_the_host_answers_through_local_ports_alone() {
    for_both(|world| {
        program(world);
        let others = Others::new(world);
        for wire in Wire::BARE {
            let fake = FakeModel::strict(whole_task(wire, &others.command));
            let spec = json!({"network": false, "localPorts": [fake.address().port()]});
            let ran = jailed(world, &spec, wire, &fake.url(wire));
            is_done(world, &ran, &fake);
            others.were_not_reached(world);

            // The control: the same without the key.
            let fake = FakeModel::strict(whole_task(wire, "true"));
            let start = Instant::now();
            let ran = jailed(world, &json!({"network": false}), wire, &fake.url(wire));
            is_refused(&ran, start, &fake);
        }
    });
}

#[test]
fn a_listed_port_without_its_server_is_said_at_once() {
    for_both(|world| {
        program(world);
        let fake = FakeModel::strict(Vec::new());
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let start = Instant::now();
        let spec = json!({"network": false, "localPorts": [port]});
        let address = format!("http://127.0.0.1:{port}/v1");
        is_refused(&jailed(world, &spec, Wire::Chat, &address), start, &fake);
    });
}

/// A model at a socket that everybody may connect to.
fn at_socket(path: &Path, script: Vec<Answer>) -> FakeModel {
    let fake = FakeModel::at_socket(path, script);
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    fake
}

/// Ends at once, and says what to do.
#[track_caller]
fn socket_is_refused(ran: &Ran, since: Instant, address: &str) {
    ran.exits(4)
        .says(&format!("`{address}` cannot be reached"))
        .says("the sandbox shows only sockets that `allowSockets` names: add it");
    assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
    assert_eq!(ran.json()["error"]["kind"], "network");
    assert!(!ran.err.contains("retry"), "{ran:?}");
}

#[test]
fn a_socket_that_is_not_there_is_said_at_once_where_there_is_no_network() {
    for_both(|world| {
        program(world);
        for (place, allowed) in
            [("home/gone.sock", "~/gone.sock"), ("home/project/gone.sock", "./gone.sock")]
        {
            let address = format!("unix:{}", world.root.join(place).display());
            for spec in
                [json!({"network": false}), json!({"network": false, "allowSockets": [allowed]})]
            {
                let start = Instant::now();
                socket_is_refused(&jailed(world, &spec, Wire::Chat, &address), start, &address);
            }
            // Control: with the network on it is tried again, as nothing says that it cannot come to be.
            let ran = jailed(world, &json!({}), Wire::Chat, &address);
            ran.exits(4).says("retry 1 of 4");
        }
    });
}

#[test]
fn a_model_that_is_busy_is_asked_again_without_a_network_too() {
    for_both(|world| {
        program(world);
        let fake = FakeModel::strict(vec![
            Wire::Chat.status(503),
            Answer::new(Wire::Chat.answer([text("done")])),
        ]);
        let spec = json!({"network": false, "localPorts": [fake.address().port()]});
        let ran = jailed(world, &spec, Wire::Chat, &fake.url(Wire::Chat));
        ran.exits(0).says("retry 1 of 4");
        assert_eq!(fake.requests().len(), 2);
    });
}

#[test]
fn a_model_on_a_socket_of_the_host_answers_where_it_is_allowed_alone() {
    for_both(|world| {
        program(world);
        let others = Others::new(world);
        for (wire, place, allowed) in [
            (Wire::Chat, "home/model.sock", "~/model.sock"),
            (Wire::Messages, "home/project/model.sock", "./model.sock"),
        ] {
            let socket = world.root.join(place);
            let fake = at_socket(&socket, whole_task(wire, &others.command));
            let address = fake.base_url();
            // The control first, which asks nobody: the socket is there and not allowed.
            let start = Instant::now();
            let ran = jailed(world, &json!({"network": false}), wire, &address);
            socket_is_refused(&ran, start, &address);
            assert_eq!(fake.requests().len(), 0);
            let spec = json!({"network": false, "allowSockets": [allowed]});
            let ran = jailed(world, &spec, wire, &address);
            is_done(world, &ran, &fake);
            others.were_not_reached(world);
        }
    });
}
