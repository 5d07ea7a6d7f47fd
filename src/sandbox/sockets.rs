//! The sockets and FIFOs of the host that the inside could still reach (law 6).
