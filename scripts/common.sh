# Sourced by the other scripts: where the project is, how to configure and build it here.
# shellcheck shell=bash

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/packages.sh
source scripts/packages.sh

say() { echo "== $*" >&2; }

# As many compilers as there are cores, and no more than there is memory for (1.2 GiB each).
num_jobs() {
  local cores memory
  cores=$(nproc)
  memory=$(awk '/^MemAvailable:/ { print int($2 / 1258291) }' /proc/meminfo)
  [ "$memory" -ge 1 ] || memory=1
  [ "$memory" -lt "$cores" ] && echo "$memory" || echo "$cores"
}

# configure PRESET [CMAKE_ARGUMENT...]. A warning is an error only with the compiler that the tree
# is kept clean for; a newer one may know warnings that nobody has seen yet.
configure() {
  local preset=$1 flags=()
  shift
  if ! command -v cmake >/dev/null || ! command -v ninja >/dev/null; then
    echo "moekit: cmake and ninja are needed" >&2
    exit 4
  fi
  if command -v ccache >/dev/null; then
    flags+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
    # What ccache needs to handle precompiled headers.
    export CCACHE_SLOPPINESS=pch_defines,time_macros
  fi
  flags+=(-DMOE_PRECOMPILE=ON -DMOE_UNITY=ON)
  case "$(${CXX:-c++} -dumpversion 2>/dev/null)" in
    12*) ;;
    *) flags+=(-DMOE_WARNINGS_AS_ERRORS=OFF) ;;
  esac
  cmake --preset "$preset" "${flags[@]}" "$@" >&2
}

# build PRESET [TARGET...]
build() {
  local preset=$1 target targets=()
  shift
  for target in "$@"; do targets+=(--target "$target"); done
  cmake --build "build/$preset" --parallel "$(num_jobs)" "${targets[@]}" >&2
}
