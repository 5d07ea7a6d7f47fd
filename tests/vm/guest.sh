# Runs in the virtual machine, as root: every recipe but bubblewrap's, for an ordinary user and for
# root where the kind has both. Prints one line an assertion; exits 1 if one failed.
set -u
here=/run/vmtest
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8
failed=0
install -m 0755 "$here/kli" /usr/local/bin/kli
say() { printf '%s\n' "$*"; }
bad() {
  say "FAILED $*"
  failed=1
}

# A server that is not on loopback: the address is the machine's own.
ip link add dummy0 type dummy && ip addr add 192.0.2.1/24 dev dummy0 && ip link set dummy0 up
perl -MIO::Socket::INET -e '
  my $server = IO::Socket::INET->new(LocalAddr => "192.0.2.1", LocalPort => 8080, Listen => 5, ReuseAddr => 1) or die;
  while (my $client = $server->accept) { print $client "hello\n"; close $client }' &
ip route add default dev dummy0 2>/dev/null

loginctl enable-linger tester
for _ in $(seq 100); do [ -S /run/user/1000/bus ] && break; sleep 0.2; done
id tester >/dev/null || bad 'no user tester'

# as USER COMMAND…: with the variables of a session of that user, and what shall not come along.
as() {
  user=$1
  shift
  uid=$(id -u "$user")
  home=$(getent passwd "$user" | cut -d: -f6)
  (cd "$place" && runuser -u "$user" -- env -i HOME="$home" USER="$user" LOGNAME="$user" \
    PATH="$PATH" LC_ALL="$LC_ALL" XDG_RUNTIME_DIR="/run/user/$uid" \
    DBUS_SESSION_BUS_ADDRESS="unix:path=/run/user/$uid/bus" \
    TOKEN=DENIED-VALUE-1 AWS_SECRET_ACCESS_KEY=DENIED-VALUE-2 KLI_IMAGE=localhost/kli-test \
    "$@" </dev/null)
}

# arrange USER: a home with secrets, a project, settings and a recording.
arrange() {
  home=$(getent passwd "$1" | cut -d: -f6)
  place="$home/project of $1"
  rm -rf "$place"
  mkdir -p "$place/secret" "$home/.aws" "$home/.config/kli"
  echo SECRET >"$place/.env"
  echo SECRET >"$place/secret/key"
  echo SECRET >"$home/.aws/credentials"
  echo plain >"$place/plain"
  git init -q "$place"
  cp "$here/settings.json" "$home/.config/kli/settings.json"
  cp "$here/recording.jsonl" "$home/.config/kli/recording.jsonl"
  chown -R "$1:$1" "$home"
}

# recipe KIND USER HOME-IS-SHOWN: both networks, the assertions from inside, and a turn of kli.
recipe() {
  kind=$1 user=$2 shown=$3
  arrange "$user"
  for network in on off; do
    label="$kind, $user, network $network"
    say "== $label"
    script=/opt/vmtest-$kind-$user-$network
    sed "s/@NETWORK@/$([ $network = on ] && echo true || echo false)/" "$here/spec.json" >"$script.json"
    kli sandbox recipe "$kind" --spec "$script.json" --output "$script" 2>"$script.err" ||
      bad "$label: no recipe: $(cat "$script.err")"
    chmod 0755 "$script"
    # Only this user's own directory is known to it.
    as "$user" KLI_PROGRAM=bash timeout 1800 "$script" -c "$(cat "$here/inside.sh")" inside "$network" 192.0.2.1 8080 "$shown" >"$script.out" 2>&1
    code=$?
    sed "s/^/  /" "$script.out"
    [ $code = 0 ] && [ "$(grep -c '^ok ' "$script.out")" = 14 ] || bad "$label: assertions, exit $code"
    [ "$(cat "$place/made-inside" 2>/dev/null)" = written ] || bad "$label: what was written inside is not there"
    [ "$(cat "$place/.env")" = SECRET ] && [ "$(cat "$place/secret/key")" = SECRET ] || bad "$label: a secret was changed"
    if [ $network = on ]; then
      as "$user" KLI_PROGRAM=bash timeout 1800 "$script" -c 'exit 42' >"$script.out" 2>&1
      code=$?
      [ $code = 42 ] && say '  ok exit code passes' || bad "$label: exit code $code: $(cat "$script.out")"
    fi
    as "$user" timeout 1800 "$script" -p go --model replay/x --profile autonomous --max-turns 9 >"$script.out" 2>&1
    code=$?
    if [ $code = 0 ] && grep -q '^The note is there.$' "$script.out" && [ "$(cat "$place/note.txt")" = 'from inside' ]; then
      say '  ok a turn of kli'
    else
      bad "$label: kli, exit $code: $(cat "$script.out")"
    fi
    [ "$(find "$home/.local/state/kli/sessions" -name '*.jsonl' | wc -l)" -ge 1 ] || bad "$label: no session was kept"
    rm -f "$place/made-inside" "$place/note.txt"
  done
  left=$(ls -d /var/tmp/kli-recipe.* 2>/dev/null)
  [ -z "$left" ] || bad "$kind, $user: left behind: $left"
}

