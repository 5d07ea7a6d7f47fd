"""The laws of docs/confinement.md as a whole machine shows them, each with its control.

Runs as the test script of a NixOS machine (nix/vm-tests.nix) and of a Debian one (tests/vm/run), so
it uses of `machine` only `succeed`, `fail`, `execute` and `wait_for_unit`, and asks
/etc/kli-vm/machine.json what is where. Prints a line for each assertion and raises at the end when
one did not hold.

A case says what the inside tries and what it must be told, what must not have come of it, and the
same attempt outside, which works. Every secret begins with `SECRET-`, and none may be in what the
inside prints.
"""

import json
import re
from shlex import quote
from typing import Callable, Generator, NamedTuple

machine.wait_for_unit("multi-user.target")
FACTS = json.loads(machine.succeed("cat /etc/kli-vm/machine.json"))
BASE = json.loads(machine.succeed(f"cat {quote(FACTS['spec'])}"))
PATH = machine.succeed('printf %s "$PATH"')
ARM = machine.succeed("uname -m").strip() == "aarch64"
HOMES = {"tester": "/home/tester", "root": "/root", "other": "/home/other"}
USERS = ["tester", "root"]
UIDS = {user: machine.succeed(f"id -u {user}").strip() for user in HOMES}

held: list[str] = []
broken: list[str] = []


def verdict(law: str, what: str, holds: bool, said: str) -> None:
    """Prints one assertion."""
    if holds:
        held.append(what)
        print(f"ok {law}: {what}", flush=True)
    else:
        broken.append(f"{law}: {what}")
        print(f"FAILED {law}: {what}: {said.strip()!r}", flush=True)


def root(script: str) -> str:
    """What a script of root's says on both streams; its exit code does not count."""
    return machine.execute(f"bash -c {quote(script)} 2>&1 || true")[1]


def outside(user: str, script: str, more: str = "") -> str:
    """A command of root's that runs a script as a user in the project, with a session's variables."""
    home, uid = HOMES[user], UIDS[user]
    variables = {
        "HOME": home,
        "USER": user,
        "LOGNAME": user,
        "PATH": PATH,
        "LC_ALL": "C.UTF-8",
        "XDG_RUNTIME_DIR": f"/run/user/{uid}",
        "DBUS_SESSION_BUS_ADDRESS": f"unix:path=/run/user/{uid}/bus",
        "TOKEN": "SECRET-DENIED-VALUE-1",
        "AWS_SECRET_ACCESS_KEY": "SECRET-DENIED-VALUE-2",
        "VM_API_KEY": "SECRET-DENIED-VALUE-3",
        "L": FACTS["launcher"],
        "SPEC": FACTS["spec"],
        "DATA": f"/srv/kli-vm/{user}",
    }
    words = " ".join(f"{name}={quote(value)}" for name, value in variables.items())
    return f"( cd {home}/project && exec runuser -u {user} -- env -i {words} {more} bash -c {quote(script)} </dev/null )"


def together(commands: dict[str, str]) -> dict[str, tuple[int, str]]:
    """Runs a command for each user, at the same time: the exit code and both streams of each."""
    place = "/srv/kli-vm/answers"
    start = "".join(f"{{ code=0; {command} || code=$?; echo; echo $code; }} >{place}/{user} 2>&1 & " for user, command in commands.items())
    machine.succeed(f"mkdir -p {place}; {start} wait", timeout=600)
    told = {}
    for user in commands:
        said, _, code = machine.succeed(f"cat {place}/{user}").rstrip("\n").rpartition("\n")
        # The launcher's look at the end is bounded, and says where an emulated machine was too slow for it.
        said = re.sub(r"^kli-sandbox: note: .* was not finished in \d+ ms.*\n?", "", said, flags=re.M)
        told[user] = (int(code), said)
    return told


# What is tried for one user, a command at a time; it is sent the exit code and both streams.
Steps = Generator[str, tuple[int, str], None]


def both(steps: Callable[[str], Steps], users: list[str]) -> None:
    """Carries out the same steps for these users side by side, one step of each at a time."""
    running = {user: steps(user) for user in users}
    commands = {user: next(step) for user, step in running.items()}
    while commands:
        for user, answer in together(commands).items():
            try:
                commands[user] = running[user].send(answer)
            except StopIteration:
                del commands[user]


def variant(name: str, changes: dict) -> str:
    """Writes a specification that differs from the machine's, and returns its path."""
    path = f"/srv/kli-vm/spec/{name}.json"
    machine.succeed(f"mkdir -p /srv/kli-vm/spec && printf %s {quote(json.dumps({**BASE, **changes}))} >{path}")
    return path


# ------------------------------------------------------------------ the machine
SERVE = """
use IO::Socket::INET; use IO::Socket::UNIX; use IO::Select;
my @all;
for my $name (@ARGV) {
  my $server;
  if ($name =~ /^([0-9.]+):(\\d+)$/) { $server = IO::Socket::INET->new(LocalAddr => $1, LocalPort => $2, Listen => 9, ReuseAddr => 1) }
  elsif ($name =~ s/^@/\\0/) { $server = IO::Socket::UNIX->new(Local => $name, Listen => 9) }
  else { unlink $name; $server = IO::Socket::UNIX->new(Local => $name, Listen => 9); chmod 0666, $name }
  die "$name: $!" unless $server;
  push @all, $server;
}
open(my $ready, ">", "/srv/kli-vm/ready"); close $ready;
my $select = IO::Select->new(@all);
while (my @ready = $select->can_read) { for (@ready) { my $client = $_->accept or next; print $client "hello\\n"; close $client } }
"""
CONNECT = """
use Socket;
my ($name, $socket, $to) = (shift);
if ($name =~ /^([0-9.]+):(\\d+)$/) { my ($host, $port) = ($1, $2); socket($socket, PF_INET, SOCK_STREAM, 0) or die "refused: $!\\n"; $to = pack_sockaddr_in($port, inet_aton($host)) }
else { $name =~ s/^@/\\0/; socket($socket, PF_UNIX, SOCK_STREAM, 0) or die "refused: $!\\n"; $to = pack_sockaddr_un($name) }
print connect($socket, $to) ? "connected\\n" : "refused: $!\\n";
"""
SOCKETS = ["/run/docker.sock", "/srv/kli-vm/service.sock", "@kli-vm", "127.0.0.1:8081", "192.0.2.1:8080"]

