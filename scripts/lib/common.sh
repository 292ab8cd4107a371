# What the set-up scripts share. Sourced by scripts/quickstart, scripts/test, scripts/check and scripts/wheel.
set -euo pipefail
ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
LOGS="$ROOT/build/logs"
VENV="$ROOT/.venv"
JOBS="$(nproc)"
export DEBIAN_FRONTEND=noninteractive PIP_DISABLE_PIP_VERSION_CHECK=1 CCACHE_BASEDIR="$ROOT" CCACHE_NOHASHDIR=1
cd "$ROOT"
mkdir -p "$LOGS"

say() { printf '\n== %s\n' "$*"; }
die() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }

# step "title" command...: runs it with its output in a log, says how long it took; shows the log's end on failure.
step() {
  local title="$1" log start status=0
  shift
  log="$LOGS/$(tr -cs 'a-zA-Z0-9' '-' <<<"$title" | sed 's/^-//; s/-$//').log"
  printf '   %-58s' "$title"
  start=$SECONDS
  "$@" >"$log" 2>&1 </dev/null || status=$?
  if [ "$status" -eq 0 ]; then
    printf ' ok  %4ds\n' $((SECONDS - start))
  else
    printf ' FAILED (%d) after %ds; the end of %s:\n' "$status" $((SECONDS - start)) "${log#"$ROOT"/}"
    tail -n 40 "$log" | sed 's/^/   | /'
  fi
  return "$status"
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

missing_packages() {
  local package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || printf '%s\n' "$package"
  done
}

# Symlinks by which a service starts at boot.
boot_links() { find /etc/systemd/system -type l -path '*.wants/*' 2>/dev/null | sort; }

# Installs packages; services that come with them (sshd, munged, slurmd) start neither now nor at the next boot.
apt_install() {
  local policy=/usr/sbin/policy-rc.d before link status=0
  as_root apt-get update -q || true # one unreachable third-party source must not stop the rest
  before="$(boot_links)"
  if [ -e "$policy" ]; then
    as_root apt-get install -y -q --no-install-recommends "$@" || status=$?
  else
    (
      trap 'as_root rm -f "$policy"' EXIT
      printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
      as_root chmod 755 "$policy"
      as_root apt-get install -y -q --no-install-recommends "$@"
    ) || status=$?
  fi
  if command -v systemctl >/dev/null; then
    comm -13 <(printf '%s\n' "$before") <(boot_links) | while read -r link; do
      as_root systemctl disable --quiet "$(basename "$link")" || true
    done
  fi
  return "$status"
}

# Installs the Debian or Ubuntu packages that are not there yet.
need_packages() {
  local missing
  command -v dpkg-query >/dev/null || die "this script installs packages on Debian and Ubuntu; elsewhere install the like of: $*"
  mapfile -t missing < <(missing_packages "$@")
  if [ ${#missing[@]} -gt 0 ]; then
    [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null || die "run as root or install sudo: needs the packages ${missing[*]}"
    step "install ${#missing[@]} system packages" apt_install "${missing[@]}"
  fi
}

need_venv() {
  if [ ! -x "$VENV/bin/python" ]; then
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' || die "needs Python 3.10 or newer as python3"
    step "make the Python environment .venv" python3 -m venv "$VENV"
  fi
}

# need_python name==version ...: installs what is missing into .venv.
need_python() {
  if ! "$VENV/bin/python" "$ROOT/scripts/lib/installed.py" "$@"; then
    step "install Python packages: $*" "$VENV/bin/python" -m pip install -q "$@"
  fi
}

# need_pinned name ...: the same with the versions of environments.ini; without names all packages of .venv.
need_pinned() {
  local packages
  mapfile -t packages < <("$VENV/bin/python" "$ROOT/scripts/lib/environments.py" pinned "$@")
  need_python "${packages[@]}"
}

BUILD_PACKAGES=(build-essential cmake ninja-build ccache libsodium-dev libcli11-dev libspdlog-dev libfmt-dev python3-venv
  libgloo-dev)

# The compiler of the GPU kernels: the machine's, else PyPI's.
need_nvcc() {
  command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ] ||
    need_python nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-cuda-runtime==13.0.96
}

# What the installed package is made of.
PACKAGE_SOURCES=(CMakeLists.txt pyproject.toml cmake runtime launcher bindings frameworks)

# Builds the wheel in place (build/wheel is kept, so that only what changed is compiled) and installs it into .venv;
# nothing if no source is newer than the last time.
install_distrun() {
  local stamp="$VENV/.distrun-installed"
  need_python "scikit-build-core>=0.10"
  [ ! -e /dev/nvidiactl ] || need_nvcc
  if [ -e "$stamp" ] && [ -x "$VENV/bin/distrun" ] &&
    [ -z "$(find "${PACKAGE_SOURCES[@]}" ! -path '*/__pycache__*' -newer "$stamp" -print -quit)" ]; then
    printf '   distrun is installed and up to date\n'
    return
  fi
  # From the start of the build on: what is edited meanwhile counts as newer.
  touch "$stamp.new"
  step "build and install distrun" "$VENV/bin/python" -m pip install -q --no-build-isolation --no-deps --force-reinstall .
  mv "$stamp.new" "$stamp"
}
