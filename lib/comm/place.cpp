#include "lib/comm/place.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include <sched.h>
#include <unistd.h>

#include "lib/topology/cpu_set.hpp"

namespace moe::comm {
namespace {

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The interface of the line with destination 00000000.
std::string default_route(const std::filesystem::path& root) {
  std::ifstream routes(root / "proc/net/route");
  std::string line;
  while (std::getline(routes, line)) {
    std::istringstream fields(line);
    std::string interface;
    std::string destination;
    if (fields >> interface >> destination && destination == "00000000") return interface;
  }
  return {};
}

std::string active_infiniband(const std::filesystem::path& root) {
  const std::filesystem::path folder = root / "sys/class/infiniband";
  for (const std::string& name : names_in(folder)) {
    for (const std::string& port : names_in(folder / name / "ports")) {
      const std::string state = first_line(folder / name / "ports" / port / "state");
      if (state.find("ACTIVE") != std::string::npos) return name;
    }
  }
  return {};
}

std::string first_port_up(const std::filesystem::path& root) {
  const std::filesystem::path folder = root / "sys/class/net";
  for (const std::string& name : names_in(folder)) {
    if (name == "lo") continue;
    if (first_line(folder / name / "operstate") == "up") return name;
  }
  return {};
}

}  // namespace

std::string find_nic(const std::filesystem::path& root) {
  std::string name = default_route(root);
  if (name.empty()) name = active_infiniband(root);
  if (name.empty()) name = first_port_up(root);
  return name;
}

RankPlace find_place() {
  RankPlace place;
  char host[256] = {};
  if (::gethostname(host, sizeof(host) - 1) == 0) place.host = host;
  place.process = ::getpid();
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (::sched_getaffinity(0, sizeof(cpus), &cpus) == 0) {
    std::vector<topology::NumberRange> cpu_numbers;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(static_cast<std::size_t>(cpu), &cpus)) cpu_numbers.push_back({cpu, cpu});
    }
    place.num_cpus = CPU_COUNT(&cpus);
    place.device = "CPUs " + topology::NumberSet(std::move(cpu_numbers)).to_string();
  }
  place.nic = find_nic();
  return place;
}

}  // namespace moe::comm
