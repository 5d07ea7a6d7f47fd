#!/bin/sh
# Starts kli confined by @KIND@. Made by `kli sandbox recipe @KIND@` from a specification; make it
# anew when the specification changes.
#
#   cd PROJECT && SCRIPT [ARGUMENTS OF KLI]
#
# Variables of the caller:
#   KLI_PROGRAM  what is started instead of `kli`: a name on PATH, or a path
@VARIABLES@#
# Exit codes: the program's own, 128+n when signal n ended it; 125 when nothing was started.
#
# What this script does not keep, compared with `kli-sandbox run` on the same specification:
@NOTES@
set -eu
unset CDPATH
newline='
'
say() { printf '%s\n' "kli-recipe: $*" >&2; }
die() {
  say "$*"
  exit 125
}

# Sets `path` to the physical name of what is there, and fails when nothing is. A name may end in a
# line feed, which a command substitution would drop.
resolve() {
  [ -e "$1" ] || return 1
  path=$(readlink -f -- "$1" && printf x) || return 1
  path=${path%"${newline}x"}
}

# Whether a path, or one above it, stands in a list. The lists are joined by `//`, which no
# physical path contains.
within() {
  up=$2
  while [ -n "$up" ]; do
    case $1 in *"//$up//"*) return 0 ;; esac
    up=${up%/*}
  done
  return 1
}

# Sets `path` to the physical name of a writable path, made first where it is missing below the
# home. A link on the way could have been planted by an earlier run, so none is followed.
writable() {
  wish=$1/$2
  if [ ! -e "$wish" ]; then
    case $wish in
      "$home"/*) (umask 077 && mkdir -p -- "$wish") || die "\`$wish\` cannot be made" ;;
      *) die "\`$wish\` does not exist: make it, or take it out of \`writablePaths\`" ;;
    esac
  fi
  resolve "$1/" || die "\`$1\` does not exist"
  plain=${path%/}/$2
  resolve "$wish" || die "\`$wish\` cannot be read"
  [ "$path" = "${plain%/}" ] || die "\`$wish\` goes through a symbolic link: name its target instead"
}

# The environment, as it is when nothing is changed yet.
case ${HOME-} in
  /*) ;;
  *) die 'HOME is no absolute path: set it to your home' ;;
esac
home=${HOME%/}
uid=$(id -u)
account=$({ getent passwd "$uid" || true; } | cut -d: -f6)
case $account in
  /*) account=${account%/} ;;
  *) account=$home ;;
esac
xdg() {
  case $2 in
    /*) path=${2%/} ;;
    '') path=$3 ;;
    *) die "$1 is \`$2\`, which is relative: set an absolute path or unset it" ;;
  esac
}
xdg XDG_CONFIG_HOME "${XDG_CONFIG_HOME-}" "$home/.config" && xdg_config=$path
xdg XDG_CACHE_HOME "${XDG_CACHE_HOME-}" "$home/.cache" && xdg_cache=$path
xdg XDG_STATE_HOME "${XDG_STATE_HOME-}" "$home/.local/state" && xdg_state=$path
xdg XDG_DATA_HOME "${XDG_DATA_HOME-}" "$home/.local/share" && xdg_data=$path
xdg XDG_RUNTIME_DIR "${XDG_RUNTIME_DIR-}" "/run/user/$uid" && xdg_runtime=$path

# The workspace: the physical current directory, and no place where the host keeps programs, keys
# or start files.
workspace=$(pwd -P && printf x)
workspace=${workspace%"${newline}x"}
elsewhere="change to a project's directory"
case $workspace in
  @TOPS@)
    die "\`$workspace\` cannot be the workspace, everything below it would be writable: $elsewhere" ;;
  @SOURCES@) ;;
  @SYSTEM@)
    die "\`$workspace\` cannot be the workspace, it is part of the system: $elsewhere" ;;
esac
for wish in "$HOME" "${account:-/}"; do
  resolve "$wish" || path=$wish
  case $path/ in
    "$workspace"/)@HOME_REFUSED@ ;;
    "$workspace"/*) die "\`$workspace\` cannot be the workspace, it contains the home: $elsewhere" ;;
  esac@HIDDEN_REFUSED@
done
for wish in "$xdg_config/kli" "$xdg_state/kli"; do
  resolve "$wish" || path=$wish
  case $workspace/ in
    "$path"/*) die "\`$workspace\` cannot be the workspace, it belongs to kli: $elsewhere" ;;
  esac
done

program=${KLI_PROGRAM:-kli}
unset KLI_PROGRAM
