# Makes the Debian images that the virtual machines boot, and keeps them between runs. Sourced by
# bash after scripts/lib.sh; sets `vm_cache` and no other name that a caller uses.
#
# An image is a directory of the cache with `disk.img`, `vmlinuz` and `initrd`. There are two:
#   plain    systemd with a user's session and bus, bubblewrap, git
#   engines  the same with podman and docker, and a root file system for a container
# Its files have other owners than the caller: root makes it directly, an ordinary user in a user
# namespace with the range of identities that the account has in /etc/subuid.

vm_cache=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/kli-vm

# The same suite as here, since the programs put into the machine are linked to this one's C library.
# Prints the archive that this machine's apt uses for it.
vm_archive() {
  local found attempt
  . /etc/os-release
  for attempt in 1 2; do
    found=$(apt-get indextargets --format '$(ORIGIN) $(CODENAME) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
      sed -n "s/^Debian $VERSION_CODENAME main //p" | head -n 1)
    [ -z "$found" ] || break
    if [ "$attempt" = 1 ] && can_be_root; then as_root apt-get update -qq >&2; fi
  done
  [ -n "$found" ] || { say "apt knows no main archive of Debian ${VERSION_CODENAME:-?}; as root, type: apt-get update"; return 2; }
  printf '%s\n' "$found"
}

# The commands a virtual machine needs, installed where that is possible without asking (exit 2).
vm_needs() {
  [ "$(uname -m)" = x86_64 ] || { say "the virtual machine is an x86_64 one, and so must this machine be"; exit 2; }
  command -v apt-get >/dev/null || { say "the machine's image is made of Debian packages: run this on Debian"; exit 2; }
  local uidmap=()
  [ "$(id -u)" = 0 ] || uidmap=(newuidmap=uidmap)
  need_packages mmdebstrap=mmdebstrap qemu-system-x86_64=qemu-system-x86 mke2fs=e2fsprogs /usr/bin/python3=python3 "${uidmap[@]}"
  PATH=$PATH:/usr/sbin:/sbin
}

# Runs a command as one that may give files to other owners.
vm_as_owner() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif unshare --user --map-root-user --map-auto --mount true 2>/dev/null; then
    unshare --user --map-root-user --map-auto --mount "$@"
  else
    say "an image holds files of other owners: run this as root, or give this account a range of identities; as root, type: usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $(id -un)"
    return 2
  fi
}

# vm_image FLAVOUR: makes the image where what it is made of has changed, and prints its directory.
vm_image() {
  local flavour=$1 place stamp archive own at=$SECONDS code=0
  place=$vm_cache/$flavour
  . /etc/os-release
  stamp="$(cat "$top"/tests/vm/{make-image,shell.service,shell.sh,vmtest.service} | sha256sum | cut -c1-64) $VERSION_CODENAME"
  if [ "$(cat "$place/stamp" 2>/dev/null)" = "$stamp" ] && [ -s "$place/disk.img" ]; then
    printf '%s\n' "$place"
    return 0
  fi
  archive=$(vm_archive) || return
  say "making the image \`$flavour\`: Debian $VERSION_CODENAME (a few minutes, once)"
  mkdir -p "$vm_cache"
  own=$(mktemp -d "$vm_cache/make.XXXXXX")
  vm_as_owner bash "$top/tests/vm/make-image" "$flavour" "$own" "$VERSION_CODENAME" "$archive" >"$own/log" 2>&1 </dev/null || code=$?
  if [ "$code" != 0 ]; then
    tail -n 20 "$own/log" >&2
    say "the image could not be made (exit $code)"
    vm_as_owner rm -rf "$own"
    return "$code"
  fi
  echo "$stamp" >"$own/stamp"
  rm -rf "$place"
  mv "$own" "$place"
  say "the image \`$flavour\` is made, $((SECONDS - at)) s"
  printf '%s\n' "$place"
}

# What boots an image: the words of the emulator but for its lines to the outside. KVM is not needed,
# the processor is emulated, and the disk is never written. A processor with few features, and no
# defence against faults that an emulated one does not have, is a third faster. The kernel's look at
# its timer fails where this machine is very busy, and a kernel that gives up ends the emulator.
# vm_words IMAGE TAR KERNEL-WORD: one word a line.
vm_words() {
  printf '%s\n' qemu-system-x86_64 -accel tcg,thread=multi -cpu Nehalem -smp 2 -m 2048 \
    -nodefaults -display none -no-reboot -kernel "$1/vmlinuz" -initrd "$1/initrd" \
    -append "root=/dev/vda rw console=ttyS0 quiet no_timer_check panic=-1 mitigations=off $3" \
    -drive "file=$1/disk.img,if=virtio,format=raw,snapshot=on" \
    -drive "file=$2,if=virtio,format=raw,readonly=on" \
    -netdev user,id=n0,restrict=on -device virtio-net-pci,netdev=n0 -device virtio-rng-pci
}
