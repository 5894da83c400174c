#!/usr/bin/env bash
# Formats all C++ sources with clang-format 14 (.clang-format).
#
#   scripts/format.sh           rewrites files
#   scripts/format.sh --check   changes nothing, exit status 1 when a file differs
#
# Exit status 77 (skipped) when clang-format 14 is not there: other versions format differently.
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
set -euo pipefail

formatter=clang-format-14
if ! command -v "$formatter" >/dev/null; then
  echo "skipped: $formatter is not installed (scripts/packages.sh optional)"
  exit 77
fi
case "${1:-}" in
  "") mode=(-i) ;;
  --check) mode=(--dry-run --Werror) ;;
  *) echo "usage: scripts/format.sh [--check]" >&2; exit 2 ;;
esac
find lib kernels tools tests \
  \( -name '*.cpp' -o -name '*.hpp' -o -name '*.cu' -o -name '*.cuh' \) -print0 |
  xargs -0 -n 20 -P "$(nproc)" "$formatter" "${mode[@]}"
