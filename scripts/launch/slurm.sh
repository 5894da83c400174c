#!/usr/bin/env bash
#SBATCH --job-name=moe-a2a
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#SBATCH --time=00:20:00
# A Slurm job that runs moe-a2a, one rank for each GPU. The ranks meet at the first node of the
# step; no MPI is needed. Options of sbatch override those above.
#
#   sbatch --nodes 4 scripts/launch/slurm.sh --gpu h100_sxm --min-of-bound 0.8 -o report.json
#
# MOE_A2A names the binary, MOE_BACKEND is nccl or mpi (then with srun's --mpi of your site in
# SRUN_ARGS). The job ends as moe-a2a does: 1 too slow, 5 a rank hangs or is lost, 6 wrong data.
set -euo pipefail

# One rank that ends takes the others with it, so that a hang does not use up the time of the job.
command=(srun --kill-on-bad-exit=1 --cpu-bind=ldoms)
# shellcheck disable=SC2206  # several words are meant
command+=(${SRUN_ARGS:---mpi=none})
command+=("${MOE_A2A:-moe-a2a}" run --backend "${MOE_BACKEND:-nccl}" "$@")
printf '%q ' "${command[@]}" >&2
echo >&2
exec "${command[@]}"
