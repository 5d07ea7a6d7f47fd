# What scripts/demo and scripts/test share: finding what is needed, and installing it where that is
# possible without asking. Sourced by bash; sets no options of its own.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '%s\n' "$*" >&2; }

# Runs a command as root: directly, or through sudo when that asks for no password.
as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

can_be_root() {
  [ "$(id -u)" = 0 ] || { command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; }
}

# A compiler without the C library's files is found on PATH and links nothing.
can_link() { echo 'int main(void) { return 0; }' | cc -x c - -o /dev/null 2>/dev/null; }

# need_packages COMMAND=PACKAGE… : installs the Debian packages whose commands are missing, or
# prints the one line to type and ends with 2. The C linker is always among what is needed.
need_packages() {
  local missing=() pair log
  can_link || missing+=(gcc libc6-dev)
  for pair in "$@"; do
    command -v "${pair%%=*}" >/dev/null 2>&1 || [ -x "/usr/sbin/${pair%%=*}" ] || missing+=("${pair#*=}")
  done
  [ ${#missing[@]} = 0 ] && return 0
  local line="apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
  if can_be_root && command -v apt-get >/dev/null 2>&1; then
    say "installing: ${missing[*]}"
    log=$(mktemp)
    if { as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq &&
      as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 </dev/null; then
      rm -f "$log"
      return 0
    fi
    tail -n 20 "$log" >&2
    rm -f "$log"
    say "could not install ${missing[*]}; as root, type: $line"
    exit 2
  fi
  say "missing: ${missing[*]}; as root, type: $line"
  exit 2
}

# need_rust: the toolchain must be there and new enough; it is never installed by a script.
need_rust() {
  local wanted have
  wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$top/Cargo.toml")
  if ! command -v cargo >/dev/null 2>&1; then
    if [ -x "${HOME:-/root}/.cargo/bin/cargo" ]; then
      PATH="${HOME:-/root}/.cargo/bin:$PATH"
      export PATH
    else
      say "missing: Rust $wanted or newer; install it from https://rustup.rs"
      exit 2
    fi
  fi
  have=$(rustc --version 2>/dev/null | sed -n 's/^rustc \([0-9.]*\).*/\1/p')
  if [ -z "$have" ]; then
    say "rustc does not run; repair it, or install Rust $wanted from https://rustup.rs"
    exit 2
  fi
  if [ "$(printf '%s\n%s\n' "$wanted" "$have" | sort -V | head -n 1)" != "$wanted" ]; then
    say "Rust $have is too old, $wanted or newer is needed; type: rustup update stable"
    exit 2
  fi
}

# need_cargo_tools NAME… : builds missing cargo subcommands, without optimisation to save time.
need_cargo_tools() {
  local tool
  for tool in "$@"; do
    command -v "$tool" >/dev/null 2>&1 && continue
    [ -x "${CARGO_HOME:-${HOME:-/root}/.cargo}/bin/$tool" ] && continue
    say "installing: $tool (cargo install)"
    cargo install --quiet --locked --debug "$tool" >&2 || {
      say "could not install $tool; type: cargo install --locked $tool"
      exit 2
    }
  done
  PATH="$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin"
  export PATH
}

# own_proc SCRIPT ARGS… : a jail mounts a /proc of its own, which the kernel allows only where the
# present one is whole. In a container that masks it, root can have a whole one in a namespace of
# its own: the script starts itself again in there. Elsewhere nothing happens, and the launcher
# says what is missing.
own_proc() {
  unshare --user --map-root-user --pid --fork --mount-proc true 2>/dev/null && return 0
  [ -z "${KLI_OWN_PROC:-}" ] || return 0
  [ "$(id -u)" = 0 ] || return 0
  unshare --pid --fork --mount-proc \
    unshare --user --map-root-user --pid --fork --mount-proc true 2>/dev/null || return 0
  KLI_OWN_PROC=1 exec unshare --pid --fork --kill-child --mount-proc bash "$@"
}
