#pragma once

// How this binary was made and what it can use here.

#include <string>
#include <vector>

namespace moe::sysinfo {

struct BuildInfo {
  std::string version;
  std::string commit;  // "1234abcd", with "-dirty" when files differ; empty without git
  std::string build_type;
  std::string compiler;
};

[[nodiscard]] BuildInfo build_info();

struct Backend {
  std::string name;  // "cpu", "cuda", "nccl", "mpi"
  bool is_compiled_in = false;
  bool is_available = false;
  std::string reason;  // why not available; empty when it is
};

// Every backend there could be, in a fixed order, whether or not this build has it.
[[nodiscard]] std::vector<Backend> list_backends();

}  // namespace moe::sysinfo
