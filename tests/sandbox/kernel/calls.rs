//! The rows of the matrix of system calls. They are made by perl, which is in every Debian root and
//! can make any call by its number.

use libc::{EAFNOSUPPORT, ENOSYS, EPERM, EPROTONOSUPPORT};

/// Where a call must be answered otherwise than inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Control {
    /// By the same user without a jail.
    Plainly,
    /// By the same user, who is user 0 of an own user and mount namespace.
    Namespace,
    /// By the machine's user 0.
    Root,
    /// Nowhere: not every kernel was built with it.
    None,
}

/// One attempt.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub(super) name: &'static str,
    /// The call; `None` when the expression is whole.
    number: Option<i64>,
    /// Its arguments, as perl.
    arguments: &'static str,
    pub(super) refused: i32,
    pub(super) control: Control,
    /// A switch of the kernel that refuses it everywhere.
    switch: Option<&'static str>,
}

impl Row {
    /// The expression that makes the call.
    pub(super) fn perl(&self) -> String {
        match self.number {
            Some(number) => format!("syscall({number}, {})", self.arguments),
            None => self.arguments.to_owned(),
        }
    }

    /// Whether the kernel has it switched on.
    pub(super) fn is_open_here(&self) -> bool {
        let switch = self.switch.and_then(|path| std::fs::read_to_string(path).ok());
        switch.is_none_or(|text| text.trim() == "0")
    }

    /// Whether further user namespaces open it.
    pub(super) fn with_namespaces(&self) -> bool {
        self.control == Control::Namespace && self.refused == EPERM || self.name == "clone3"
    }
}

const fn row(
    name: &'static str,
    number: i64,
    arguments: &'static str,
    refused: i32,
    control: Control,
) -> Row {
    Row { name, number: Some(number), arguments, refused, control, switch: None }
}

const fn switched(row: Row, path: &'static str) -> Row {
    Row { switch: Some(path), ..row }
}

use Control::{Namespace, None as Nowhere, Plainly, Root};

/// `statmount`, `listmount` and `open_tree_attr` (`asm-generic/unistd.h`), which the C library's
/// headers do not have yet, and `fchmodat2`, which they have for some architectures.
const STATMOUNT: i64 = 457;
const LISTMOUNT: i64 = 458;
const OPEN_TREE_ATTR: i64 = 467;
const FCHMODAT2: i64 = 452;

