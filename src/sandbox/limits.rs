//! Bounds on processes, memory and file sizes (law 14).
