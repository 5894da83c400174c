#!/usr/bin/env bash
# Benchmark clients beside moe-bench on one scripted server that logs when each byte left: how far
# each client's TTFT is from the truth, and how much CPU time it takes. Installs nothing.
#
#   scripts/compare_clients.sh --tokenizer DIR [--vllm ENV] [--aiperf ENV] [--guidellm ENV]
#                              [--inference-perf ENV] [--streams N,N] [--script NAME] [--out DIR]
#
# ENV is a Python environment that holds the client; a client without one is left out. DIR is a
# folder with a tokenizer, which the others need to make prompts. MOE_BENCH names the binary.
set -euo pipefail
cd "$(dirname "$0")/.."
moe_bench="${MOE_BENCH:-build/release/bin/moe-bench}"
if [[ ! -x "$moe_bench" ]]; then
  echo "compare_clients: $moe_bench is not there; build it first: scripts/run.sh" >&2
  exit 4
fi
exec python3 scripts/compare_clients.py --moe-bench "$moe_bench" "$@"
