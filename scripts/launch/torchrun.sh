#!/usr/bin/env bash
# Runs moe-a2a under torchrun: once on each host, one rank for each GPU. No MPI is needed; the ranks
# meet at the first host, one port above torchrun's own.
#
#   scripts/launch/torchrun.sh -g GPUS [-n HOSTS -r HOST_RANK -a FIRST_HOST] [-p PORT] [--dry-run]
#                              [-- moe-a2a run options...]
#
#   scripts/launch/torchrun.sh -g 8 -n 2 -r 0 -a node-0 -- --gpu h100_sxm --min-of-bound 0.8
#
# MOE_A2A names the binary, TORCHRUN the launcher. --dry-run prints the command. torchrun ends with
# 1 whenever a rank does not end with 0: the code of moe-a2a stands in the report (-o FILE after
# the --).
set -euo pipefail

usage() { sed -n '2,/^[^#]/{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2; }

gpus='' hosts=1 host_rank=0 first_host=localhost port=29500 dry_run=''
while [ $# -gt 0 ]; do
  case $1 in
    -g | -n | -r | -a | -p) [ $# -ge 2 ] || usage ;;&
    -g) gpus=$2; shift 2 ;;
    -n) hosts=$2; shift 2 ;;
    -r) host_rank=$2; shift 2 ;;
    -a) first_host=$2; shift 2 ;;
    -p) port=$2; shift 2 ;;
    --dry-run) dry_run=1; shift ;;
    --) shift; break ;;
    *) usage ;;
  esac
done
[ -n "$gpus" ] || usage

# A rank that failed is not started again: --max-restarts 0.
command=("${TORCHRUN:-torchrun}" --nnodes "$hosts" --node-rank "$host_rank"
  --nproc-per-node "$gpus" --master-addr "$first_host" --master-port "$port" --max-restarts 0
  --no-python "${MOE_A2A:-moe-a2a}" run --backend nccl "$@")

if [ -n "$dry_run" ]; then
  printf '%q ' "${command[@]}"
  echo
  exit 0
fi
exec "${command[@]}"