# The daemon itself, where there is one, is started at the end; until then its socket is a stand-in's.
machine.execute("systemctl stop docker.socket docker.service")
machine.succeed("mkdir -p /srv/kli-vm/open && chmod 0777 /srv/kli-vm/open")
OWN = """
use IO::Socket::INET;
my $server = IO::Socket::INET->new(LocalAddr => "127.0.0.1", LocalPort => 8091, Listen => 9) or die;
open(my $ready, ">", "served"); close $ready;
alarm 10; $server->accept;
"""
for file, text in {"serve-own.pl": OWN, "serve.pl": SERVE, "connect.pl": CONNECT, "hidden": "SECRET-HIDDEN\n"}.items():
    machine.succeed(f"printf %s {quote(text)} >/srv/kli-vm/{file}")
for user in USERS:
    home = HOMES[user]
    SOCKETS += [f"{home}/agent.sock", f"{home}/project/dev.sock"]
    machine.succeed(f"""
        rm -rf {home}/project && mkdir -p {home}/project/secret {home}/.ssh {home}/.aws {home}/keys {home}/store {home}/.cache/tool /srv/kli-vm/{user}
        cd {home}
        printf 'SECRET-SSH\\n' >.ssh/id; printf 'SECRET-AWS\\n' >.aws/credentials; printf 'SECRET-NETRC\\n' >.netrc
        printf 'SECRET-LINKED\\n' >store/linked; ln -sfn store/linked .linked; printf 'SECRET-PEM\\n' >keys/a.pem; echo plain >keys/plain
        printf 'SECRET-ENV\\n' >project/.env; printf 'SECRET-KEY\\n' >project/secret/key; printf 'SECRET-PROVIDER\\n' >.provider-key
        echo plain >project/plain; mkfifo pipe; rm -f .later
        git init -q project; printf '.env\\nsecret\\n*.sock\\n' >project/.gitignore
        mkdir -p /srv/kli-vm/{user}/alias /srv/kli-vm/{user}/mnt; chown -R {user}: {home}; chown -R {user}: /srv/kli-vm/{user}
        mount --bind .ssh /srv/kli-vm/{user}/alias
        loginctl enable-linger {user}
    """)
    machine.wait_for_unit(f"user@{UIDS[user]}.service")
    machine.succeed(f"for i in $(seq 100); do test -S /run/user/{UIDS[user]}/bus && exit 0; sleep 0.2; done; exit 1")
machine.succeed("""
    printf 'SECRET-OTHER\\n' >/home/other/private; chown other: /home/other/private; chmod 0600 /home/other/private; chmod 0755 /home/other
    ip link add dummy0 type dummy; ip address add 192.0.2.1/24 dev dummy0; ip link set dummy0 up
    systemd-run --quiet --unit=kli-vm-other --uid=other --setenv=PATH="$PATH" bash -c 'exec sleep 3600.25'
""")
machine.succeed(
    f'systemd-run --quiet --unit=kli-vm-server --setenv=PATH="$PATH" perl /srv/kli-vm/serve.pl {" ".join(map(quote, SOCKETS))}',
    "for i in $(seq 100); do test -e /srv/kli-vm/ready && exit 0; sleep 0.1; done; exit 1",
)

# Where the kernel keeps abstract sockets apart or no Unix socket can be made at all, a masked one
# would not be tried: these cases open that door, so that only the masks are in the way.
OPEN = variant("sockets", {"allowAbstractSockets": True})
OFFLINE = variant("offline", {"network": False, "allowAbstractSockets": True})
UNREACHED = "Connection refused|No such file|Permission denied|Read-only"
READ_ONLY = "Read-only file system"
NO_MOUNT = "superuser|[Pp]ermission denied|Operation not permitted"
NOT_PERMITTED = "Operation not permitted|Function not implemented|Permission denied"


def call(name: str, arguments: str) -> str:
    """Tries a system call and prints what the kernel says."""
    numbers = {"keyctl": (250, 219), "userfaultfd": (323, 282), "io_uring_setup": (425, 425), "name_to_handle_at": (303, 264)}
    return f"perl -e 'my $p = \".\"; print syscall({numbers[name][ARM]}, {arguments}) == -1 ? \"$!\\n\" : \"went\\n\"'"


def connect(name: str) -> str:
    return f"perl /srv/kli-vm/connect.pl {name}"


class Case(NamedTuple):
    """One attempt. `told` and `shown` are patterns; `effect` prints nothing when nothing came of it."""

    law: int
    what: str
    inside: str
    told: str
    control: str
    shown: str
    effect: str = ""
    spec: str = ""
    # Who makes the control, when another than the one who tries.
    by: str = ""
    # Words before the launcher, in the caller's shell.
    before: str = ""


ENVIRONMENTS = "cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'; env; echo end"
# The user's own, not through the launcher: its arguments hold the words of the pattern as well.
SLEEPERS = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -o '3600[.]25' | head -n 1; echo end"

