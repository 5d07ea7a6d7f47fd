//! Hands bytes on between connections inside and the host's loopback, in the launcher's own loop.
//!
//! Bytes stay in the kernel until the other side takes them: each piece is looked at, sent, and only
//! then taken. So nothing is stored for a slow reader, the sender feels the back pressure, and an
//! end is handed on once everything before it is.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, SocketFlags, sockopt};

use super::{loopback, socket};

/// The most bytes that are handed on in one piece.
const PIECE: usize = 64 << 10;

/// The most pieces in one go, so that one connection does not hold up signals and the others.
const PIECES: usize = 16;

/// How many events are taken at once.
const EVENTS: usize = 64;

/// Listeners, connections, and what tells that one of them is ready.
#[derive(Debug)]
pub(super) struct Relay {
    epoll: OwnedFd,
    listeners: Vec<(OwnedFd, u16)>,
    connections: Vec<Option<Connection>>,
    open: usize,
    limit: usize,
    /// Whether the listeners wait for a connection to end.
    full: bool,
    buffer: Vec<u8>,
}

/// Who is ready, as the number that the kernel keeps for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ready {
    Listener(usize),
    Connection(usize),
}

impl Ready {
    const CONNECTION: u64 = 1 << 32;

    fn data(self) -> epoll::EventData {
        let wide = |index: usize| u64::try_from(index).unwrap_or(u64::MAX);
        epoll::EventData::new_u64(match self {
            Self::Listener(index) => wide(index),
            Self::Connection(index) => Self::CONNECTION | wide(index),
        })
    }

    fn of(data: u64) -> Self {
        let index = usize::try_from(data & !Self::CONNECTION).unwrap_or(usize::MAX);
        if data & Self::CONNECTION == 0 { Self::Listener(index) } else { Self::Connection(index) }
    }
}

/// One direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    /// Waits for its sender.
    Reads,
    /// Waits for its receiver.
    Blocked,
    /// The sender's end was handed on.
    Ended,
}

#[derive(Debug)]
struct Connection {
    inside: OwnedFd,
    outside: OwnedFd,
    /// Set until `outside` is connected: the addresses that are left to be tried.
    connecting: Option<Vec<SocketAddr>>,
    up: Flow,
    down: Flow,
}

