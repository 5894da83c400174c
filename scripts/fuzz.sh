#!/usr/bin/env bash
# Builds every fuzzer (preset fuzz, clang 14, AddressSanitizer + UBSan) and runs each for a while.
#
#   scripts/fuzz.sh [SECONDS] [NAME...]     default: 20 seconds of each
#
# Starts from tests/fuzz/corpus/NAME. What a fuzzer finds lies in build/fuzz/findings/; once the
# bug is mended its input belongs into tests/fuzz/regressions/NAME/, where ctest replays it. Exit
# status 1 when a fuzzer failed, 77 (skipped) when clang 14 is not there.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

if ! command -v clang++-14 >/dev/null; then
  echo "skipped: clang++-14 is not installed (scripts/packages.sh optional)"
  exit 77
fi
seconds=${1:-20}
shift || true
configure fuzz
build fuzz

findings=build/fuzz/findings
mkdir -p "$findings"
names=("$@")
[ "${#names[@]}" -gt 0 ] || mapfile -t names < <(ls build/fuzz/fuzz-bin)
[ "${#names[@]}" -gt 0 ] || { echo "no fuzzers were built" >&2; exit 1; }

failed=()
for name in "${names[@]}"; do
  say "$name, $seconds s"
  # The first folder takes new inputs, the others are only read.
  grown=build/fuzz/corpus/$name
  mkdir -p "$grown"
  seeds=()
  for folder in tests/fuzz/corpus/"$name" tests/fuzz/regressions/"$name"; do
    [ ! -d "$folder" ] || seeds+=("$folder")
  done
  "build/fuzz/fuzz-bin/$name" -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=10 \
    -print_final_stats=1 -verbosity=0 -artifact_prefix="$findings/$name-" \
    "$grown" "${seeds[@]}" || failed+=("$name")
done
if [ "${#failed[@]}" -gt 0 ]; then
  echo "failed: ${failed[*]} (inputs in $findings)" >&2
  exit 1
fi
echo "${#names[@]} fuzzers, $seconds s each, nothing found"
