#include "lib/sysinfo/numa.hpp"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <sstream>
#include <string_view>
#include <utility>

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/text.hpp"
#include "lib/sysinfo/text_file.hpp"

namespace moe::sysinfo {
namespace {

namespace fs = std::filesystem;

// More CPUs than any machine has.
constexpr std::size_t kMaxMaskCpus = std::size_t{1} << 20;

using Numbers = std::vector<std::int32_t>;

// An empty file is an empty list: a node of memory only has no CPUs.
std::optional<Numbers> read_list(const fs::path& path) {
  const auto text = read_text(path);
  return text ? parse_list(trim(*text)) : std::nullopt;
}

std::optional<Numbers> read_distances(const fs::path& path, std::size_t num_nodes) {
  const auto text = read_text(path);
  if (!text) return std::nullopt;
  std::istringstream words(*text);
  const Numbers distances{std::istream_iterator<std::int32_t>(words), {}};
  const bool is_good = distances.size() == num_nodes && words.eof() &&
                       std::ranges::all_of(distances, [](std::int32_t d) { return d > 0; });
  return is_good ? std::optional(distances) : std::nullopt;
}

NumaTopology one_node(const NumaLimits& limits, const std::string& reason) {
  NumaTopology topology;
  topology.nodes.push_back({0, limits.cpus, {}, {}});
  topology.unknown_reason = reason;
  return topology;
}

std::string bad_file(const fs::path& path, const char* expected) {
  return path.string() + ": expected " + expected;
}

// An error in one line, or empty.
std::string read_node(const fs::path& folder, std::size_t num_nodes, const NumaLimits& limits,
                      NumaNode& node) {
  const auto cpus = read_list(folder / "cpulist");
  if (!cpus) return bad_file(folder / "cpulist", "a list of CPUs such as 0-3,8-11");
  std::ranges::set_intersection(*cpus, limits.cpus, std::back_inserter(node.cpus));
  const auto meminfo = read_text(folder / "meminfo");
  const std::string key = "Node " + std::to_string(node.id) + " MemTotal";
  node.memory_bytes = meminfo ? parse_kilobytes(find_value(*meminfo, key)) : std::nullopt;
  if (!node.memory_bytes) return bad_file(folder / "meminfo", "a line MemTotal in kB");
  if (limits.mems && !std::ranges::binary_search(*limits.mems, node.id)) node.memory_bytes = 0;
  // Only the order of preference rests on these.
  node.distances = read_distances(folder / "distance", num_nodes).value_or(Numbers());
  return "";
}

// Bit n of the mask stands for number n.
using Mask = std::vector<unsigned long>;
constexpr std::size_t kWordBits = 8 * sizeof(unsigned long);

Mask mask_of(std::span<const std::int32_t> numbers) {
  Mask mask;
  for (const std::int32_t number : numbers) {
    const auto bit = static_cast<std::size_t>(number);
    mask.resize(std::max(mask.size(), bit / kWordBits + 1));
    mask[bit / kWordBits] |= 1UL << (bit % kWordBits);
  }
  return mask;
}

int interleave_block(std::span<const std::byte> block, std::span<const std::int32_t> nodes) {
  const Mask mask = mask_of(nodes);
  // The kernel reads one bit fewer than it is told of.
  const std::size_t num_bits = mask.size() * kWordBits + 1;
  const long result =
      ::syscall(SYS_mbind, block.data(), block.size(), MPOL_INTERLEAVE, mask.data(), num_bits, 0);
  return result == 0 ? 0 : errno;
}

int bind_this_thread(std::span<const std::int32_t> cpus) {
  const Mask mask = mask_of(cpus);
  const auto* const set = reinterpret_cast<const cpu_set_t*>(mask.data());
  return ::sched_setaffinity(0, mask.size() * sizeof(unsigned long), set) == 0 ? 0 : errno;
}

}  // namespace

NumaTopology read_numa(const fs::path& folder, const NumaLimits& limits) {
  const auto online = read_list(folder / "online");
  if (!online || online->empty()) {
    return one_node(limits, bad_file(folder / "online", "a list of nodes such as 0-1"));
  }
  NumaTopology topology;
  bool has_cpus = false;
  for (const std::int32_t id : *online) {
    NumaNode node;
    node.id = id;
    std::string error =
        read_node(folder / ("node" + std::to_string(id)), online->size(), limits, node);
    if (!error.empty()) return one_node(limits, error);
    has_cpus = has_cpus || !node.cpus.empty();
    topology.nodes.push_back(std::move(node));
  }
  if (!has_cpus) {
    return one_node(limits, folder.string() + ": expected a node with CPUs of this process");
  }
  return topology;
}

std::vector<std::int32_t> usable_cpus() {
  // The system refuses a mask that is smaller than its own.
  for (std::size_t num_cpus = CPU_SETSIZE; num_cpus <= kMaxMaskCpus; num_cpus *= 4) {
    Mask mask(num_cpus / kWordBits);
    auto* const set = reinterpret_cast<cpu_set_t*>(mask.data());
    if (::sched_getaffinity(0, num_cpus / 8, set) != 0) {
      if (errno == EINVAL) continue;
      return {};
    }
    std::vector<std::int32_t> cpus;
    for (std::size_t cpu = 0; cpu < num_cpus; ++cpu) {
      if ((mask[cpu / kWordBits] >> (cpu % kWordBits) & 1UL) != 0) {
        cpus.push_back(static_cast<std::int32_t>(cpu));
      }
    }
    return cpus;
  }
  return {};
}

NumaLimits numa_limits(const fs::path& status) {
  NumaLimits limits{usable_cpus(), {}};
  const auto text = read_text(status);
  const auto mems = text ? find_value(*text, "Mems_allowed_list") : std::nullopt;
  if (mems) limits.mems = parse_list(*mems);
  return limits;
}

const NumaSystem& machine_numa() {
  static const NumaSystem system{[] { return read_numa(kNodeFolder, numa_limits()); },
                                 interleave_block, bind_this_thread};
  return system;
}

}  // namespace moe::sysinfo