CASES = [
    Case(1, "write beside the workspace", "echo x >~/outside", READ_ONLY, "echo x >~/outside && echo made; rm ~/outside", "made", "ls ~/outside"),
    Case(1, "write elsewhere on the machine", "echo x >/srv/kli-vm/open/x-$USER", READ_ONLY, "echo x >/srv/kli-vm/open/x-$USER && echo made; rm /srv/kli-vm/open/x-$USER", "made", "ls /srv/kli-vm/open/x-$USER"),
    Case(1, "write the machine's configuration", "echo x >/etc/kli-made", READ_ONLY, "echo x >/etc/kli-made && echo made; rm /etc/kli-made", "made", "ls /etc/kli-made", by="root"),
    Case(1, "write what the machine reads from /tmp and /run", "echo x >/tmp/kli-vm-left && echo private; echo x >/run/kli-vm-left", f"private.*({READ_ONLY})", "echo x >/tmp/kli-vm-mine-$USER && echo made; rm /tmp/kli-vm-mine-$USER", "made", "ls /tmp/kli-vm-left /run/kli-vm-left"),
    Case(1, "mount the root writable", "mount -o remount,rw,bind /", NO_MOUNT, "unshare -rm sh -c 'mount --bind ~/keys ~/keys && mount -o remount,bind,ro ~/keys && mount -o remount,bind,rw ~/keys && echo remounted'", "remounted"),
    Case(1, "see a process of another user", SLEEPERS, "^end$", SLEEPERS, "3600.25"),
    Case(1, "reach a port of the machine with the network off", connect("127.0.0.1:8081"), "Connection refused", connect("127.0.0.1:8081"), "connected", spec=OFFLINE),
    Case(1, "reach an address of the machine with the network off", connect("192.0.2.1:8080"), "unreachable", connect("192.0.2.1:8080"), "connected", spec=OFFLINE),
    Case(1, "keep a capability", "grep -c '^Cap[A-Z][a-z]*:.0*$' /proc/self/status; grep NoNewPrivs /proc/self/status", "^5\nNoNewPrivs:\t1", "grep CapBnd /proc/self/status", "[1-9a-f]"),
    Case(1, "read another user's private file", "cat /home/other/private", "Permission denied", "cat /home/other/private", "SECRET-OTHER", by="root"),
    Case(1, "write into another user's home", "echo x >/home/other/made", f"{READ_ONLY}|Permission denied", "echo x >/home/other/made && echo made; rm /home/other/made", "made", "ls /home/other/made", by="root"),
    Case(1, "give a file to another user", "touch mine; chown other mine; rm mine", "Operation not permitted|Invalid argument", "touch given; chown other given; stat -c %U given; rm given", "other", by="root"),
    Case(2, "read in a hidden directory", "cat ~/.ssh/id; ls -A ~/.aws; echo end", "No such file.*end$", "cat ~/.ssh/id ~/.aws/credentials", "SECRET-SSH\nSECRET-AWS"),
    Case(2, "read a hidden file", "stat -c 'size %s' ~/.netrc; cat ~/.netrc .env; echo end", "^size 0\nend$", "cat ~/.netrc .env", "SECRET-NETRC\nSECRET-ENV"),
    Case(2, "read a hidden file elsewhere", "stat -c 'size %s' /srv/kli-vm/hidden; cat /srv/kli-vm/hidden; echo end", "^size 0\nend$", "cat /srv/kli-vm/hidden", "SECRET-HIDDEN"),
    Case(2, "read the target of a hidden link", "cat ~/.linked ~/store/linked; echo end", "end$", "cat ~/store/linked", "SECRET-LINKED"),
    Case(2, "read by the name of another mount", "cat $DATA/alias/id; echo end", "No such file.*end$", "cat $DATA/alias/id", "SECRET-SSH"),
    Case(2, "read what a pattern hides, not what it does not", "cat ~/keys/a.pem ~/keys/plain", "^plain$", "cat ~/keys/a.pem", "SECRET-PEM"),
    Case(2, "read through /proc", "cat /proc/1/root$HOME/.netrc /proc/self/root$HOME/.netrc /proc/self/cwd/.env; echo end", "end$", "cat /proc/self/root$HOME/.netrc", "SECRET-NETRC"),
    Case(2, "write a hidden file", "echo x >~/.netrc; echo x >.env", READ_ONLY, "echo x >>~/.plain && echo written; rm ~/.plain", "written", "grep -L SECRET ~/.netrc .env"),
    Case(2, "unmount a mask", "umount .env; umount -l ~/.ssh; mv .env moved; cat .env moved", NO_MOUNT, "unshare -rm sh -c 'mount --bind plain .env && umount .env && cat .env'", "SECRET-ENV", "ls moved"),
    Case(2, "learn the hidden names", "grep -c netrc /proc/self/mountinfo /proc/1/cmdline /run/kli/sandbox.json", ":0\n.*:0\n.*:0$", f"grep -c netrc {FACTS['spec']}", "[1-9]"),
    Case(3, "make an absent hidden name", "cat ~/.later; echo x >~/.later", f"No such file.*({READ_ONLY})", "echo x >~/.later && echo made; rm ~/.later", "made", "ls ~/.later"),
    Case(4, "read denied variables in any process", ENVIRONMENTS, "SHOWN=shown-value.*end$", "env", "SECRET-DENIED-VALUE-1"),
    Case(4, "find the session's bus by its variable", "printenv DBUS_SESSION_BUS_ADDRESS; ls -A $XDG_RUNTIME_DIR; echo end", "^end$", "printenv DBUS_SESSION_BUS_ADDRESS; ls $XDG_RUNTIME_DIR/bus", "unix:path.*bus"),
    Case(5, "read an open descriptor of the caller", "cat <&9", "ad file descriptor", "exec 9<~/.netrc; cat <&9", "SECRET-NETRC", before="exec 9<~/.netrc;"),
    Case(5, "leave through a directory on standard input", "touch effect; cat /proc/self/fd/0/.netrc", "descriptor 0 is a directory", "cat /proc/self/fd/0/.netrc <~", "SECRET-NETRC", "ls effect", before="exec <~;"),
    Case(6, "ask the container daemon", connect("/run/docker.sock"), UNREACHED, connect("/run/docker.sock"), "connected", spec=OPEN),
    Case(6, "ask the session's bus", connect("$XDG_RUNTIME_DIR/bus") + "; DBUS_SESSION_BUS_ADDRESS=unix:path=$XDG_RUNTIME_DIR/bus busctl --user list", UNREACHED, "busctl --user list", "org.freedesktop.systemd1", spec=OPEN),
    Case(6, "start a unit of the user's manager", "systemd-run --user --wait touch ~/escaped", "Failed to connect|not set|No such file", "systemd-run --quiet --user --wait touch ~/escaped && ls ~/escaped && rm ~/escaped", "escaped", "ls ~/escaped", spec=OPEN),
    Case(6, "ask the system's bus", connect("/run/dbus/system_bus_socket"), UNREACHED, connect("/run/dbus/system_bus_socket"), "connected", spec=OPEN),
    Case(6, "reach a socket in the home", connect("~/agent.sock"), UNREACHED, connect("~/agent.sock"), "connected", spec=OPEN),
    Case(6, "reach a socket in the workspace", connect("dev.sock"), UNREACHED, connect("dev.sock"), "connected", spec=OPEN),
    Case(6, "reach a socket elsewhere on the machine", connect("/srv/kli-vm/service.sock"), UNREACHED, connect("/srv/kli-vm/service.sock"), "connected", spec=OPEN),
    Case(6, "reach one with the network off", connect("/srv/kli-vm/service.sock"), UNREACHED, connect("/srv/kli-vm/service.sock"), "connected", spec=OFFLINE),
    Case(6, "reach an abstract socket", connect("@kli-vm"), "Operation not permitted|Connection refused|not supported", connect("@kli-vm"), "connected"),
    Case(6, "reach an abstract socket with the network off", connect("@kli-vm"), "Connection refused", connect("@kli-vm"), "connected", spec=OFFLINE),
    Case(6, "write into a pipe", "timeout 2 sh -c 'echo x >~/pipe' || echo ended", "ended", "cat ~/pipe & timeout 2 sh -c 'echo through >~/pipe'; wait", "through"),
    Case(6, "signal a process of the machine", "kill -0 $(cat $DATA/pid)", "No such process|not permitted", "kill -0 $(cat $DATA/pid) && echo alive", "alive"),
    Case(7, "type into the caller's terminal", "perl -e 'print ioctl(STDIN, 0x5412, my $c = \"x\") ? \"pushed\\n\" : \"$!\\n\"'", "Operation not permitted|Permission denied|Inappropriate", "script -qec \"perl -e 'print ioctl(STDIN, 0x5412, my \\$c = q(x)) ? qq(pushed\\n) : qq(\\$!\\n)'\" /dev/null", "pushed", before="TTY"),
    Case(7, "make a user namespace", "unshare -Ur touch effect", "unshare failed", "unshare -Ur id -u", "^0$", "ls effect"),
    Case(7, "make a mount", "mkdir -p m; mount -t tmpfs none m; rmdir m", NO_MOUNT, "mkdir -p m; unshare -rm sh -c 'mount -t tmpfs none m && echo mounted'; rmdir m", "mounted"),
    Case(7, "make a file setuid", "cp /bin/sh s; chmod u+s s; stat -c %a s; rm s", "not permitted.*\n[0-7]{3}$", "cp /bin/sh s; chmod u+s s; stat -c %a s; rm s", "^4"),
    Case(7, "steer the kernel through /proc", "echo x >/proc/sys/kernel/domainname; echo h >/proc/sysrq-trigger", f"{READ_ONLY}|Permission denied", "cat /proc/sys/kernel/domainname; echo $(cat /proc/sys/kernel/domainname) >/proc/sys/kernel/domainname && echo written", "written", by="root"),
    Case(7, "reach the caller's keys", call("keyctl", "0, -3, 1"), NOT_PERMITTED, call("keyctl", "0, -3, 1"), "went"),
    Case(7, "set up io_uring", call("io_uring_setup", "0, 0"), NOT_PERMITTED, call("io_uring_setup", "0, 0"), "Bad address|Invalid argument"),
    Case(7, "make a userfaultfd", call("userfaultfd", "1"), NOT_PERMITTED, call("userfaultfd", "1"), "went"),
    Case(7, "name a file by handle", call("name_to_handle_at", "-100, $p, 0, 0, 0"), NOT_PERMITTED, call("name_to_handle_at", "-100, $p, 0, 0, 0"), "Bad address"),
    Case(9, "write a hook", "echo x >.git/hooks/pre-commit", READ_ONLY, "echo x >.git/hooks/made && echo made; rm .git/hooks/made", "made", "ls .git/hooks/pre-commit"),
    Case(9, "set `core.fsmonitor`", "git config core.fsmonitor ./x", "could not|busy|Read-only", "git config kli.test x && git config kli.test; git config --remove-section kli", "^x$", "git config core.fsmonitor"),
    Case(9, "replace the git directory", "mv .git moved", "busy|Read-only|not permitted", "mv .git moved && mv moved .git && echo moved", "moved", "ls moved"),
    Case(10, "start in the home", "touch effect", "cannot be the workspace", "cd ~ && touch effect && echo made; rm -f effect", "made", "ls effect ~/effect", before="cd ~;"),
    Case(10, "start in the root", "touch /tmp/effect", "cannot be the workspace", "cd / && echo there", "there", before="cd /;"),
    Case(10, "start in the system's configuration", "true", "cannot be the workspace", "cd /etc && echo there", "there", before="cd /etc;"),
    Case(10, "start where keys are", "touch effect", "cannot be the workspace", "cd ~/.ssh && echo there", "there", "ls ~/.ssh/effect", before="cd ~/.ssh;"),
    Case(11, "start without bubblewrap", "touch effect", "bubblewrap is not found on PATH", "echo there", "there", "ls effect", before="PATH=/nonexistent;"),
    Case(13, "learn more from the marker than the plan", "cat /run/kli/sandbox.json; echo x >/run/kli/sandbox.json", f'"hidden.*({READ_ONLY})', "echo there", "there"),
    Case(15, "read a provider's key in a file or a variable", "cat ~/.provider-key; stat -c 'size %s' ~/.provider-key; printenv VM_API_KEY PROVIDER_KEY; echo end", "^size 0\nend$", "cat ~/.provider-key; printenv VM_API_KEY", "SECRET-PROVIDER\nSECRET-DENIED-VALUE-3"),
    Case(15, "take a key out of process 1", "cat /proc/1/fd/* /proc/1/environ /proc/1/mem", "Permission denied", "cat /proc/self/fd/9 9<~/.provider-key", "SECRET-PROVIDER"),
]


