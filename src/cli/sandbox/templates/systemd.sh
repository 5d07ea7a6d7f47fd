run=$(command -v systemd-run) || die 'systemd-run is missing: this recipe is for hosts that run systemd'
program=$(command -v -- "$program") || die 'kli is not on PATH: install it, or set KLI_PROGRAM'
real=$program
if resolve "$program"; then real=$path; fi
if [ "$uid" = 0 ]; then manager=--system; else manager=--user; fi
# Its variables, which are not the caller's.
variables=$(systemctl "$manager" show-environment) || {
  if [ "$uid" = 0 ]; then die 'the manager of the system does not answer: this recipe is for hosts that systemd has started'; fi
  die "your user's manager does not answer: log in as this user (su and sudo are no login), or run as root \`loginctl enable-linger $(id -un)\`, and set XDG_RUNTIME_DIR to \`/run/user/$uid\`"
}

# An empty file to lay over files, and an empty directory.
scratch=$(mktemp -d /var/tmp/kli-recipe.XXXXXX) || die 'no temporary directory can be made in /var/tmp'
trap 'rm -rf "$scratch"' EXIT
chmod 0755 "$scratch"
mkdir -m 0555 "$scratch/directory"
: >"$scratch/file"
chmod 0444 "$scratch/file"

# A path as a property of systemd says it.
escaped() {
  case $1 in
    *"$newline"*) die "\`$1\` holds a line feed, which systemd cannot mount: rename it" ;;
  esac
  escaped=$(printf '%s' "$1" | sed "s/[\\\\\"': 	]/\\\\&/g")
}

# What the inside finds out before the program starts: a manager that is too old, or a kernel that
# lacks something, ignores a property without a word.
check='
fail() { printf "%s\n" "kli-recipe: $1: nothing was started" >&2; exit 125; }
outside=$1 network=$2 bus=$3
shift 3
if (: >"$outside/.kli-recipe.$$") 2>/dev/null; then
  rm -f "$outside/.kli-recipe.$$"
  fail "systemd does not make \`$outside\` read-only"
fi
[ "$network" = on ] || [ "$(grep -c : /proc/net/dev)" -le 1 ] || fail "systemd does not cut the network"
[ ! -S "$bus" ] || fail "systemd leaves the bus of the session in reach"
while [ "$1" != // ]; do
  if [ -d "$1" ]; then
    [ -z "$(ls -A "$1")" ] || fail "systemd does not hide \`$1\`"
  else
    [ ! -s "$1" ] || fail "systemd does not hide \`$1\`"
  fi
  shift
done
shift
exec "$@"
'

@TMP_DIRECTORY@# Memory file systems together stay below a quarter of the memory.
size=$(awk '/^MemTotal:/ { printf "%d", $2 * 1024 / 8; exit }' /proc/meminfo)
unit=kli-recipe-$$-$(date +%s)
words=$#
set -- "$@" "$manager" --quiet --collect --wait --service-type=exec --unit="$unit" \
  --property=PrivateUsers=yes --property=ProtectSystem=strict --property=ProtectHome=read-only --property=NoNewPrivileges=yes \
  --property=CapabilityBoundingSet= --property=AmbientCapabilities= \
  --property=ProtectKernelTunables=yes --property=ProtectControlGroups=yes \
  --property=RestrictSUIDSGID=yes --property=LockPersonality=yes --property=PrivateIPC=yes \
  --property=KeyringMode=private --property=TimeoutStopSec=10 \
  --property="SystemCallFilter=~@mount @module @raw-io @reboot @swap @clock bpf userfaultfd io_uring_setup perf_event_open keyctl add_key request_key" \
  --property=SystemCallErrorNumber=EPERM@PROPERTIES@
if [ "$manager" = --system ]; then
  set -- "$@" --property=PrivateDevices=yes
fi
set -- "$@" @TMP@ --property=TemporaryFileSystem="/dev/shm:size=$((size / 4)),mode=1777" \
  --property=TemporaryFileSystem="/run:ro,size=$((size / 8))"
for wish in @RUN@; do
  if [ -e "$wish" ]; then set -- "$@" --property=BindReadOnlyPaths="$wish"; fi
done
if [ -t 0 ] && [ -t 1 ]; then set -- "$@" --pty; else set -- "$@" --pipe; fi
escaped "$workspace"
set -- "$@" --working-directory="$workspace"
for wish in "${home:-/}" "${program%/*}" "${real%/*}"; do
  case $wish in
    /tmp/?* | /run/?*) if resolve "$wish"; then
      @RO@
    fi ;;
  esac
done
@MOUNTS@
for wish in @SOCKETS@; do
  if resolve "$wish"; then
    @RO@
  fi
done

# The manager's variables are not the caller's: what is denied is taken out of both.
set -- "$@" --setenv=HOME="${home:-/}" --setenv=TMPDIR=/tmp@ENV@
@ENV_FILES@set -f
IFS=$newline
for name in $(awk 'BEGIN { for (name in ENVIRON) print name }'); do
  case $name in
@ENVIRONMENT@  esac
done
for name in $(printf '%s\n' "$variables" | sed -n 's/^\([A-Za-z_][A-Za-z0-9_]*\)=.*/\1/p'); do
  case $name in
@MANAGER@  esac
done
unset IFS
set +f

set -- "$@" -- /bin/sh -c "$check" kli-recipe "@OUTSIDE@" @NETWORK@ "$xdg_runtime/bus"
masked=//
for wish in @HIDDEN@; do
  resolve "$wish" || continue
  if within "$masked" "$path"; then continue; fi
  set -- "$@" "$path"
  masked=$masked$path//
done
set -- "$@" // "$program"
while [ "$words" -gt 0 ]; do
  word=$1
  shift
  set -- "$@" "$word"
  words=$((words - 1))
done

# The unit belongs to the manager: it ends with this script because this script ends it.
stop() { systemctl "$manager" stop "$unit.service" 2>/dev/null || true; }
exec 3<&0
"$run" "$@" <&3 3<&- &
child=$!
exec 3<&-
trap stop TERM HUP INT
code=0
wait "$child" || code=$?
while kill -0 "$child" 2>/dev/null; do
  code=0
  wait "$child" || code=$?
done
exit "$code"
