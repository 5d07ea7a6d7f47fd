#!/bin/sh
# Stands in for kli: tells what it can see and do, one `name=value` a line. `config check` accepts
# any settings, because the build of a configured kli asks its kli to judge them.
case "${1-} ${2-}" in
"config check") exit 0 ;;
esac

# The message of a failed write, `written` otherwise.
write() {
	message=$( (: >"$1") 2>&1) && echo written && return
	case $message in
	*"Read-only file system"*) echo read-only ;;
	*"Permission denied"*) echo denied ;;
	*) echo "$message" ;;
	esac
}
hex() { printf %s "$1" | od -An -v -tx1 | tr -d ' \n'; }

echo "denied_entries=$(ls -A "$HOME/.aws" | wc -l)"
echo "denied_file=$(cat "$HOME/.aws/credentials" 2>/dev/null)"
echo "denied_write=$(write "$HOME/.aws/new")"
echo "variable=${AWS_SECRET_ACCESS_KEY-absent}"
echo "in_environ=$(cat /proc/[0-9]*/environ 2>/dev/null | tr '\0' '\n' | grep -c '^AWS_SECRET_ACCESS_KEY=')"
echo "kept_variable=${PROBE_KEPT-absent}"
echo "writable=$(write "$HOME/.cache/kli/made")"
echo "workspace=$(write ./made)"
echo "home=$(write "$HOME/made")"
echo "outside=$(write "$HOME/../outside/made")"
echo "store=$(write "$0")"
echo "network=$(readlink /proc/self/ns/net)"
echo "processes=$(readlink /proc/self/ns/pid)"
echo "no_new_privs=$(sed -n 's/^NoNewPrivs:[[:space:]]*//p' /proc/self/status)"
echo "baked=${KLI_BAKED-absent}"
echo "plan=$(tr -d '\n' </run/kli/sandbox.json 2>/dev/null)"
echo "state=${KLI_STATE_DIR-absent}"
echo "preload=${LD_PRELOAD-absent}"
echo "settings=$(cat "$KLI_BAKED/settings.json" 2>/dev/null)"
echo "extra=$(kli-test-extra 2>/dev/null)"
echo "path=$PATH"
[ -z "${PROBE_HARD-}" ] || echo "hard=$(hex "$PROBE_HARD")"
for argument; do
	echo "argument=$(hex "$argument")"
done
# What the names in `torture` have become: a place, the name in it, what it is and what a write does.
entries() {
	for entry in "$2"/* "$2"/*/*; do
		name=$(hex "${entry#"$2/"}")
		if [ -p "$entry" ]; then
			echo "$1=$name:pipe:$(timeout 2 head -n 1 "$entry")"
		elif [ "$1" = s ]; then
			[ ! -f "$entry" ] || echo "$1=$name:file:$(cat "$entry")"
		elif [ -d "$entry" ]; then
			echo "$1=$name:directory:$(write "$entry/made")"
		elif [ -f "$entry" ]; then
			size=$(cat "$entry" | wc -c)
			echo "$1=$name:$size:$(write "$entry")"
		fi
	done
}
if [ -d "$HOME/d" ]; then
	for place in w rw d s e k; do entries $place "$HOME/$place"; done
	entries g "$HOME/g/x"
	entries p ./p
	[ -z "${KLI_SECRETS_FD-}" ] || echo "handed=$(eval "cat <&$KLI_SECRETS_FD")"
	env | grep '^PROBE_FILE_'
fi
exit 0