# devcontainer: the file's own commands, carried out by podman as an editor's tool carries them out.
devcontainer() {
  user=tester
  arrange "$user"
  for network in on off; do
    label="devcontainer, $user, network $network"
    say "== $label"
    out=/opt/vmtest-devcontainer-$network
    sed "s/@NETWORK@/$([ $network = on ] && echo true || echo false)/" "$here/spec.json" >"$out.json"
    rm -rf "$place/.devcontainer"
    as "$user" kli sandbox recipe devcontainer --spec "$out.json" --output .devcontainer >"$out" 2>&1 ||
      bad "$label: no recipe: $(cat "$out")"
    as "$user" kli sandbox recipe devcontainer --spec "$out.json" --output .devcontainer >"$out" 2>&1
    [ $? = 2 ] && grep -q 'is there already' "$out" && say '  ok refuses to overwrite' || bad "$label: overwrites: $(cat "$out")"
    # The comments stand before the object; the two variables of the format are put in.
    sed -e '/^\/\//d' -e "s|\${localWorkspaceFolder}|$place|g" -e "s|\${localEnv:HOME}|$home|g" \
      -e 's|${localEnv:[A-Z_]*}||g' "$place/.devcontainer/devcontainer.json" >"$out.file"
    jq -e . "$out.file" >/dev/null || bad "$label: no JSON"
    words() { jq -r "$1 | @sh" "$out.file" | tr '\n' ' '; }
    eval "as $user $(words '.initializeCommand')" || bad "$label: initializeCommand"
    dockerfile=$(jq -r .build.dockerfile "$out.file") context=$(jq -r .build.context "$out.file")
    as "$user" timeout 1800 podman build -q --build-arg BASE=localhost/kli-test -t localhost/kli-dev \
      -f ".devcontainer/$dockerfile" ".devcontainer/$context" >"$out" 2>&1 || bad "$label: build: $(cat "$out")"
    folder=$(jq -r .workspaceFolder "$out.file")
    init=$(jq -r 'if .init then "--init" else "" end' "$out.file")
    remote=$(jq -r .remoteUser "$out.file")
    name=dev-$network
    eval "as $user timeout 1800 podman run -d --rm --name $name --userns keep-id --user $remote $init \
      $(words '.runArgs') $(words '([.workspaceMount] + .mounts)[] | ["--mount", .]') \
      $(words '.containerEnv | to_entries[] | ["--env", "\(.key)=\(.value)"]') \
      localhost/kli-dev sleep 600" >"$out" 2>&1 || bad "$label: start: $(cat "$out")"
    eval "as $user timeout 1800 podman exec -w '$folder' -u $remote $name $(words '.postStartCommand')" >"$out" 2>&1 &&
      grep -q '^kli ' "$out" && say '  ok postStartCommand' || bad "$label: postStartCommand: $(cat "$out")"
    as "$user" timeout 1800 podman exec -w "$folder" -u "$remote" "$name" bash -c "$(cat "$here/inside.sh")" inside "$network" 192.0.2.1 8080 no >"$out" 2>&1
    code=$?
    sed 's/^/  /' "$out"
    [ $code = 0 ] && [ "$(grep -c '^ok ' "$out")" = 14 ] || bad "$label: assertions, exit $code"
    as "$user" timeout 1800 podman exec -w "$folder" -u "$remote" "$name" bash -c 'echo x >.devcontainer/Dockerfile' >"$out" 2>&1
    [ $? != 0 ] && grep -q 'Read-only file system' "$out" && say '  ok its own files are read-only' || bad "$label: .devcontainer can be written: $(cat "$out")"
    as "$user" timeout 1800 podman exec -w "$folder" -u "$remote" "$name" kli -p go --model replay/x --profile autonomous --max-turns 9 >"$out" 2>&1
    code=$?
    if [ $code = 0 ] && grep -q '^The note is there.$' "$out" && [ "$(cat "$place/note.txt")" = 'from inside' ]; then
      say '  ok a turn of kli'
    else
      bad "$label: kli, exit $code: $(cat "$out")"
    fi
    [ "$(cat "$place/.env")" = SECRET ] && [ "$(cat "$place/secret/key")" = SECRET ] || bad "$label: a secret was changed"
    as "$user" podman kill "$name" >/dev/null 2>&1
    rm -f "$place/made-inside" "$place/note.txt"
  done
}

kinds=$(cat "$here/kinds")
for kind in $kinds; do
  at=$(cut -d. -f1 /proc/uptime)
  case $kind in
    systemd-run)
      arrange tester
      # A variable of the manager's own, which no caller handed over.
      as tester systemctl --user set-environment TOKEN=DENIED-VALUE-3 || bad 'systemd-run: no manager of the user'
      recipe systemd-run tester yes
      recipe systemd-run root yes
      ;;
    podman)
      arrange tester
      as tester podman import -q "$here/container.tar" localhost/kli-test >/opt/vmtest-import 2>&1 || bad "podman: import: $(cat /opt/vmtest-import)"
      recipe podman tester no
      arrange root
      as root podman import -q "$here/container.tar" localhost/kli-test >/opt/vmtest-import 2>&1 || bad "podman: import: $(cat /opt/vmtest-import)"
      recipe podman root no
      ;;
    docker)
      systemctl start docker || bad 'docker: the daemon does not start'
      docker import "$here/container.tar" localhost/kli-test >/opt/vmtest-import 2>&1 || bad "docker: import: $(cat /opt/vmtest-import)"
      usermod -aG docker tester
      recipe docker tester no
      recipe docker root no
      ;;
    devcontainer)
      arrange tester
      as tester podman image exists localhost/kli-test ||
        as tester podman import -q "$here/container.tar" localhost/kli-test >/opt/vmtest-import 2>&1
      devcontainer
      ;;
  esac
  say "== $kind took $(($(cut -d. -f1 /proc/uptime) - at)) s"
done
exit $failed
