#!/usr/bin/env bash
# Writes reports/examples anew: what readers see before they run anything. Tests hold the examples
# to the schema and to what the tools write today.
#
#   scripts/make_examples.sh [FOLDER_OF_THE_TOOLS]     default build/release/bin
#
# On a quiet machine; as root, so that the reports name no host.
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
set -euo pipefail

tools=$(realpath "${1:-build/release/bin}")

# example NAME TOOL ARGUMENTS...: the command as a reader would type it, whatever the tool's path.
example() {
  local name=$1 tool=$2
  shift 2
  # shellcheck disable=SC2016  # for the inner shell
  unshare --uts bash -c 'hostname example && binary=$1 && shift && exec -a "$(basename "$binary")" \
    "$binary" "$@"' _ "$tools/$tool" "$@" --quiet --format json \
    >"reports/examples/$name.json"
}

example moe-bench-run moe-bench run scenarios/checkpoints/tinymoe-qwen3 \
  --batch 1,4 --prompt-tokens 64 --output-tokens 16
example moe-plan-size moe-plan size \
  --scenario scenarios/plans/mixtral-2xh100.json --scenarios scenarios
