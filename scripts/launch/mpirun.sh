#!/usr/bin/env bash
# Runs moe-a2a on several hosts under Open MPI's mpirun, one rank for each GPU (or core).
#
#   scripts/launch/mpirun.sh -n RANKS [-N PER_HOST] [-H HOST:SLOTS,... | -f HOSTFILE] [-b BACKEND]
#                            [--dry-run] [-- moe-a2a run options...]
#
#   scripts/launch/mpirun.sh -n 16 -N 8 -f hosts.txt -b nccl -- --gpu h100_sxm --min-of-bound 0.8
#
# -b is nccl or mpi (mpi needs no GPU). MOE_A2A names the binary, MPIRUN the launcher, MPIRUN_ARGS
# more of its options (--allow-run-as-root in a container). Variables NCCL_* and UCX_* that are set
# here are passed on. --dry-run prints the command. Ends as moe-a2a does: 1 too slow, 5 a rank hangs
# or is lost, 6 wrong data.
set -euo pipefail

usage() { sed -n '2,/^[^#]/{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2; }

ranks='' per_host='' hosts='' hostfile='' backend=nccl dry_run=''
while [ $# -gt 0 ]; do
  case $1 in
    -n | -N | -H | -f | -b) [ $# -ge 2 ] || usage ;;&
    -n) ranks=$2; shift 2 ;;
    -N) per_host=$2; shift 2 ;;
    -H) hosts=$2; shift 2 ;;
    -f) hostfile=$2; shift 2 ;;
    -b) backend=$2; shift 2 ;;
    --dry-run) dry_run=1; shift ;;
    --) shift; break ;;
    *) usage ;;
  esac
done
[ -n "$ranks" ] || usage

command=("${MPIRUN:-mpirun}" -np "$ranks")
[ -z "$per_host" ] || command+=(--map-by "ppr:$per_host:node")
[ -z "$hosts" ] || command+=(-H "$hosts")
[ -z "$hostfile" ] || command+=(--hostfile "$hostfile")
# A rank's threads stay on the socket that its GPU and NIC hang on.
command+=(--bind-to numa)
while IFS= read -r name; do
  command+=(-x "$name")
done < <(compgen -e | grep -E '^(NCCL|UCX)_' || true)
# shellcheck disable=SC2206  # several words are meant
command+=(${MPIRUN_ARGS:-})
command+=("${MOE_A2A:-moe-a2a}" run --backend "$backend" "$@")

if [ -n "$dry_run" ]; then
  printf '%q ' "${command[@]}"
  echo
  exit 0
fi
exec "${command[@]}"
