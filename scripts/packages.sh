#!/usr/bin/env bash
# The one list of Debian packages, and the one way to install what is missing of it.
#
#   scripts/packages.sh             install what building needs
#   scripts/packages.sh build test  install those groups
#   scripts/packages.sh --list      print the list: group, package, what it is for
#
# Groups: build; test; optional (what needs them is skipped without them); emulator (for
# test_emulated.sh); extra (large, only on request). Sourced by run.sh and test.sh, which call
# install_packages with the groups they need. When all packages are there nothing is run, so this
# works without a network. Package names are those of Debian 12; MOE_NO_INSTALL=1 leaves the machine
# alone and trusts that the tools are there.

package_list() {
  cat <<'LIST'
build g++ C++20 compiler, with the linker and nm
build cmake configures the build, 3.25 or newer
build ninja-build runs the build
build git stamps the commit into reports
build libfmt-dev text formatting
build nlohmann-json3-dev JSON of configs, headers and reports
build libsimdjson-dev JSON headers of many megabytes
build libcli11-dev command-line options
build libcurl4-openssl-dev HTTP client of moe-bench serve
build libonig-dev Oniguruma, regular expressions of tokenizers
build libutf8proc-dev Unicode normalisation of tokenizers
build libhwloc-dev topology of this host
build libpugixml-dev XML of topologies
build libjs-chart.js charts inside HTML reports
test libgtest-dev GoogleTest
test libgmock-dev GoogleMock
test libbenchmark-dev Google Benchmark, micro-benchmarks
test python3 checks of the sources and of the README
test jq checks that JSON output is JSON
optional clang-format-14 format check
optional clang-tidy-14 static analysis
optional clang-14 fuzzers (libFuzzer)
optional ccache makes the second build short
optional libopenmpi-dev ranks of moe-a2a run over several hosts
optional openmpi-bin mpirun
optional iproute2 ip and tc, for the test of four hosts in network namespaces
optional util-linux setarch, which ThreadSanitizer may need
optional valgrind instruction counts of kernels
emulator bochs PC emulator with AVX-512, with its video BIOS
emulator bochsbios its BIOS
emulator bochs-term its display without a window system
emulator isolinux boot loader of the CD that it starts from
emulator syslinux-common the boot loader's library
emulator xorriso writes the CD image
extra chromium opens an HTML report in a test
LIST
}

# names_of GROUP: the packages of a group, one a line.
names_of() { package_list | awk -v group="$1" '$1 == group { print $2 }'; }

is_installed() {
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# missing_of GROUP...: those of the groups' packages that are not installed, one a line.
missing_of() {
  local group package
  for group in "$@"; do
    for package in $(names_of "$group"); do
      is_installed "$package" || echo "$package"
    done
  done
}

# apt_get ARGUMENT...: as root, or through sudo when there is one; never asks a question.
apt_get() {
  local as_root=()
  [ "$(id -u)" -eq 0 ] || as_root=(sudo)
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -y -q \
    -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@"
}

# may_install: root, or a sudo that does not need an answer nobody can give.
may_install() {
  [ "$(id -u)" -eq 0 ] && return 0
  command -v sudo >/dev/null || return 1
  sudo -n true 2>/dev/null || [ -t 0 ]
}

# give_up REASON PACKAGE...: prints what a person has to install by hand; exit status 4, as for any
# missing requirement.
give_up() {
  echo "moekit: $1. These packages are missing:" >&2
  local package
  for package in "${@:2}"; do
    package_list | awk -v name="$package" \
      '$2 == name { $1 = ""; $2 = ""; printf "  %-22s%s\n", name, $0 }' >&2
  done
  echo "moekit: install them with:  apt-get install ${*:2}" >&2
  exit 4
}

# install_packages GROUP...: installs what is missing. The group "optional" may stay incomplete:
# what needs it is skipped with its reason.
install_packages() {
  [ "${MOE_NO_INSTALL:-0}" != 1 ] || return 0
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "moekit: no apt-get here; going on in the hope that the tools are there" >&2
    return 0
  fi
  local groups=() optional=0 group
  for group in "$@"; do
    if [ "$group" = optional ]; then optional=1; else groups+=("$group"); fi
  done
  local missing=() wanted=() package
  mapfile -t missing < <(missing_of "${groups[@]}")
  [ "$optional" -eq 0 ] || mapfile -t wanted < <(missing_of optional)
  [ $((${#missing[@]} + ${#wanted[@]})) -gt 0 ] || return 0
  if ! may_install; then
    [ "${#missing[@]}" -eq 0 ] ||
      give_up "not root, and no sudo without a password" "${missing[@]}"
    echo "moekit: not installed, what needs them is skipped: ${wanted[*]}" >&2
    return 0
  fi
  echo "moekit: installing ${missing[*]} ${wanted[*]}" >&2
  apt_get update >&2 || echo "moekit: apt-get update failed; trying with the old lists" >&2
  # Together when possible: one transaction is faster.
  apt_get install --no-install-recommends "${missing[@]}" "${wanted[@]}" >&2 && return 0
  [ "${#missing[@]}" -eq 0 ] || apt_get install --no-install-recommends "${missing[@]}" >&2 ||
    give_up "apt-get failed" "${missing[@]}"
  for package in "${wanted[@]}"; do
    apt_get install --no-install-recommends "$package" >&2 ||
      echo "moekit: could not install $package; what needs it is skipped" >&2
  done
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  set -euo pipefail
  if [ "${1:-}" = --list ]; then
    package_list
  else
    [ "$#" -gt 0 ] || set -- build
    install_packages "$@"
  fi
fi
