#!/usr/bin/env bash
# Static analysis with clang-tidy 14 (.clang-tidy): naming, function size, likely bugs.
#
#   scripts/tidy.sh                 files that differ from the last commit
#   scripts/tidy.sh --since REF     files that differ from REF
#   scripts/tidy.sh --all           every source
#   scripts/tidy.sh FILE...         these
#
# BUILD_DIR (default build/release) must be configured: its compile_commands.json is read. Exit
# status 1 when anything was found, 77 (skipped) when clang-tidy 14 is not there.
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
set -euo pipefail

analyser=clang-tidy-14
if ! command -v "$analyser" >/dev/null; then
  echo "skipped: $analyser is not installed (scripts/packages.sh optional)"
  exit 77
fi
database=${BUILD_DIR:-build/release}
[ -f "$database/compile_commands.json" ] ||
  { echo "no $database/compile_commands.json: configure first (scripts/run.sh)" >&2; exit 2; }

# A precompiled header of another compiler is of no use to the analyser: it reads the headers.
stripped=build/tidy
mkdir -p "$stripped"
sed -E 's/ -Winvalid-pch -include [^ ]+cmake_pch\.hxx//g' "$database/compile_commands.json" \
  >"$stripped/compile_commands.json"
database=$stripped

case "${1:-}" in
  --all) files=$(find lib kernels tools tests -name '*.cpp') ;;
  --since) files=$(git diff --name-only --diff-filter=d "$2" -- '*.cpp') ;;
  "") files=$(git diff --name-only --diff-filter=d HEAD -- '*.cpp') ;;
  *) files=$* ;;
esac
# What is not compiled here (another backend, another compiler) has no flags to analyse it with.
known=()
for file in $files; do
  if grep -q "\"file\": \"$PWD/$file\"" "$database/compile_commands.json"; then known+=("$file"); fi
done
[ "${#known[@]}" -gt 0 ] || { echo "nothing to analyse"; exit 0; }
printf '%s\0' "${known[@]}" |
  xargs -0 -n 1 -P "$(nproc)" "$analyser" -p "$database" --quiet --warnings-as-errors='*' \
    --extra-arg=-Wno-unknown-warning-option 2> >(grep -v 'warnings generated' >&2)
echo "${#known[@]} files analysed"