def lay(place: str, scripts: dict[int, str]) -> None:
    """Writes one file for each script, a few at a time, since a command is no longer than a line."""
    machine.succeed(f"mkdir -p {place}")
    command = ""
    for number, script in scripts.items():
        command += f"printf %s {quote(script)} >{place}/{number}; "
        if len(command) > 8000:
            machine.succeed(command)
            command = ""
    machine.succeed(command + "true")


def answers(commands: dict[str, str]) -> dict[str, dict[int, str]]:
    """What each of many scripts said, by user and number."""
    found = {}
    for user, (_, said) in together(commands).items():
        parts = re.split(r"^=case (\d+)=$", said.replace("\r", ""), flags=re.M)
        found[user] = {int(number): text.strip() for number, text in zip(parts[1::2], parts[2::2])}
    return found


def each(place: str, numbers: list[int]) -> str:
    """A script that runs these files one after the other."""
    return f"for i in {' '.join(map(str, numbers))}; do echo; echo =case $i=; timeout 30 bash {place}/$i 2>&1 </dev/null; done"


def single(case: Case) -> str:
    """The caller's script for a case that is a start of its own."""
    start = f'"$L" run --spec {quote(case.spec) if case.spec else chr(34) + "$SPEC" + chr(34)} -- bash -c {quote(case.inside)}'
    return f"script -qec {quote(start)} /dev/null" if case.before == "TTY" else f"{case.before} {start}"


