//! What the inside left for the host to run, told when everything inside has ended (law 13).
