#!/usr/bin/env bash
# Runs the AVX-512 kernels on a machine without AVX-512: a Linux in Bochs, which emulates a
# processor with AVX-512 F, BW, DQ and VL (not BF16, not AMX). Takes one core for some minutes; with
# the machine busy otherwise it was twenty.
#
#   scripts/test_emulated.sh                        the kernel tests at level avx512, which levels
#                                                   are found, golden checkpoints through the engine
#   scripts/test_emulated.sh BINARY [ARGUMENT...]   that program alone, with MOE_CPU_ISA=avx512,
#                                                   for example build/release/tests-bin/kernels_test
#                                                   '--gtest_filter=*Gemm*'
#
# Builds nothing but a CD image: kernels_test and moe-bench come from build/release, or from where
# MOE_EMULATED_BUILD says. Bochs is installed when it is missing; a kernel of Debian (the small one
# for clouds) and a static busybox are downloaded into build/emulated and not installed. What the
# programs print is printed. Exit status: that of the tests; 77 and the reason when the emulator or
# the kernel cannot be had; 5 when the emulated machine did not end within MOE_EMULATED_LIMIT_S
# seconds (default 3600).
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

cache=build/emulated
build_dir=${MOE_EMULATED_BUILD:-build/release}

skip() {
  echo "test_emulated: skipped: $*" >&2
  exit 77
}

# download PACKAGE: its newest version into this folder, with new lists when the old ones fail.
download() { apt-get -q download "$1" || { apt_get update && apt-get -q download "$1"; }; }

# fetch_package NAME FILE: FILE of the package's files under $cache, downloaded unless it is there.
fetch_package() {
  local name=$1 file=$2 into
  [ ! -e "$cache/$file" ] || return 0
  if [ "${MOE_NO_INSTALL:-0}" = 1 ] || ! command -v apt-get >/dev/null; then return 1; fi
  into=$(mktemp -d "$cache/download.XXXXXX")
  if ! (cd "$into" && download "$name" && dpkg-deb -x ./*.deb files) >&2; then
    rm -rf "$into"
    return 1
  fi
  mv "$into/files/$file" "$cache/$file"
  rm -rf "$into"
}

# fetch_kernel: the newest cloud kernel as $cache/vmlinuz.
fetch_kernel() {
  local package
  [ ! -e "$cache/vmlinuz" ] || return 0
  package=$(apt-cache depends linux-image-cloud-amd64 2>/dev/null |
    awk '/Depends: linux-image-/ { print $2; exit }')
  [ -n "$package" ] || return 1
  mkdir -p "$cache/boot"
  fetch_package "$package" "boot/vmlinuz-${package#linux-image-}" &&
    mv "$cache/boot/vmlinuz-${package#linux-image-}" "$cache/vmlinuz"
}

[ "$(uname -m)" = x86_64 ] || skip "the emulated machine runs programs for x86-64 only"
if [ $# -eq 0 ]; then
  for binary in "$build_dir/tests-bin/kernels_test" "$build_dir/bin/moe-bench"; do
    [ -x "$binary" ] || { echo "test_emulated: $binary is not there; build it first" >&2; exit 4; }
  done
fi
(install_packages emulator) || skip "Bochs cannot be installed here"
for tool in bochs-bin xorriso python3; do
  command -v "$tool" >/dev/null || skip "$tool is not installed"
done
mkdir -p "$cache/bin"
fetch_package busybox-static bin/busybox || skip "the package busybox-static cannot be had"
fetch_kernel || skip "no kernel: the package linux-image-cloud-amd64 cannot be had"

exec python3 scripts/test_emulated.py --cache "$cache" --build "$build_dir" \
  --limit-s "${MOE_EMULATED_LIMIT_S:-3600}" -- "$@"
