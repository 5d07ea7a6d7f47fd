//! Law 16: nothing that the inside could write decides what the next start mounts, trusts or runs.
