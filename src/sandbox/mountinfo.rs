//! The table of mounts of this process (proc_pid_mountinfo(5)): which other names a path has on this machine. Pure.
