#!/usr/bin/env bash
# Static analysis with clang-tidy 14 (.clang-tidy): naming, function size, likely bugs.
#
#   scripts/tidy.sh                 sources that differ from the last commit, new ones included; for
#                                   a header its own source, or the first that includes it
#   scripts/tidy.sh --since REF     the same for what differs from REF
#   scripts/tidy.sh --all           every source
#   scripts/tidy.sh FILE...         these
#
# Flags come from build/tidy, which is configured here and never built: the other builds unite
# sources and precompile headers, which hides the files from the analyser. What this machine does
# not compile (another backend) is named. Exit status 1 when anything was found, 77 (skipped) when
# clang-tidy 14 is not there.
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
set -euo pipefail

analyser=clang-tidy-14
if ! command -v "$analyser" >/dev/null; then
  echo "skipped: $analyser is not installed (scripts/packages.sh optional)"
  exit 77
fi

# Sources of the changed files, one a line.
changed_since() {
  local file source
  { git diff --name-only --diff-filter=d "$1" -- '*.cpp' '*.hpp'
    git ls-files --others --exclude-standard -- '*.cpp' '*.hpp'; } |
    while read -r file; do
      case "$file" in
        *.cpp) echo "$file" ;;
        *)
          source=${file%.hpp}.cpp
          [ -f "$source" ] ||
            source=$(git grep -lF "#include \"$file\"" -- '*.cpp' | head -n 1 || true)
          if [ -n "$source" ]; then echo "$source"; fi
          ;;
      esac
    done | sort -u
}

case "${1:-}" in
  --all) files=$(find lib kernels tools tests -name '*.cpp' | sort) ;;
  --since) files=$(changed_since "${2:?--since needs a revision}") ;;
  "") files=$(changed_since HEAD) ;;
  -*) echo "usage: scripts/tidy.sh [--all | --since REF | FILE...]" >&2; exit 2 ;;
  *) files=$(printf '%s\n' "$@") ;;
esac

database=build/tidy
cmake --preset release -B "$database" -DMOE_PRECOMPILE=OFF -DMOE_UNITY=OFF \
  -DMOE_BUILD_TESTS=ON -DMOE_BUILD_BENCHMARKS=ON -DMOE_WARNINGS_AS_ERRORS=OFF >/dev/null
# Passes of GCC that clang refuses.
sed -i 's/ -fsplit-paths//g; s/ -ftree-partial-pre//g' "$database/compile_commands.json"

known=()
unknown=()
for file in $files; do
  if grep -qF "\"file\": \"$PWD/$file\"" "$database/compile_commands.json"; then
    known+=("$file")
  else
    unknown+=("$file")
  fi
done
if [ "${#unknown[@]}" -gt 0 ]; then
  echo "not compiled on this machine, so not analysed: ${unknown[*]}"
fi
# A few sources belong to backends; many mean that the analysis would prove nothing.
if [ "${#unknown[@]}" -gt 10 ]; then
  echo "${#unknown[@]} of $((${#known[@]} + ${#unknown[@]})) sources have no flags" >&2
  exit 2
fi
[ "${#known[@]}" -gt 0 ] || { echo "nothing to analyse"; exit 0; }

status=0
printf '%s\0' "${known[@]}" |
  xargs -0 -n 1 -P "$(nproc)" "$analyser" -p "$database" --quiet --warnings-as-errors='*' \
    --extra-arg=-Wno-unknown-warning-option 2> >(grep -v 'warnings generated' >&2) || status=1
echo "${#known[@]} files analysed"
exit "$status"
