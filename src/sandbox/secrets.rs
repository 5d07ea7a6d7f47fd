//! Keys that the launcher reads and hands to kli through a pipe, and to nothing else (law 15).
