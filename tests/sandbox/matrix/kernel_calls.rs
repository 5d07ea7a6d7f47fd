//! Law 7, call by call: a call that the filter refuses answers EPERM (or ENOSYS) before the kernel
//! looks at its arguments; where nothing filters, the same call gets as far as its arguments. The
//! control has no capability either, as the inside has none, so that it is the filter that refuses; but
//! for the calls that the kernel itself refuses then, where it has them all.

use super::{Row, row};

/// The name, its number, arguments that the kernel would refuse by another error.
const CALLS: [(&str, i64, &str); 28] = [
    ("mount", libc::SYS_mount, "1, 1, 1, 0, 0"),
    ("umount2", libc::SYS_umount2, "1, 0"),
    ("pivot_root", libc::SYS_pivot_root, "1, 1"),
    ("open_tree", libc::SYS_open_tree, "-1, 1, 0"),
    ("move_mount", libc::SYS_move_mount, "-1, 1, -1, 1, 0"),
    ("fsopen", libc::SYS_fsopen, "1, 0"),
    ("fsmount", libc::SYS_fsmount, "-1, 0, 0"),
    ("fspick", libc::SYS_fspick, "-1, 1, 0"),
    ("mount_setattr", libc::SYS_mount_setattr, "-1, 1, 0, 1, 32"),
    ("setns", libc::SYS_setns, "-1, 0"),
    ("unshare", libc::SYS_unshare, "0x10000000"),
    ("add_key", libc::SYS_add_key, "1, 1, 0, 0, 0"),
    ("request_key", libc::SYS_request_key, "1, 1, 0, 0"),
    ("keyctl", libc::SYS_keyctl, "0, -3, 0"),
    ("bpf", libc::SYS_bpf, "0, 1, 1000000"),
    ("perf_event_open", libc::SYS_perf_event_open, "1, 0, -1, -1, 0"),
    ("userfaultfd", libc::SYS_userfaultfd, "0x7fffffff"),
    ("io_uring_setup", libc::SYS_io_uring_setup, "0, 0"),
    ("io_uring_enter", libc::SYS_io_uring_enter, "-1, 0, 0, 0, 0, 0"),
    ("io_uring_register", libc::SYS_io_uring_register, "-1, 0, 0, 0"),
    ("name_to_handle_at", libc::SYS_name_to_handle_at, "-1, 1, 1, 1, 0"),
    ("statmount", 457, "1, 1, 0, 0"),
    ("listmount", 458, "1, 1, 0, 0"),
    ("quotactl", libc::SYS_quotactl, "0x7fffffff, 1, 0, 0"),
    ("socket of family VSOCK", libc::SYS_socket, "40, 1, 0"),
    ("socket of family PACKET", libc::SYS_socket, "17, 3, 0"),
    ("socket of family ALG", libc::SYS_socket, "38, 5, 0"),
    ("clone3", libc::SYS_clone3, "1, 0"),
];

/// Those that the kernel refuses without a capability before it looks at their arguments.
const PRIVILEGED: [&str; 7] = [
    "pivot_root",
    "move_mount",
    "fsopen",
    "fsmount",
    "fspick",
    "mount_setattr",
    "socket of family PACKET",
];

pub(super) fn rows() -> Vec<Row> {
    CALLS
        .into_iter()
        .map(|(name, number, arguments)| {
            let call = format!(
                "perl -e '$! = 0; my $r = syscall({number}, {arguments}); print $r < 0 ? \"$!\\n\" : \"SEC\" . \"RET went\\n\"'"
            );
            let attempt: &'static str = Box::leak(format!("the call `{name}`").into_boxed_str());
            let without = if PRIVILEGED.contains(&name) {
                ""
            } else {
                "setpriv --inh-caps=-all --bounding-set=-all "
            };
            let control = format!("unshare -Urmn {without}{}", call.replace(r#"SEC\" . \"RET"#, ""));
            let control: &'static str = Box::leak(control.into_boxed_str());
            row(7, attempt, call)
                .refused("Operation not permitted|Function not implemented|Address family not supported|Permission denied")
                .control(control, "Bad|Invalid|not supported|went|No such|descriptor|Required|too|Key|Protocol")
        })
        .collect()
}
