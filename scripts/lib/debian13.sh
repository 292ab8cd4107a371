#!/usr/bin/env bash
# Runs README's commands on a fresh Debian 13, and an example with the newest frameworks that its Python 3.13 can have.
# Needs root. The system is a folder, build/debian13/root, which is made once; its packages and its compiler's cache
# stay. Each run starts with a new clone of this tree's HEAD. Nothing is mounted outside the script's own namespaces.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

SYSTEM="$ROOT/build/debian13"
CLONE=/distrun
EXAMPLES=(
  "torch-2.15 examples/pytorch_digits.py --epochs 2"
  "tensorflow examples/tensorflow_mnist.py --epochs 1"
  "tensorflow examples/keras_mnist.py --epochs 1"
  "jax-newest examples/jax_mnist.py --epochs 1"
)

# The mirror of this machine's own sources, if it is Debian.
mirror() {
  local found
  found="$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources} 2>/dev/null | grep -oE 'https?://[^ ]*/debian/?( |$)' | head -n 1)"
  echo "${found:-http://deb.debian.org/debian}"
}

# A killed mmdebstrap leaves its mounts to the namespace, which ends with it. So the removal reaches no other file system.
make_root() {
  rm -rf --one-file-system "$SYSTEM/unfinished"
  mkdir -p "$SYSTEM"
  unshare --mount mmdebstrap --variant=minbase --include=ca-certificates,git trixie "$SYSTEM/unfinished" "$(mirror)"
  mv "$SYSTEM/unfinished" "$SYSTEM/root"
}

# How this machine reaches the network: its names, certificates, and settings of apt and pip.
copy_settings() {
  local path
  for path in /etc/resolv.conf /etc/hosts /etc/ssl/certs/ca-certificates.crt /etc/pip.conf /root/.config/pip/pip.conf; do
    [ ! -e "$path" ] || install -D -m 644 "$path" "$SYSTEM/root$path"
  done
  grep -lsE '^Acquire::' /etc/apt/apt.conf.d/* | while read -r path; do install -m 644 "$path" "$SYSTEM/root$path"; done || true
}

clone() {
  rm -rf --one-file-system "$SYSTEM/root$CLONE"
  git -c 'safe.directory=*' clone -q "$ROOT" "$SYSTEM/root$CLONE"
}

# inside command...: runs it in the clone. All its processes end with it.
inside() {
  # shellcheck disable=SC2016
  unshare --mount --pid --fork --kill-child bash -euc '
    root="$1"; clone="$2"; shift 2
    mount --bind "$root" "$root"
    for folder in sys dev; do mount --rbind "/$folder" "$root/$folder"; done
    mount -t proc proc "$root/proc"
    mount -t tmpfs tmpfs "$root/dev/shm"
    for folder in tmp run; do mount -t tmpfs tmpfs "$root/$folder"; done
    # Not chroot: nsenter, which hosts in a box use, goes to the root of the namespace.
    cd "$root"
    pivot_root . .
    umount -l .
    exec env -C "$clone" -i HOME=/root TERM=dumb PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
  ' inside "$SYSTEM/root" "$CLONE" "$@"
}

example() {
  local environment="build/environments/$1/bin"
  inside .venv/bin/python scripts/lib/environments.py make "$1"
  inside "$environment/distrun" -np 2 "$environment/python" "${@:2}"
}

[ "$(id -u)" -eq 0 ] || die "run it as root: it needs mounts"
need_packages mmdebstrap git
[ -e "$SYSTEM/root" ] || step "a root of Debian 13" make_root
copy_settings
clone
step "Debian 13: scripts/quickstart" inside scripts/quickstart
step "Debian 13: scripts/test --quick" inside scripts/test --quick
for line in "${EXAMPLES[@]}"; do
  read -ra words <<<"$line"
  step "Debian 13: ${words[1]} with ${words[0]}" example "${words[@]}"
done
