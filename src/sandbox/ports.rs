//! Single TCP ports of the host's loopback inside a closed network (`localPorts`): the launcher
//! listens inside and connects outside, to the same port of its own loopback and to nothing else.
//!
//! The inside chooses neither address nor port: which port a connection leads to is the place of
//! the listener that took it. What goes through is in `relay`.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};
use rustix::process::{Resource, getrlimit};

use super::plan::Plan;
use super::supervise::Companion;
use super::sys;
use relay::Relay;

mod relay;

/// The most connections that are open at once; what comes beyond waits in the kernel's queue.
const CONNECTIONS: usize = 256;

/// Descriptors that the launcher keeps for everything else.
const SPARE: usize = 64;

/// The relay of a plan's ports.
#[derive(Debug)]
pub(super) struct Ports {
    ports: Vec<u16>,
    relay: Option<Relay>,
}

impl Ports {
    /// Prepares the relay; `None` when the plan has no port.
    pub(super) fn new(plan: &Plan) -> Option<Self> {
        (!plan.ports.is_empty()).then(|| Self { ports: plan.ports.clone(), relay: None })
    }
}

impl Companion for Ports {
    fn begin(&mut self, jail: BorrowedFd<'_>) -> Result<(), String> {
        let listeners = listen_inside(jail, &self.ports)?;
        let soft = getrlimit(Resource::Nofile)
            .current
            .map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        // Two descriptors a connection.
        let room = soft.saturating_sub(SPARE + listeners.len()) / 2;
        if room == 0 {
            return Err(format!(
                "`localPorts`: {soft} open files are too few for the relay: raise the limit (`ulimit -n`)"
            ));
        }
        let relay = Relay::new(listeners, room.min(CONNECTIONS));
        self.relay = Some(relay.map_err(|error| format!("`localPorts`: no relay: {error}"))?);
        Ok(())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.relay.as_ref().map(Relay::descriptor)
    }

    fn attend(&mut self) -> Result<(), String> {
        let Some(relay) = &mut self.relay else { return Ok(()) };
        relay.attend().map_err(|error| format!("`localPorts`: the relay cannot go on: {error}"))
    }
}

/// Both addresses of the loopback with this port.
pub(super) fn loopback(port: u16) -> [SocketAddr; 2] {
    [(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()]
}

/// A socket that never blocks, for one of these addresses.
fn socket(address: &SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))
}

/// Listens in the network namespace of `jail`. Each listener has its port with it.
fn listen_inside(jail: BorrowedFd<'_>, ports: &[u16]) -> Result<Vec<(OwnedFd, u16)>, String> {
    let far =
        |error: io::Error| format!("`localPorts`: the jail's network is out of reach: {error}");
    let mut listeners = Vec::new();
    for address in ports.iter().flat_map(|port| loopback(*port)) {
        // Where this machine has no IPv6 the jail has none.
        let socket = match socket(&address) {
            Err(Errno::AFNOSUPPORT) if address.is_ipv6() => continue,
            made => made.map_err(|error| far(error.into()))?,
        };
        listeners.push((socket, address));
    }
    let family =
        |address: &SocketAddr| if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let places: Vec<_> =
        listeners.iter().map(|(socket, address)| (socket.as_fd(), family(address))).collect();
    sys::network::sockets_in(jail, &places).map_err(far)?;
    let mut listening = Vec::new();
    for (socket, address) in listeners {
        match listen(&socket, &address) {
            Ok(()) => listening.push((socket, address.port())),
            Err(Errno::ADDRNOTAVAIL) if address.is_ipv6() => {}
            Err(error) => {
                return Err(format!("`localPorts`: no listening at `{address}` inside: {error}"));
            }
        }
    }
    Ok(listening)
}

fn listen(socket: &OwnedFd, address: &SocketAddr) -> Result<(), Errno> {
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(socket, true)?;
    }
    rustix::net::bind(socket, address)?;
    rustix::net::listen(socket, i32::try_from(CONNECTIONS).unwrap_or(i32::MAX))
}
