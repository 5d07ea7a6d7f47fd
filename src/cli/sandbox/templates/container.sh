engine=$(command -v @ENGINE@) || die '@ENGINE@ is missing: install it'
image=${KLI_IMAGE-}
[ -n "$image" ] || die 'KLI_IMAGE is not set: name an image that holds a shell and git'
unset KLI_IMAGE

# An empty file to lay over files, and an empty directory.
scratch=$(mktemp -d /var/tmp/kli-recipe.XXXXXX) || die 'no temporary directory can be made in /var/tmp'
trap 'rm -rf "$scratch"' EXIT
chmod 0755 "$scratch"
mkdir -m 0555 "$scratch/directory"
: >"$scratch/file"
chmod 0444 "$scratch/file"

# An option of the engine separates by commas; what it cannot say is refused.
sayable() {
  case $1 in
    *[,\"]* | *"$newline"*) die "\`$1\` holds a comma, a quote or a line feed, which @ENGINE@ cannot mount: rename it" ;;
  esac
}

words=$#
set -- "$@" run --rm --init --interactive --read-only --cap-drop ALL \
  --security-opt no-new-privileges --ipc private@OPTIONS@ \
  --workdir "$workspace" --env HOME="${home:-/}" --env TMPDIR=/tmp
@USER_NAMESPACE@if [ -t 0 ] && [ -t 1 ]; then set -- "$@" --tty; fi
@TMP_DIRECTORY@size=$(awk '/^MemTotal:/ { printf "%d", $2 * 1024 / 8; exit }' /proc/meminfo)
set -- "$@" @TMP@
@MOUNTS@
for wish in @SOCKETS@; do
  if resolve "$wish"; then
    @RO@
  fi
done
# The host's kli, where there is one; otherwise the image's own is started.
if [ "$program" = kli ] && path=$(command -v kli) && resolve "$path"; then
  sayable "$path"
  set -- "$@" --mount "type=bind,source=$path,target=/usr/local/bin/kli,readonly"
fi

# A container has no variables of the host's but these.
@ENV_FILES@set -f
IFS=$newline
for name in $(awk 'BEGIN { for (name in ENVIRON) print name }'); do
  case $name in
@ENVIRONMENT@  esac
done
unset IFS
set +f
set -- "$@"@ENV@

set -- "$@" "$image" "$program"
while [ "$words" -gt 0 ]; do
  word=$1
  shift
  set -- "$@" "$word"
  words=$((words - 1))
done

# The engine is told of signals, and the empty files are removed after it.
exec 3<&0
"$engine" "$@" <&3 3<&- &
child=$!
exec 3<&-
trap 'kill -TERM "$child" 2>/dev/null || true' TERM HUP
trap 'kill -INT "$child" 2>/dev/null || true' INT
code=0
wait "$child" || code=$?
while kill -0 "$child" 2>/dev/null; do
  code=0
  wait "$child" || code=$?
done
exit "$code"
