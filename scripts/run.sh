#!/usr/bin/env bash
# Builds moe-bench and runs it on the small trained checkpoint that comes with the project.
#
#   scripts/run.sh [moe-bench run options...]     e.g.  scripts/run.sh --batch 1,8 --threads 2
#
# Installs what is missing, builds with what the machine has, prints the table, and writes
# reports/out/tinymoe-qwen3.json and .html. Needs no GPU and no network beyond the package manager.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

install_packages build
# A build folder made by the tests keeps its tests; a new one does not need GoogleTest.
fresh=()
[ -f build/release/CMakeCache.txt ] ||
  fresh=(-DMOE_BUILD_TESTS=OFF -DMOE_BUILD_BENCHMARKS=OFF)
say "configure and build (build/release)"
configure release "${fresh[@]}"
build release moe-bench

mkdir -p reports/out
say "moe-bench run scenarios/checkpoints/tinymoe-qwen3"
status=0
build/release/bin/moe-bench run scenarios/checkpoints/tinymoe-qwen3 \
  --output reports/out/tinymoe-qwen3.json --output reports/out/tinymoe-qwen3.html "$@" || status=$?
say "reports/out/tinymoe-qwen3.json and reports/out/tinymoe-qwen3.html"
exit "$status"
