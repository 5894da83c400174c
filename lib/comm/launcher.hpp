#pragma once

// Who started this process, from the variables that launchers set. The environment is passed in as
// a function; lib/app reads it.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lib/comm/backend.hpp"

namespace moe::comm {

// nullopt: not set.
using VariableReader = std::function<std::optional<std::string>(const char* name)>;

struct LauncherFound {
  LauncherFacts facts;  // without a name: started by hand
  // Others whose variables are there too, such as Slurm around torchrun: not taken.
  std::vector<std::string> also_found;
};

// The innermost first: torchrun (RANK, WORLD_SIZE), Open MPI (OMPI_COMM_WORLD_*), MPICH and Hydra
// (PMI_*), Slurm (SLURM_PROCID of a step; a bare sbatch script is no launcher). MASTER_ADDR and
// MASTER_PORT name the place to meet for each of them (one port above where torchrun keeps a store
// of its own); without them Slurm's first node does, at a
// port that follows from the job's number. Throws Error(kUsage) for values that make no sense.
[[nodiscard]] LauncherFound find_launcher(const VariableReader& read);

// "gpu003" of "gpu[003-010,15],x1".
[[nodiscard]] std::string first_slurm_node(const std::string& node_list);

}  // namespace moe::comm