machine.execute("sysctl -qw dev.tty.legacy_tiocsti=1")
for user in USERS:
    machine.succeed(f'systemd-run --quiet --unit=kli-vm-{user} --uid={user} --setenv=PATH="$PATH" bash -c "exec sleep 3600.75"')
    machine.succeed(f"systemctl show --property=MainPID --value kli-vm-{user} >/srv/kli-vm/{user}/pid")

TRIES, EFFECTS, CONTROLS = "/srv/kli-vm/tries", "/srv/kli-vm/effects", "/srv/kli-vm/controls"
lay(TRIES, {number: single(case) if case.before else case.inside for number, case in enumerate(CASES)})
lay(EFFECTS, {number: f"( {case.effect} ) 2>/dev/null" for number, case in enumerate(CASES) if case.effect})
lay(CONTROLS, {number: case.control for number, case in enumerate(CASES)})
EVERY = list(range(len(CASES)))
tries: dict[str, dict[int, str]] = {user: {} for user in USERS}
# All that one specification is for happens in one jail.
for spec in sorted({case.spec for case in CASES}):
    these = each(TRIES, [number for number in EVERY if CASES[number].spec == spec and not CASES[number].before])
    start = f'"$L" run --spec {spec or FACTS["spec"]} -- bash -c {quote(these)}'
    for user, told in answers({user: outside(user, start) for user in USERS}).items():
        tries[user] |= told
these = each(TRIES, [number for number in EVERY if CASES[number].before])
for user, told in answers({user: outside(user, these) for user in USERS}).items():
    tries[user] |= told
these = each(EFFECTS, [number for number in EVERY if CASES[number].effect])
effects = answers({user: outside(user, these) for user in USERS})
these = each(CONTROLS, [number for number in EVERY if not CASES[number].by])
controls = answers({user: outside(user, these) for user in USERS})
these = each(CONTROLS, [number for number in EVERY if CASES[number].by])
by_root = answers({"root": outside("root", these)})["root"]
for user in USERS:
    for number, case in enumerate(CASES):
        said = tries[user].get(number, "not tried")
        effect = effects[user].get(number, "not looked for") if case.effect else ""
        shown = (by_root if case.by else controls[user]).get(number, "not tried")
        holds = re.search(case.told, said, re.S) is not None and not re.search("SECRET-|^connected|^pushed|^went", said, re.M)
        holds = holds and effect == "" and re.search(case.shown, shown, re.S) is not None
        verdict(f"law {case.law}", f"{case.what}, {user}", holds, f"told {said!r}, came of it {effect!r}, control {shown!r}")


# ------------------------------------------------------------------ while it runs
def project(user: str) -> str:
    return f"{HOMES[user]}/project"


def while_running(user: str) -> Steps:
    """What the host does while the inside waits: replace, make anew, re-point, mount."""
    home = HOMES[user]
    wait = "cat ~/.netrc; touch up; for i in $(seq 300); do test -e go && break; sleep 0.1; done"
    look = f"cat ~/.netrc ~/.later ~/.ssh/id ~/.linked /srv/kli-vm/{user}/mnt/file; echo end"
    inner = f"{wait}; {look}"
    start = f'"$L" run --spec "$SPEC" -- bash -c {quote(inner)}'
    host = """cd; printf 'SECRET-NEW\\n' >.n && mv .n .netrc; mv .ssh .ssh-old; mkdir .ssh; printf 'SECRET-ANEW\\n' >.ssh/id
        printf 'SECRET-OTHER-TARGET\\n' >store/second; ln -sfn store/second .l && mv -T .l .linked; printf 'SECRET-LATER\\n' >.later"""
    answer = (yield "bash -c " + quote(f"""
        rm -f {project(user)}/up {project(user)}/go
        {outside(user, start)} >/srv/kli-vm/{user}/out 2>&1 &
        for i in $(seq 300); do test -e {project(user)}/up && break; sleep 0.1; done
        find {home}/.later; echo =next=
        {outside(user, host)}
        mount -t tmpfs none /srv/kli-vm/{user}/mnt && printf 'SECRET-MOUNTED\\n' >/srv/kli-vm/{user}/mnt/file
        touch {project(user)}/go; wait
        cat /srv/kli-vm/{user}/out; echo =next=
        {outside(user, look)}
        umount /srv/kli-vm/{user}/mnt; rm -rf {home}/.later {home}/.ssh {project(user)}/up {project(user)}/go; mv {home}/.ssh-old {home}/.ssh
        ln -sfn store/linked {home}/.linked; printf 'SECRET-NETRC\\n' >{home}/.netrc
    """))[1]
    absent, told, shown = (answer.split("=next=\n") + ["", "", ""])[:3]
    verdict("law 3", f"an absent hidden name stays absent on the machine while it runs, {user}", "No such file" in absent, absent)
    verdict("law 2", f"hidden whatever the machine does meanwhile, {user}", "\nend\n" in told and "SECRET-" not in told, told)
    for name in ["NEW", "ANEW", "OTHER-TARGET", "LATER", "MOUNTED"]:
        verdict("law 1" if name == "MOUNTED" else "law 2", f"control: SECRET-{name} is read outside, {user}", f"SECRET-{name}\n" in shown, shown)


