//! Landlock scopes: abstract sockets and signals stay inside (law 6), where the kernel has them.