/// Every attempt. In their arguments nothing would have an effect on the machine outside either.
#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    row("tiocsti", libc::SYS_ioctl, "0, 0x5412, b(\"x\")", EPERM, Plainly),
    row("tiocsti with dirt in the upper half", libc::SYS_ioctl, "0, 0x7fffffff00005412, b(\"x\")", EPERM, Plainly),
    row("tioclinux", libc::SYS_ioctl, "0, 0x541c, b(\"\\x02\")", EPERM, Plainly),
    row("tioclinux with dirt in the upper half", libc::SYS_ioctl, "0, 0x100000000 + 0x541c, b(\"\\x02\")", EPERM, Plainly),
    row("console strings", libc::SYS_ioctl, "0, 0x4b49, b(\"x\" x 600)", EPERM, Plainly),
    row("console keys", libc::SYS_ioctl, "0, 0x4b47, b(\"x\" x 8)", EPERM, Plainly),
    row("unshare user", libc::SYS_unshare, "0x10000000", EPERM, Namespace),
    row("unshare mount", libc::SYS_unshare, "0x20000", EPERM, Namespace),
    row("unshare network", libc::SYS_unshare, "0x40000000", EPERM, Namespace),
    row("unshare time", libc::SYS_unshare, "0x80", EPERM, Namespace),
    row("clone user", libc::SYS_clone, "0x10000011, 0, 0, 0, 0", EPERM, Namespace),
    row("clone processes", libc::SYS_clone, "0x20000011, 0, 0, 0, 0", EPERM, Namespace),
    row("clone3", libc::SYS_clone3, "0, 0", ENOSYS, Plainly),
    row("setns", libc::SYS_setns, "open_fd(\"/proc/self/ns/mnt\"), 0", EPERM, Namespace),
    row("mount", libc::SYS_mount, "b(\"none\"), b(\"/mnt\"), b(\"tmpfs\"), 0, 0", EPERM, Namespace),
    row("umount2", libc::SYS_umount2, "b(\"/mnt\"), 0x2", EPERM, Namespace),
    row("pivot_root", libc::SYS_pivot_root, "b(\"/nonexistent\"), b(\"/nonexistent\")", EPERM, Namespace),
    row("chroot", libc::SYS_chroot, "b(\"/\")", EPERM, Namespace),
    row("open_tree", libc::SYS_open_tree, "-100, b(\"/\"), 1", EPERM, Namespace),
    row("open_tree_attr", OPEN_TREE_ATTR, "-100, b(\"/\"), 0, 0, 0", EPERM, Namespace),
    row("move_mount", libc::SYS_move_mount, "-1, b(\"\"), -1, b(\"\"), 0", EPERM, Namespace),
    row("fsopen", libc::SYS_fsopen, "b(\"tmpfs\"), 0", EPERM, Namespace),
    row("fsconfig", libc::SYS_fsconfig, "-1, 99, 0, 0, 0", EPERM, Namespace),
    row("fsmount", libc::SYS_fsmount, "-1, 0, 0", EPERM, Namespace),
    row("fspick", libc::SYS_fspick, "-100, b(\"/nonexistent\"), 0", EPERM, Namespace),
    row("mount_setattr", libc::SYS_mount_setattr, "-1, b(\"\"), 0, 0, 0", EPERM, Namespace),
    row("statmount", STATMOUNT, "0, 0, 0, 0", ENOSYS, Nowhere),
    row("listmount", LISTMOUNT, "0, 0, 0, 0", ENOSYS, Nowhere),
    row("name_to_handle_at", libc::SYS_name_to_handle_at, "-100, b(\"/\"), 0, 0, 0", EPERM, Plainly),
    row("open_by_handle_at", libc::SYS_open_by_handle_at, "-1, 0, 0", EPERM, Root),
    row("keyctl", libc::SYS_keyctl, "0, -3, 0", EPERM, Plainly),
    row("add_key", libc::SYS_add_key, "b(\"user\"), b(\"kli-row\"), b(\"x\"), 1, -2", EPERM, Plainly),
    row("request_key", libc::SYS_request_key, "b(\"user\"), b(\"kli-nothing\"), 0, 0", EPERM, Plainly),
    row("bpf", libc::SYS_bpf, "0, 0, 0", EPERM, Root),
    row("perf_event_open", libc::SYS_perf_event_open, "0, 0, -1, -1, 0", EPERM, Plainly),
    row("userfaultfd", libc::SYS_userfaultfd, "1", EPERM, Plainly),
    switched(row("kexec_load", libc::SYS_kexec_load, "0, 0, 0, 8", EPERM, Root), "/proc/sys/kernel/kexec_load_disabled"),
    switched(row("kexec_file_load", libc::SYS_kexec_file_load, "-1, -1, 0, b(\"\"), 0x100", EPERM, Root), "/proc/sys/kernel/kexec_load_disabled"),
    switched(row("init_module", libc::SYS_init_module, "0, 0, b(\"\")", EPERM, Root), "/proc/sys/kernel/modules_disabled"),
    switched(row("finit_module", libc::SYS_finit_module, "-1, b(\"\"), 0", EPERM, Root), "/proc/sys/kernel/modules_disabled"),
    switched(row("delete_module", libc::SYS_delete_module, "b(\"kli_nothing\"), 0x800", EPERM, Root), "/proc/sys/kernel/modules_disabled"),
    row("syslog", libc::SYS_syslog, "10, 0, 0", EPERM, Root),
    row("reboot", libc::SYS_reboot, "0, 0, 0, 0", EPERM, Root),
    row("acct", libc::SYS_acct, "b(\"/nonexistent/acct\")", EPERM, Root),
    row("quotactl", libc::SYS_quotactl, "0xff, b(\"/\"), 0, 0", EPERM, Plainly),
    row("quotactl_fd", libc::SYS_quotactl_fd, "-1, 0xff, 0, 0", EPERM, Plainly),
    row("swapon", libc::SYS_swapon, "b(\"/nonexistent\"), 0x7f00000", EPERM, Plainly),
    row("swapoff", libc::SYS_swapoff, "b(\"/nonexistent\")", EPERM, Root),
    #[cfg(target_arch = "x86_64")]
    row("iopl", libc::SYS_iopl, "9", EPERM, Plainly),
    #[cfg(target_arch = "x86_64")]
    row("ioperm", libc::SYS_ioperm, "0x7fffffff, 5, 1", EPERM, Plainly),
    switched(row("io_uring_setup", libc::SYS_io_uring_setup, "1, 0", EPERM, Plainly), "/proc/sys/kernel/io_uring_disabled"),
    switched(row("io_uring_enter", libc::SYS_io_uring_enter, "-1, 0, 0, 0, 0, 0", EPERM, Plainly), "/proc/sys/kernel/io_uring_disabled"),
    switched(row("io_uring_register", libc::SYS_io_uring_register, "-1, 0, 0, 0", EPERM, Plainly), "/proc/sys/kernel/io_uring_disabled"),
    row("packets", libc::SYS_socket, "17, 3, 0", EAFNOSUPPORT, Plainly),
    row("virtual machines", libc::SYS_socket, "40, 1, 0", EAFNOSUPPORT, Nowhere),
    row("kernel cryptography", libc::SYS_socket, "38, 5, 0", EAFNOSUPPORT, Nowhere),
    row("controller area network", libc::SYS_socket, "29, 3, 0", EAFNOSUPPORT, Nowhere),
    row("bluetooth", libc::SYS_socket, "31, 3, 0", EAFNOSUPPORT, Nowhere),
    row("tipc", libc::SYS_socket, "30, 1, 0", EAFNOSUPPORT, Nowhere),
    row("express data path", libc::SYS_socket, "44, 3, 0", EAFNOSUPPORT, Nowhere),
    row("rds", libc::SYS_socket, "21, 5, 0", EAFNOSUPPORT, Nowhere),
    row("key management", libc::SYS_socket, "15, 3, 0", EAFNOSUPPORT, Nowhere),
    row("family with dirt in the upper half", libc::SYS_socket, "0x100000000 + 17, 3, 0", EAFNOSUPPORT, Plainly),
    row("netlink of devices", libc::SYS_socket, "16, 3, 15", EPROTONOSUPPORT, Plainly),
    row("netlink of audit", libc::SYS_socket, "16, 3, 9", EPROTONOSUPPORT, Nowhere),
    row("netlink of netfilter", libc::SYS_socket, "16, 3, 12", EPROTONOSUPPORT, Nowhere),
    row("pair of internet sockets", libc::SYS_socketpair, "2, 1, 0, b(\"x\" x 8)", EAFNOSUPPORT, Plainly),
    #[cfg(target_arch = "x86_64")]
    row("chmod setuid", libc::SYS_chmod, "b(\"f\"), 04755", EPERM, Plainly),
    row("fchmod setuid", libc::SYS_fchmod, "open_fd(\"f\"), 04755", EPERM, Plainly),
    row("fchmodat setuid", libc::SYS_fchmodat, "-100, b(\"f\"), 06755", EPERM, Plainly),
    row("fchmodat2 setuid", FCHMODAT2, "-100, b(\"f\"), 04755, 0", EPERM, Plainly),
    #[cfg(target_arch = "x86_64")]
    row("creat setuid", libc::SYS_creat, "b(\"c\"), 04755", EPERM, Plainly),
    #[cfg(target_arch = "x86_64")]
    row("open setuid", libc::SYS_open, "b(\"o\"), 0101, 04755", EPERM, Plainly),
    #[cfg(target_arch = "x86_64")]
    row("open setgid", libc::SYS_open, "b(\"p\"), 0101, 02755", EPERM, Plainly),
    row("openat setuid", libc::SYS_openat, "-100, b(\"q\"), 0101, 04755", EPERM, Plainly),
    row("openat setgid", libc::SYS_openat, "-100, b(\"r\"), 0101, 02755", EPERM, Plainly),
    row("nameless file setuid", libc::SYS_openat, "-100, b(\".\"), 020000002 | O_DIRECTORY, 04755", EPERM, Plainly),
    row("openat2", libc::SYS_openat2, "-100, b(\"s\"), b(pack(\"QQQ\", 0101, 04755, 0)), 24", ENOSYS, Plainly),
    #[cfg(target_arch = "x86_64")]
    row("mknod setuid", libc::SYS_mknod, "b(\"t\"), 0104755, 0", EPERM, Plainly),
    row("mknodat setgid", libc::SYS_mknodat, "-100, b(\"u\"), 0102755, 0", EPERM, Plainly),
    #[cfg(target_arch = "x86_64")]
    row("mkdir setuid", libc::SYS_mkdir, "b(\"v\"), 04755", EPERM, Plainly),
    row("mkdirat setuid", libc::SYS_mkdirat, "-100, b(\"w\"), 04755", EPERM, Plainly),
];