def life(user: str) -> Steps:
    """Whoever dies, nothing inside lives on."""
    script = f'"$L" run --spec "$SPEC" -- bash -c {quote("setsid sleep 4000.5 & sleep 4000.5 & touch up; wait")}'
    seen = f"pgrep -u {user} -cxf 'sleep 4000[.]5'"
    for whom, number in [("launcher", "$!"), ("bubblewrap", "$(pgrep -P $! | head -n 1)")]:
        victim = f"""{script} & for i in $(seq 100); do test -e up && break; sleep 0.1; done; rm up; {seen}; kill -9 {number}
            for i in $(seq 20); do test $({seen}) = 0 && break; sleep 0.1; done; {seen}; wait; find ~ -maxdepth 1 -name .later"""
        said = (yield outside(user, victim))[1]
        numbers = re.findall(r"^\d+$", said, re.M)
        verdict("law 8", f"KILL of the {whom} ends all within two seconds, {user}", numbers == ["2", "0"] and ".later" not in said, said)
    code, said = (yield outside(user, f'"$L" run --spec "$SPEC" -- bash -c "setsid sleep 4000.5 & exit 42"; echo $?; sleep 1; {seen}'))
    verdict("law 8", f"a daemon does not outlive the program, the exit code passes, {user}", said.split() == ["42", "0"], said)
    saving = quote("trap 'echo saved >saved; exit 5' TERM; touch up; while :; do sleep 0.1; done")
    said = (yield outside(user, f'"$L" run --spec "$SPEC" -- bash -c {saving} & for i in $(seq 100); do test -e up && break; sleep 0.1; done; kill $!; wait $!; echo $?; cat saved; rm up saved'))[1]
    verdict("law 8", f"TERM lets the program save, {user}", said.split() == ["5", "saved"], said)


def works(user: str) -> Steps:
    """What must go on working inside."""
    commit = "git add plain .gitignore && git -c user.name=a -c user.email=a@example.org commit -qm x && git status --porcelain && git log --oneline | wc -l"
    said = (yield outside(user, f'"$L" run --spec "$SPEC" -- bash -c {quote(commit)}'))[1]
    verdict("law 9", f"`git commit` works, `git status` is clean, {user}", said.strip() == "1", said)
    same = "; ".join(f"echo '{what}:' $({what})" for what in ["id -u", "id -un", "getent hosts localhost", "uname -n", "date +%Z", "git --version", "pwd -P"])
    said, shown = ((yield outside(user, f'"$L" run --spec "$SPEC" -- bash -c {quote(same)}; echo =next=; {same}'))[1].split("=next=\n") + [""])[:2]
    for line, expected in zip(said.splitlines(), shown.splitlines()):
        verdict("law 12", f"`{expected.partition(':')[0]}` says what it says outside, {user}", line == expected and not line.endswith(":"), f"{line} / {expected}")
    tools = 'test -O "$(mktemp)" && cat <(echo read) /dev/fd/0 <<<here && echo x >~/.cache/tool/made && echo x >plain-made && echo done'
    said = (yield outside(user, f'"$L" run --spec "$SPEC" -- bash -c {quote(tools)}; cat ~/.cache/tool/made plain-made; rm ~/.cache/tool/made plain-made'))[1]
    verdict("law 12", f"temporary files, descriptors, the workspace and a writable path can be used, {user}", said.split() == ["read", "here", "done", "x", "x"], said)
    server = f"perl /srv/kli-vm/serve-own.pl & for i in $(seq 50); do test -e served && break; sleep 0.1; done; {connect('127.0.0.1:8091')}; rm served"
    said = (yield outside(user, f'"$L" run --spec {OFFLINE} -- bash -c {quote(server)}'))[1]
    verdict("law 6", f"the inside's own loopback servers work with the network off, {user}", said.strip() == "connected", said)
    odd = quote("odd 'name'\n$HOME \\ ü [x]")
    place = f'mkdir -p ~/{odd} && cd ~/{odd} && "$L" run --spec "$SPEC" -- bash -c "echo x >made && pwd -P"; ls made; pwd -P'
    said = (yield outside(user, place))[1]
    verdict("law 10", f"a workspace with awkward bytes in its name, {user}", said.count("$HOME \\ ü [x]") == 2 and "made\n" in said, said)
    said = (yield outside(user, 'ln -sfn project ~/link && cd ~/link && "$L" run --spec "$SPEC" -- bash -c "pwd; echo x >made"; cat ~/project/made; rm made'))[1]
    verdict("law 10", f"a workspace through a link, {user}", said.split() == [project(user), "x"], said)


def reported(user: str) -> Steps:
    """What the launcher and the marker say."""
    planted = "mkdir -p .vscode && echo {} >.vscode/tasks.json; echo x >.envrc"
    said = (yield outside(user, f'"$L" run --spec "$SPEC" -- bash -c {quote(planted)}; rm -r .vscode .envrc'))[1]
    verdict("law 13", f"what the host would run is named at the end, {user}", ".envrc" in said and ".vscode/tasks.json" in said, said)
    code, said = (yield outside(user, '"$L" run --spec "$SPEC" -- bash -c "echo x >quiet"; rm quiet'))
    verdict("law 13", f"control: nothing is said of an ordinary file, {user}", said.strip() == "", said)