impl Relay {
    /// A relay with at most `limit` connections at once.
    pub(super) fn new(listeners: Vec<(OwnedFd, u16)>, limit: usize) -> io::Result<Self> {
        let relay = Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            listeners,
            connections: Vec::new(),
            open: 0,
            limit,
            full: false,
            buffer: vec![0; PIECE],
        };
        for (index, (listener, _)) in relay.listeners.iter().enumerate() {
            let data = Ready::Listener(index).data();
            epoll::add(&relay.epoll, listener, data, epoll::EventFlags::IN | ONCE)?;
        }
        Ok(relay)
    }

    /// Readable while something is ready.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Does what can be done now. Never blocks.
    pub(super) fn attend(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS);
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&now)) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        for event in events {
            match Ready::of(event.data.u64()) {
                Ready::Listener(index) => self.accept(index)?,
                Ready::Connection(index) => self.hand_on(index)?,
            }
        }
        if self.full && self.open < self.limit {
            self.full = false;
            for index in 0..self.listeners.len() {
                self.listen(index)?;
            }
        }
        Ok(())
    }

    /// Asks for the next connection of a listener.
    fn listen(&self, index: usize) -> io::Result<()> {
        let Some((listener, _)) = self.listeners.get(index) else { return Ok(()) };
        let data = Ready::Listener(index).data();
        Ok(epoll::modify(&self.epoll, listener, data, epoll::EventFlags::IN | ONCE)?)
    }

    fn accept(&mut self, index: usize) -> io::Result<()> {
        loop {
            if self.open >= self.limit {
                self.full = true;
                return Ok(());
            }
            let Some((listener, port)) = self.listeners.get(index) else { return Ok(()) };
            let port = *port;
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            match rustix::net::accept_with(listener, flags) {
                Ok(inside) => self.open(inside, port)?,
                Err(Errno::AGAIN) => return self.listen(index),
                // One that was given up before it was taken.
                Err(Errno::CONNABORTED | Errno::INTR) => {}
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
                    if self.open > 0 =>
                {
                    self.full = true;
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Begins to connect a new connection to its port outside.
    fn open(&mut self, inside: OwnedFd, port: u16) -> io::Result<()> {
        // Answers in small pieces come as they are sent. Without it they only come later.
        let _slower = sockopt::set_tcp_nodelay(&inside, true);
        let mut rest = loopback(port).to_vec();
        // The last one is tried first: the one that was asked for inside.
        if rustix::net::getsockname(&inside)
            .is_ok_and(|own| own.address_family() == rustix::net::AddressFamily::INET)
        {
            rest.reverse();
        }
        let Some(outside) = connect(&mut rest) else {
            reset(&inside);
            return Ok(());
        };
        let free = self.connections.iter().position(Option::is_none);
        let index = free.unwrap_or(self.connections.len());
        if free.is_none() {
            self.connections.push(None);
        }
        let connection = Connection {
            inside,
            outside,
            connecting: Some(rest),
            up: Flow::Reads,
            down: Flow::Reads,
        };
        let data = Ready::Connection(index).data();
        epoll::add(&self.epoll, &connection.inside, data, ONCE)?;
        epoll::add(&self.epoll, &connection.outside, data, epoll::EventFlags::OUT | ONCE)?;
        if let Some(slot) = self.connections.get_mut(index) {
            *slot = Some(connection);
            self.open += 1;
        }
        Ok(())
    }

    /// Hands on what one connection has, and asks for what it waits for.
    fn hand_on(&mut self, index: usize) -> io::Result<()> {
        let data = Ready::Connection(index).data();
        let Some(slot) = self.connections.get_mut(index) else { return Ok(()) };
        let Some(connection) = slot else { return Ok(()) };
        match connection.advance(&mut self.buffer) {
            Step::Goes => {}
            Step::Reconnected => {
                epoll::add(&self.epoll, &connection.outside, data, ONCE)?;
            }
            Step::Ended => {
                *slot = None;
                self.open -= 1;
                return Ok(());
            }
            Step::Broken => {
                reset(&connection.inside);
                reset(&connection.outside);
                *slot = None;
                self.open -= 1;
                return Ok(());
            }
        }
        let (inside, outside) = connection.wants();
        if !inside.is_empty() {
            epoll::modify(&self.epoll, &connection.inside, data, inside | ONCE)?;
        }
        if !outside.is_empty() {
            epoll::modify(&self.epoll, &connection.outside, data, outside | ONCE)?;
        }
        Ok(())
    }
}

/// Each event is told once and then asked for again, by what is wanted then: an end or an error, which
/// the kernel tells without being asked, keeps nothing busy while the other side is slow.
const ONCE: epoll::EventFlags = epoll::EventFlags::ONESHOT;

/// What became of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Goes,
    /// It has another socket outside.
    Reconnected,
    /// Both directions came to their end.
    Ended,
    /// One side is gone, or nobody answers outside.
    Broken,
}

impl Connection {
    fn advance(&mut self, buffer: &mut [u8]) -> Step {
        if let Some(rest) = &mut self.connecting {
            match connected(&self.outside) {
                Ok(false) => return Step::Goes,
                Ok(true) => self.connecting = None,
                Err(_) => {
                    let Some(next) = connect(rest) else { return Step::Broken };
                    self.outside = next;
                    return Step::Reconnected;
                }
            }
        }
        // What was answered before a reset still arrives.
        let down = pump(self.down, &self.outside, &self.inside, buffer);
        let up = pump(self.up, &self.inside, &self.outside, buffer);
        let (Ok(up), Ok(down)) = (up, down) else { return Step::Broken };
        (self.up, self.down) = (up, down);
        if up == Flow::Ended && down == Flow::Ended { Step::Ended } else { Step::Goes }
    }

    /// What is waited for inside and outside.
    fn wants(&self) -> (epoll::EventFlags, epoll::EventFlags) {
        if self.connecting.is_some() {
            return (epoll::EventFlags::empty(), epoll::EventFlags::OUT);
        }
        let wants = |from: Flow, to: Flow| {
            let mut wants = epoll::EventFlags::empty();
            wants.set(epoll::EventFlags::IN, from == Flow::Reads);
            wants.set(epoll::EventFlags::OUT, to == Flow::Blocked);
            wants
        };
        (wants(self.up, self.down), wants(self.down, self.up))
    }
}

/// Hands on what is there.
fn pump(flow: Flow, from: &OwnedFd, to: &OwnedFd, buffer: &mut [u8]) -> Result<Flow, Errno> {
    if flow == Flow::Ended {
        return Ok(flow);
    }
    for _ in 0..PIECES {
        let seen = match rustix::net::recv(from, &mut *buffer, RecvFlags::PEEK) {
            Ok((0, _)) => {
                return match rustix::net::shutdown(to, Shutdown::Write) {
                    Ok(()) | Err(Errno::NOTCONN) => Ok(Flow::Ended),
                    Err(error) => Err(error),
                };
            }
            Ok((seen, _)) => seen,
            Err(Errno::AGAIN) => return Ok(Flow::Reads),
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error),
        };
        let sent = match rustix::net::send(
            to,
            buffer.get(..seen).unwrap_or_default(),
            SendFlags::NOSIGNAL,
        ) {
            Ok(sent) => sent,
            Err(Errno::AGAIN) => return Ok(Flow::Blocked),
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error),
        };
        let mut left = sent;
        while left > 0 {
            // For TCP this throws away without a copy (tcp(7)).
            let taken = buffer.get_mut(..left).unwrap_or_default();
            match rustix::net::recv(from, taken, RecvFlags::TRUNC) {
                Ok((_, taken)) if taken > 0 => left = left.saturating_sub(taken),
                Err(Errno::INTR) => {}
                // What was seen is there until it is taken.
                Ok(_) => return Err(Errno::IO),
                Err(error) => return Err(error),
            }
        }
        if sent < seen {
            return Ok(Flow::Blocked);
        }
    }
    Ok(Flow::Reads)
}

