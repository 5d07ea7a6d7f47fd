//! Laws 4, 5 and 15: variables, descriptors and keys.

use super::{Row, row, start};

pub(super) fn rows() -> Vec<Row> {
    let mut rows = variables();
    rows.extend(descriptors());
    rows.extend(keys());
    rows
}

const ENVIRONMENTS: &str = "cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'; echo end";

/// Reads all that can be read of the memory of these processes.
macro_rules! memory {
    ($pids:literal) => {
        concat!(
            r#"perl -e 'for my $pid ("#,
            $pids,
            r#") {
  open(my $maps, "<", "/proc/$pid/maps") or do { print "$!\n"; next };
  open(my $mem, "<", "/proc/$pid/mem") or do { print "$!\n"; next };
  while (<$maps>) { my ($from, $to, $mode) = /^([0-9a-f]+)-([0-9a-f]+) (\S+)/; next unless $mode =~ /^r/;
    $from = hex $from; $to = hex $to; next if $to - $from > 64 << 20; seek $mem, $from, 0;
    read($mem, my $bytes, $to - $from) or next; print "SE" . "CRET found\n" if $bytes =~ /SE[C]RET-(TOKEN|KEY|FILE)/ } } print "end\n"'"#
        )
    };
}

/// Of process 1 and of the reader's parent.
const MEMORY: &str = memory!("1, getppid()");

/// Of the reader itself, which finds what its environment has.
const OWN_MEMORY: &str = memory!("$$");

fn variables() -> Vec<Row> {
    vec![
        row(4, "read a denied variable", "env; echo end").refused("end").control("env", "SECRET-TOKEN"),
        row(4, "read it in process 1 and all others", ENVIRONMENTS)
            .refused("end")
            .control("tr '\\0' '\\n' < /proc/self/environ", "SECRET-TOKEN"),
        row(4, "read it in the memory of process 1", MEMORY)
            .refused("Permission denied")
            .control(OWN_MEMORY, "SECRET found"),
        row(4, "read one that a pattern denies", "printenv AWS_SECRET_ACCESS_KEY; echo end")
            .refused("end")
            .control("printenv AWS_SECRET_ACCESS_KEY", "SECRET-KEY"),
        row(4, "read one that the list does not pass", "printenv TOKEN; printenv HOME >/dev/null && echo home")
            .spec(r#"{"passEnv":["NOTHING"]}"#)
            .refused("home")
            .control("printenv TOKEN", "SECRET-TOKEN"),
        start(
            4,
            "follow a variable to a bus of the session",
            "DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/0/SECRET-BUS SSH_AUTH_SOCK=$R/SECRET-AGENT \"$L\" run --spec \"$SPEC\" -- \
             sh -c 'printenv DBUS_SESSION_BUS_ADDRESS SSH_AUTH_SOCK; echo end'",
        )
        .refused("end")
        .control("SSH_AUTH_SOCK=agent printenv SSH_AUTH_SOCK", "agent"),
        start(
            4,
            "be led astray by the caller's TMPDIR",
            "TMPDIR=/nonexistent \"$L\" run --spec \"$SPEC\" -- mktemp",
        )
        .refused("/tmp/")
        .control("TMPDIR=/nonexistent mktemp", "No such file"),
    ]
}

fn descriptors() -> Vec<Row> {
    vec![
        start(
            5,
            "read an open descriptor of the caller",
            "exec 9<~/.netrc; \"$L\" run --spec \"$SPEC\" -- sh -c 'cat <&9'",
        )
        .refused("ad file descriptor")
        .control("exec 9<~/.netrc; sh -c 'cat <&9'", "SECRET-NETRC"),
        start(
            5,
            "leave through a directory on standard input",
            "\"$L\" run --spec \"$SPEC\" -- sh -c 'touch effect; cat /proc/self/fd/0/home/.netrc' < $R",
        )
        .refused("descriptor 0 is a directory")
        .effect("ls effect 2>/dev/null")
        .control("sh -c 'cat /proc/self/fd/0/home/.netrc' < $R", "SECRET-NETRC"),
        start(
            5,
            "write the file on standard input",
            "\"$L\" run --spec \"$SPEC\" -- sh -c 'cat; echo x > /proc/self/fd/0' < ~/.plain",
        )
        .refused("Read-only file system|Permission denied")
        .effect("grep -L plain ~/.plain")
        .control("sh -c 'echo plain > /proc/self/fd/0' < ~/.plain && echo written", "written"),
        row(5, "open a descriptor of process 1", "cat /proc/1/fd/*")
            .refused("Permission denied")
            .control("ls /proc/self/fd 9<~/.plain", "9"),
    ]
}

const SECRETS: &str = r#"{"secretEnv":["TOKEN"],"secrets":{"KEY":"~/.key"},"denyEnv":["AWS_*"]}"#;

fn keys() -> Vec<Row> {
    let keys = |attempt, script: &str| {
        row(15, attempt, script.to_owned()).setup("echo SECRET-FILE > ~/.key").spec(SECRETS)
    };
    vec![
        keys("read a key in the environment", "env; echo end")
            .refused("end")
            .control("env", "SECRET-TOKEN"),
        keys("read a key in any process's environment", ENVIRONMENTS)
            .refused("end")
            .control("tr '\\0' '\\n' < /proc/self/environ", "SECRET-TOKEN"),
        keys("read a key's file", "cat ~/.key; stat -c 'size %s' ~/.key")
            .refused("size 0")
            .control("cat ~/.key", "SECRET-FILE"),
        keys("read a key in the memory of process 1", MEMORY)
            .refused("Permission denied")
            .control(OWN_MEMORY, "SECRET found"),
        keys(
            "find a key in a file of the jail",
            "grep -rsah SE'C'RET-FILE /run /tmp ~ . /dev/shm; echo end",
        )
        .refused("end")
        .control("grep -rsah SE'C'RET-FILE ~", "SECRET-FILE"),
        keys("take a key out of process 1's descriptors", "cat /proc/1/fd/*; ls /proc/1/fd")
            .refused("Permission denied")
            .control("cat /proc/self/fd/9 9<~/.key", "SECRET-FILE"),
        start(
            15,
            "start without the key's file",
            "rm -f ~/.key; \"$L\" run --spec \"$SPEC\" -- touch effect",
        )
        .spec(SECRETS)
        .refused(".key")
        .effect("ls effect 2>/dev/null")
        .control("echo x > ~/.key; \"$L\" run --spec \"$SPEC\" -- echo up", "up"),
    ]
}