def limits(user: str) -> Steps:
    """Bounds, in a unit of the user's own manager, where a control group can be had."""
    scope = "--user" if user != "root" else ""
    unit = f'systemd-run {scope} --quiet --pipe --wait --collect -p Delegate=yes -p WorkingDirectory="$PWD" --setenv=HOME --setenv=PATH "$L" run --spec'
    fork = "my @k; my $e = 0; for (1..100) { my $p = fork(); if (!defined $p) { $e = 0 + $!; last } if (!$p) { sleep 20; exit } push @k, $p } kill 9, @k; print scalar(@k), qq( $e\\n)"
    memory = 'my $x = "a" x (200 << 20); print "got\\n"'
    bounded = variant("bounded", {"limits": {"tasks": 40, "memory": "64M"}})
    for what, script, pattern, shown in [("processes", fork, r"^(3\d) 11$", r"^100 0$"), ("memory", memory, r"^(?!.*got).*$", "^got$")]:
        said = (yield outside(user, f"{unit} {bounded} -- perl -e {quote(script)}"))[1].strip()
        control = (yield outside(user, f'{unit} "$SPEC" -- perl -e {quote(script)}'))[1].strip()
        # Where the machine's own user 0 has no group, nothing is started: never without the bound.
        verdict("law 14", f"{what} are bound in a unit, {user}", re.search(pattern, said, re.S) is not None and re.search(shown, control) is not None, f"{said} / {control}")


def next_start(user: str) -> Steps:
    """A link that one run planted moves no later one."""
    machine.succeed(f"rm -rf /srv/kli-vm/{user}/victim && mkdir /srv/kli-vm/{user}/victim && chmod 0777 /srv/kli-vm/{user}/victim")
    below = variant("below", {"writablePaths": ["~/.cache/tool", "~/.cache/tool/sub"]})
    said = (yield outside(user, f'"$L" run --spec "$SPEC" -- ln -s /srv/kli-vm/{user}/victim {HOMES[user]}/.cache/tool/sub; ls -d ~/.cache/tool/sub'))[1]
    code, refused = (yield outside(user, f'"$L" run --spec {below} -- bash -c "touch effect ~/.cache/tool/sub/x"'))
    left = root(f"ls /srv/kli-vm/{user}/victim {project(user)}/effect 2>/dev/null")
    verdict("law 16", f"a planted link is refused at the next start, {user}", code == 125 and "is a symbolic link inside" in refused and "x" not in left.split() and "effect" not in left and "sub" in said, refused + left)
    code, said = (yield outside(user, f'rm ~/.cache/tool/sub; "$L" run --spec {below} -- bash -c "touch ~/.cache/tool/sub/x" && ls ~/.cache/tool/sub; rm -r ~/.cache/tool/sub'))
    verdict("law 16", f"control: a directory there is writable, {user}", code == 0 and said.strip() == "x", said)


def closed(user: str, what: str, start: str, pattern: str, before: str = "true", after: str = "true") -> Steps:
    """Nothing is started, with a sentence and its repair; and the same starts when it is put right."""
    machine.succeed(f"bash -c {quote(before)}")
    code, said = (yield outside(user, f"{start} touch effect"))
    effect = root(f"ls {project(user)}/effect 2>/dev/null")
    machine.succeed(f"bash -c {quote(after)}")
    verdict("law 11", f"{what}: 125, the repair, nothing started, {user}", code == 125 and re.search(pattern, said, re.S) is not None and effect == "", f"{code} {said} {effect}")
    code, said = (yield outside(user, '"$L" run --spec "$SPEC" -- bash -c "touch effect && rm effect"'))
    verdict("law 11", f"control: it starts afterwards, {user}", code == 0, said)


# What keeps users from user namespaces, with what it is normally; the second is Debian's own.
SWITCHES = {}
for switch in ["user.max_user_namespaces", "kernel.unprivileged_userns_clone"]:
    code, value = machine.execute(f"sysctl -n {switch} 2>/dev/null")
    if code == 0:
        SWITCHES[switch] = value.strip()


def fail_closed(user: str) -> Steps:
    start = '"$L" run --spec "$SPEC" --'
    for switch, value in SWITCHES.items():
        off, normal = f"sysctl -qw {switch}=0", f"sysctl -qw {switch}={value}"
        machine.succeed(off)
        code, said = (yield outside(user, '"$L" doctor "$SPEC"'))
        machine.succeed(normal)
        verdict("law 11", f"the doctor names `{switch}` and its repair, {user}", code != 0 and f"sysctl -w {switch}=" in said, said)
        yield from closed(user, f"{switch}=0", start, f"sysctl -w {switch}=", off, normal)
    wrong = variant("wrong", {"denyReed": []})
    yield from closed(user, "a misspelt key", f'"$L" run --spec {wrong} --', "did you mean `denyRead`")


def nested(user: str) -> Steps:
    """In a container, which has user namespaces and a /proc with masks."""
    container = "unshare -Urmpf --mount-proc bash -c"
    masks = "mount --bind /dev/null /proc/keys && mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys;"
    look = "cat ~/.netrc ~/.ssh/id; (echo x >/proc/sys/kernel/hostname) 2>&1; (echo x >~/outside) 2>&1; kill -0 $OUTER; grep -c '^Cap[A-Z][a-z]*:.0*$' /proc/self/status; touch effect; echo end"
    spec = variant("nested", {"nestedUserns": True})
    tail = f"-- bash -c {quote(look)}"
    for masked, chosen, what in [(masks, '"$SPEC"', "refuses and names `nestedUserns`"), (masks, spec, "runs with `nestedUserns`"), ("", '"$SPEC"', "control: runs where /proc has no masks")]:
        # A number that no process inside has.
        begin = f'{masked} for i in $(seq 40); do /bin/sh -c :; done; sleep 60 & export OUTER=$!; "$L" run --spec {chosen} {tail}; code=$?; kill $OUTER; exit $code'
        code, said = (yield outside(user, f"{container} {quote(begin)}; code=$?; ls effect; rm -f effect; exit $code"))
        if chosen != spec and masked:
            holds = code == 125 and "set `nestedUserns` to true" in said and "\neffect" not in said
        else:
            holds = code == 0 and "\n5\nend\neffect" in said and "SECRET-" not in said and READ_ONLY in said
            holds = holds and re.search("No such process|not permitted", said) is not None
        verdict("law 11", f"a nested container {what}, {user}", holds, f"{code} {said}")