/// Begins to connect to the last of the addresses that takes it, and removes those tried.
fn connect(addresses: &mut Vec<SocketAddr>) -> Option<OwnedFd> {
    while let Some(address) = addresses.pop() {
        let Ok(socket) = socket(&address) else { continue };
        let _slower = sockopt::set_tcp_nodelay(&socket, true);
        if let Ok(()) | Err(Errno::INPROGRESS) = rustix::net::connect(&socket, &address) {
            return Some(socket);
        }
    }
    None
}

/// Whether a socket that began to connect is connected now.
fn connected(socket: &OwnedFd) -> Result<bool, Errno> {
    sockopt::socket_error(socket)??;
    let peer = match rustix::net::getpeername(socket) {
        Ok(peer) => peer,
        Err(Errno::NOTCONN) => return Ok(false),
        Err(error) => return Err(error),
    };
    // Where nobody listens, TCP can connect a port of the ephemeral range to itself.
    if peer == Some(rustix::net::getsockname(socket)?) {
        return Err(Errno::CONNREFUSED);
    }
    Ok(true)
}

/// Lets the other end see a reset when the socket is closed next.
fn reset(socket: &OwnedFd) {
    // Otherwise it sees an end, which tells less.
    let _less = sockopt::set_socket_linger(socket, Some(Duration::ZERO));
}
