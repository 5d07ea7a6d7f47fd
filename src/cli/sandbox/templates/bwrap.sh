bwrap=$(command -v bwrap) || die 'bubblewrap is missing: install the package `bubblewrap`'
program=$(command -v -- "$program") || die 'kli is not on PATH: install it, or set KLI_PROGRAM'
real=$program
if resolve "$program"; then real=$path; fi
case $bwrap in
  "$workspace"/*) die "\`$bwrap\` lies in the workspace, where the inside could have put it" ;;
esac
env --default-signal=INT true 2>/dev/null || die '`env` is too old: coreutils 8.31 or newer is needed'

# An empty file to lay over files, and an empty directory.
scratch=$(mktemp -d /var/tmp/kli-recipe.XXXXXX) || die 'no temporary directory can be made in /var/tmp'
trap 'rm -rf "$scratch"' EXIT
mkdir -m 0555 "$scratch/directory"
: >"$scratch/file"
chmod 0444 "$scratch/file"

@TMP_DIRECTORY@# Memory file systems together stay below a quarter of the memory.
size=$(awk '/^MemTotal:/ { printf "%d", $2 * 1024 / 8; exit }' /proc/meminfo)
words=$#
set -- "$@" --ro-bind / / --unshare-user --unshare-pid --unshare-ipc --unshare-uts \
  --unshare-cgroup-try --cap-drop ALL --die-with-parent --info-fd 4@NAMESPACES@
@PROC@
set -- "$@" --dev /dev --perms 1777 --size $((size / 4)) --tmpfs /dev/shm --remount-ro /dev
set -- "$@" @TMP@ --size $((size / 8)) --tmpfs /run
for wish in @RUN@; do
  if [ -e "$wish" ]; then set -- "$@" --ro-bind "$wish" "$wish"; fi
done
case $xdg_runtime in
  /run/user/?*) set -- "$@" --perms 0700 --size $((size / 8)) --tmpfs "$xdg_runtime" ;;
esac
# A home or a program in a tree that is replaced is shown again.
for wish in "${home:-/}" "${program%/*}" "${real%/*}"; do
  case $wish in
    /tmp/?* | /run/?*) if resolve "$wish"; then set -- "$@" --ro-bind "$path" "$path"; fi ;;
  esac
done
@MOUNTS@
for wish in @SOCKETS@; do
  if resolve "$wish"; then set -- "$@" --ro-bind "$path" "$path"; fi
done
set -- "$@" --remount-ro /run --chdir "$workspace"

# Terminal injection: off in the kernel, or a session without the terminal.
own_session=
if [ -t 0 ] || [ -t 1 ] || [ -t 2 ]; then
  if [ "$(cat /proc/sys/dev/tty/legacy_tiocsti 2>/dev/null || echo 1)" != 0 ]; then
    own_session=yes
    set -- "$@" --new-session
  fi
fi

# The program's words stood first.
set -- "$@" -- env --default-signal=INT,QUIT "$program"
while [ "$words" -gt 0 ]; do
  word=$1
  shift
  set -- "$@" "$word"
  words=$((words - 1))
done

# Variables: taken away before bubblewrap is executed, whose own process keeps what it is given.
set -- @LIMITS@"$bwrap" "$@"
set -- TMPDIR=/tmp PWD="$workspace"@ENV@ "$@"
@ENV_FILES@@SECRETS@set -f
IFS=$newline
for name in $(awk 'BEGIN { for (name in ENVIRON) print name }'); do
  case $name in
@ENVIRONMENT@  esac
done
unset IFS
set +f
set -- env "$@"
exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-

# Sends a signal to the program; bubblewrap itself would die of it, and the program with it, before
# it could save. The second TERM ends everything.
forward() {
  first=$(sed -n 's/.*"child-pid": *\([0-9]*\).*/\1/p' "$scratch/info")
  inner=$(cat "/proc/${first:-0}/task/${first:-0}/children" 2>/dev/null) || inner=
  # One word a process.
  # shellcheck disable=SC2086
  [ -n "$inner" ] && kill -"$1" $inner 2>/dev/null || kill -KILL "$child" 2>/dev/null || true
  [ "$1" = INT ] || trap 'kill -KILL "$child" 2>/dev/null || true' TERM HUP
}
exec 3<&0
@START@
child=$!
exec 3<&-
trap 'forward TERM' TERM HUP
# From a terminal ^C reaches the program by itself.
if [ -z "$own_session" ] && { [ -t 0 ] || [ -t 1 ] || [ -t 2 ]; }; then
  trap : INT QUIT
else
  trap 'forward INT' INT QUIT
fi
code=0
wait "$child" || code=$?
while kill -0 "$child" 2>/dev/null; do
  code=0
  wait "$child" || code=$?
done
exit "$code"