def entrypoints(user: str) -> Steps:
    """The installed `kli` itself: a turn whose command looks around, and the same kli without a jail."""
    baked = machine.succeed("cat /etc/kli-vm/baked.json")
    machine.succeed(f"mkdir -p /srv/kli-vm/config/kli /srv/kli-vm/evil && printf %s {quote(baked)} >/srv/kli-vm/config/kli/settings.json")
    machine.succeed("echo '{\"model\": \"replay/evil\", \"providers\": {\"replay\": {\"file\": \"/nonexistent\"}}}' >/srv/kli-vm/evil/settings.json; echo 'touch /srv/kli-vm/open/hijacked' >/srv/kli-vm/evil/env")
    turn = "-p go --profile autonomous --max-turns 9"
    see = "; cat look.txt; rm -f look.txt; ls ~/outside /srv/kli-vm/open/hijacked 2>/dev/null; rm -f ~/outside"
    code, said = (yield outside(user, f"XDG_CONFIG_HOME=/srv/kli-vm/config {FACTS['plain']} {turn} --model replay/vm --no-session{see}"))
    plain = all(f"SECRET-{name}" in said for name in ["SSH", "AWS", "NETRC", "ENV", "PROVIDER", "DENIED-VALUE-1"]) and "/outside" in said
    verdict("kli", f"control: without a jail a command of kli's reads and writes it all, {user}", plain, said)
    steer = "env KLI_BAKED=/srv/kli-vm/evil BASH_ENV=/srv/kli-vm/evil/env ENV=/srv/kli-vm/evil/env"
    for surface, program in FACTS["entrypoints"].items():
        if surface == "home-manager" and user != "tester":
            continue
        code, said = (yield outside(user, f"code=0; {steer} {program} {turn} || code=$?{see}; exit $code"))
        holds = code == 0 and "I have looked." in said and READ_ONLY in said and "\nend" in said and "SHOWN=shown-value" in said
        holds = holds and "SECRET-" not in said and re.search("CapBnd:\t0+\n", said) is not None and "hijacked" not in said and "/outside\n" not in said
        verdict("kli", f"the {surface} entrypoint confines a whole turn, whatever the caller sets, {user}", holds, f"{code} {said}")


RECIPE = {"version": 1, "denyRead": ["~/.aws", "./.env", "./secret", "~/absent"], "denyEnv": ["TOKEN", "AWS_*", "VM_*"], "writablePaths": ["~/.cache/tool"], "env": {"SHOWN": "shown-value"}}


def recipe(kind: str, user: str, networks: list[str], shown: str) -> Steps:
    """A recipe of `kli sandbox recipe`: the assertions of inside.sh, and a turn of kli."""
    machine.succeed(f"mkdir -p {HOMES[user]}/.config/kli && printf %s {quote(json.dumps({'providers': {'replay': {'file': '~/.config/kli/recording.jsonl'}}}))} >{HOMES[user]}/.config/kli/settings.json")
    machine.succeed(f"cp /etc/kli-vm/recording.jsonl {HOMES[user]}/.config/kli/; chown -R {user}: {HOMES[user]}/.config; test -L /srv/kli-vm/bin/kli || {{ mkdir -p /srv/kli-vm/bin; ln -s {FACTS['plain']} /srv/kli-vm/bin/kli; }}")
    for network in networks:
        name = f"{kind}, {user}, network {network}"
        spec = f"/srv/kli-vm/spec/{kind}-{network}.json"
        machine.succeed(f"printf %s {quote(json.dumps({**RECIPE, 'network': network == 'on'}))} >{spec}")
        script = f"/srv/kli-vm/{user}/{kind}-{network}"
        code, said = (yield outside(user, f"{FACTS['plain']} sandbox recipe {kind} --spec {spec} --output {script}"))
        verdict("recipe", f"{name}: is made", code == 0 and "is made" in said, said)
        with_path = f"PATH=/srv/kli-vm/bin:{quote(PATH)} KLI_IMAGE=localhost/kli-test"
        code, said = (yield outside(user, f'KLI_PROGRAM=bash {script} -c "$(cat /etc/kli-vm/inside.sh)" inside {network} 192.0.2.1 8080 {shown}', with_path))
        lines = re.findall(r"^ok (.*)$", said, re.M)
        for line in lines:
            verdict("recipe", f"{name}: {line}", True, "")
        verdict("recipe", f"{name}: all of them hold", code == 0 and len(lines) == 14, f"{code} {said}")
        made = root(f"cat {project(user)}/made-inside {project(user)}/.env {project(user)}/secret/key")
        verdict("recipe", f"{name}: what was written inside is there, the secrets are as before", made == "written\nSECRET-ENV\nSECRET-KEY\n", made)
        if network == networks[-1]:
            code, said = (yield outside(user, f"{script} -p go --model replay/x --profile autonomous --max-turns 9; cat note.txt; rm -f note.txt made-inside", with_path))
            verdict("recipe", f"{name}: a turn of kli", "The note is there.\nfrom inside" in said, said)


ALL = [while_running, life, works, reported, limits, next_start, fail_closed, nested, entrypoints]
for steps in ALL if FACTS["all"] else []:
    both(steps, USERS)
for user in USERS:
    # A variable of the manager's own, which no caller handed over.
    machine.succeed(outside(user, f"systemctl {'--user' if user != 'root' else ''} set-environment TOKEN=DENIED-VALUE-4"))
if FACTS["all"]:
    both(lambda user: recipe("systemd-run", user, ["on", "off"] if user == "tester" else ["on"], "yes"), USERS)

if FACTS["container"]:
    machine.succeed("systemctl stop kli-vm-server; rm -f /run/docker.sock; systemctl start docker.socket docker")
    machine.succeed(f"{FACTS['container']}", "usermod -aG docker tester")
    machine.succeed('systemd-run --quiet --unit=kli-vm-outer --setenv=PATH="$PATH" perl /srv/kli-vm/serve.pl 192.0.2.1:8080')
    both(lambda user: recipe("docker", user, ["on", "off"], "no"), USERS)

print(f"{len(held)} assertions hold, {len(broken)} do not", flush=True)
assert not broken, "; ".join(broken)
