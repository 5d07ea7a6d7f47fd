# The five assertions of every recipe, from inside: one line each, `ok …` or `FAILED …`; exits 1 if
# one failed. bash, since only it opens a connection without a further program.
# Arguments: NETWORK (on or off) ADDRESS PORT HOME-IS-SHOWN (yes or no)
network=$1 address=$2 port=$3 shown=$4
failed=0
verdict() {
  if [ "$1" = 0 ]; then printf 'ok %s\n' "$2"; else
    printf 'FAILED %s: %s\n' "$2" "$3"
    failed=1
  fi
}
says() { case $2 in *"$1"*) return 0 ;; *) return 1 ;; esac; }

# 1. The workspace is writable, and is the current directory.
said=$(echo written >made-inside 2>&1 && cat made-inside)
verdict "$([ "$said" = written ] && [ "$(pwd -P)" = "$PWD" ]; echo $?)" 'workspace writable' "$said"

# 2. What is outside is not, and the system says why.
for place in "$HOME" /etc /usr; do
  said=$( { echo x >"$place/made-inside"; } 2>&1)
  says 'Read-only file system' "$said" && [ ! -e "$place/made-inside" ]
  verdict $? "outside not writable: $place" "$said"
done

# 3. What is hidden is empty, of its kind, and cannot be filled.
[ -f .env ] && [ ! -s .env ] && [ -z "$(cat .env)" ]
verdict $? 'hidden file empty' "$(ls -l .env 2>&1)"
said=$( { echo x >.env; } 2>&1)
says 'Read-only file system' "$said"
verdict $? 'hidden file not writable' "$said"
[ -d secret ] && [ -z "$(ls -A secret)" ]
verdict $? 'hidden directory empty' "$(ls -lA secret 2>&1)"
said=$( { echo x >secret/made; } 2>&1)
says 'Read-only file system' "$said"
verdict $? 'hidden directory not writable' "$said"
if [ "$shown" = yes ]; then
  [ -d "$HOME/.aws" ] && [ -z "$(ls -A "$HOME/.aws")" ]
else
  [ ! -e "$HOME/.aws" ]
fi
verdict $? 'hidden directory of the home' "$(ls -lA "$HOME/.aws" 2>&1)"
[ "$(cat plain)" = plain ]
verdict $? 'control: what is not hidden is read' "$(ls -l plain 2>&1)"

# 4. Denied variables are in no environment that can be read; one that is not denied is.
found=$(cat /proc/[0-9]*/environ 2>/dev/null | tr '\0' '\n' | grep -a 'DENIED-VALUE')
[ -z "$found" ] && [ -z "${TOKEN-}" ] && [ -z "${AWS_SECRET_ACCESS_KEY-}" ]
verdict $? 'variables gone' "$found"
cat /proc/[0-9]*/environ 2>/dev/null | tr '\0' '\n' | grep -qa 'SHOWN=shown-value'
verdict $? 'control: another variable is seen by the same look' "${SHOWN-}"

# 5. The network is as chosen.
said=$( { exec 3<>"/dev/tcp/$address/$port" && head -n 1 <&3; } 2>&1)
if [ "$network" = on ]; then
  says hello "$said"
else
  # Nothing but loopback; on that nobody listens.
  { says 'Network is unreachable' "$said" || says 'Connection refused' "$said"; } &&
    [ "$(grep -c : /proc/net/dev)" -le 1 ]
fi
verdict $? "network $network" "$said, $(grep -c : /proc/net/dev) interfaces"

grep -q '^CapEff:[[:space:]]*0*$' /proc/self/status && grep -q '^CapBnd:[[:space:]]*0*$' /proc/self/status
verdict $? 'no capabilities' "$(grep Cap /proc/self/status)"
exit $failed