/// The beginning of a script of attempts.
pub(super) const SCRIPT: &str = r#"
use Fcntl qw(O_DIRECTORY);
use POSIX ();
$| = 1;
umask 0;
# No constant: the kernel may write where its arguments point.
sub b { return "$_[0]" }
sub open_fd { open(my $file, "<", $_[0]) or die "$_[0]: $!"; push @kept, $file; return fileno $file }
sub attempt {
    my ($name, $call) = @_;
    # In a process of its own, so that what one call changes is not there for the next.
    my $process = fork();
    if ($process) { waitpid($process, 0); return }
    $! = 0;
    my $answer = $call->();
    my $number = $answer == -1 ? 0 + $! : 0;
    # The child of clone(2) is not the one that tells.
    print "$name $number\n" unless $name =~ /^clone / && $answer == 0;
    POSIX::_exit(0);
}
"#;

/// Attaches to an own child, reads a word of it in both ways and lets it go.
pub(super) const DEBUGGER: &str = r#"
my $text = "secret" . chr(0) x 10;
my $at = unpack("Q", pack("P", $text));
pipe(my $read, my $write);
my $child = fork();
if (!$child) { close $write; sysread($read, my $x, 1); exit }
syscall(PTRACE, 16, $child, 0, 0) == 0 or die "attach $!";
waitpid($child, 0);
my $word = chr(0) x 8;
syscall(PTRACE, 2, $child, $at, $word) == 0 or die "peek $!";
print substr($word, 0, 6), "\n";
my $buffer = chr(0) x 6;
my $local = pack("QQ", unpack("Q", pack("P", $buffer)), 6);
my $remote = pack("QQ", $at, 6);
syscall(READV, $child, $local, 1, $remote, 1, 0) == 6 or die "readv $!";
print "$buffer\n";
syscall(PTRACE, 17, $child, 0, 0) == 0 or die "detach $!";
close $write;
waitpid($child, 0);
"#;

/// Every way to signal a process by its outer number; prints the error of each.
pub(super) const SIGNALS: &str = r#"
$SIG{TERM} = "IGNORE";
sub told { print "$_[0] ", 0 + $!, "\n" unless $_[1] }
told("kill", kill 15, VICTIM);
told("group", kill -15, VICTIM);
my $info = pack("iii", 15, 0, -1) . chr(0) x 116;
told("queue", syscall(QUEUE, VICTIM, 15, $info) == 0);
told("open", (my $fd = syscall(OPEN, VICTIM, 0)) >= 0);
$! = 0;
my $entry = sysopen(my $directory, "/proc/VICTIM", 0200000);
told("entry", $entry && syscall(SEND, fileno $directory, 15, 0, 0) == 0);
socketpair(my $a, my $b, 1, 1, 0);
$! = 0;
told("owner", fcntl($a, 8, VICTIM) && 0);
"#;
