#include "lib/comm/launcher.hpp"

#include <charconv>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/base/parse_number.hpp"
#include "lib/base/text.hpp"

namespace moe::comm {
namespace {

constexpr int kMaxRanks = 1 << 20;
constexpr int kMaxPort = 65535;
// Above the well-known ports and below Linux's ephemeral ones.
constexpr int kFirstSlurmPort = 20000;
constexpr int kNumSlurmPorts = 12000;

std::optional<int> read_count(const VariableReader& read, const char* name, int min, int max) {
  const std::optional<std::string> text = read(name);
  if (!text) return std::nullopt;
  const auto value = parse_number<int>(*text);
  if (!value || *value < min || *value > max) {
    throw Error(
        ErrorCode::kUsage,
        fmt::format("{}={}: expected a whole number from {} to {}; the launcher's variables "
                    "are broken, or set by hand",
                    name, printable(*text), min, max));
  }
  return value;
}

struct Names {
  const char* launcher;
  const char* rank;
  const char* num_ranks;
  const char* local_rank;
  const char* num_local_ranks;  // null: it does not say
};

constexpr Names kLaunchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr},
};

// "4(x2),3" -> 4, 4, 3 by node; nullopt where the node is not in it.
std::optional<int> slurm_tasks(const std::string& text, int node) {
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  int before = 0;
  while (at < end) {
    int tasks = 0;
    int times = 1;
    const auto count = std::from_chars(at, end, tasks);
    if (count.ec != std::errc() || tasks < 1) return std::nullopt;
    at = count.ptr;
    if (end - at >= 3 && at[0] == '(' && at[1] == 'x') {
      const auto repeat = std::from_chars(at + 2, end, times);
      if (repeat.ec != std::errc() || times < 1 || repeat.ptr == end || *repeat.ptr != ')') {
        return std::nullopt;
      }
      at = repeat.ptr + 1;
    }
    if (node - before < times) return tasks;
    before += times;
    if (at < end && *at == ',') ++at;
  }
  return std::nullopt;
}

void read_slurm(const VariableReader& read, LauncherFacts& facts) {
  const std::optional<int> node = read_count(read, "SLURM_NODEID", 0, kMaxRanks);
  const std::optional<std::string> tasks = read("SLURM_STEP_TASKS_PER_NODE");
  if (node && tasks) facts.num_local_ranks = slurm_tasks(*tasks, *node);
  const std::optional<std::string> nodes = read("SLURM_STEP_NODELIST");
  if (facts.store_host.empty() && nodes) facts.store_host = first_slurm_node(*nodes);
  const std::optional<int> job = read_count(read, "SLURM_JOB_ID", 0, 2000000000);
  const std::optional<int> step = read_count(read, "SLURM_STEP_ID", 0, 2000000000);
  if (facts.store_port == 0 && job) {
    facts.store_port = kFirstSlurmPort + (*job + step.value_or(0)) % kNumSlurmPorts;
  }
}

}  // namespace

std::string first_slurm_node(const std::string& node_list) {
  const std::size_t end = node_list.find_first_of(",[");
  if (end == std::string::npos || node_list[end] == ',') return node_list.substr(0, end);
  const std::size_t number = node_list.find_first_of(",-]", end + 1);
  return node_list.substr(0, end) + node_list.substr(end + 1, number - end - 1);
}

LauncherFound find_launcher(const VariableReader& read) {
  LauncherFound found;
  for (const Names& names : kLaunchers) {
    if (!read(names.rank) || !read(names.num_ranks)) continue;
    if (!found.facts.name.empty()) {
      found.also_found.emplace_back(names.launcher);
      continue;
    }
    LauncherFacts& facts = found.facts;
    facts.name = names.launcher;
    facts.num_ranks = read_count(read, names.num_ranks, 1, kMaxRanks);
    facts.rank = read_count(read, names.rank, 0, kMaxRanks);
    facts.local_rank = read_count(read, names.local_rank, 0, kMaxRanks);
    if (names.num_local_ranks != nullptr) {
      facts.num_local_ranks = read_count(read, names.num_local_ranks, 1, kMaxRanks);
    }
    if (*facts.rank >= *facts.num_ranks) {
      throw Error(ErrorCode::kUsage, fmt::format("{}={} is not below {}={}", names.rank,
                                                 *facts.rank, names.num_ranks, *facts.num_ranks));
    }
  }
  found.facts.store_host = read("MASTER_ADDR").value_or("");
  found.facts.store_port = read_count(read, "MASTER_PORT", 1, kMaxPort).value_or(0);
  // torchrun's own store listens at MASTER_PORT when its agent keeps one; ours is the next port.
  const bool is_taken =
      found.facts.name == "torchrun" && read("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  if (is_taken && found.facts.store_port > 0) {
    found.facts.store_port += found.facts.store_port < kMaxPort ? 1 : -1;
  }
  if (found.facts.name == "Slurm") read_slurm(read, found.facts);
  return found;
}

}  // namespace moe::comm
