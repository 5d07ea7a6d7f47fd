//! The system calls that the inside may not make, by name, as a filter for the kernel (law 7). Pure.
