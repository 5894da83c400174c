#pragma once

// Is there a GPU driver, is there a device, which libraries can be loaded. Cheap: libraries are
// opened and closed, no device is touched.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace moe::sysinfo {

struct LibraryPresence {
  std::string name;  // "libcuda.so.1"
  bool is_present = false;
  std::optional<std::string> version;
  std::string reason;  // why it could not be loaded; empty when present
};

struct GpuPresence {
  std::optional<std::string> driver_version;
  std::vector<std::string> device_nodes;  // "/dev/nvidia0"
  std::string reason;                     // why no GPU can be used; empty when one may be
};

// Opens the library lazily and closes it again. The version comes from the symbol named
// version_symbol, an `int f(int*)` as CUDA, NCCL and NVML have them; empty: no version.
[[nodiscard]] LibraryPresence probe_library(const std::string& name,
                                            const std::string& version_symbol = {});

// The CUDA driver, NVML and NCCL.
[[nodiscard]] std::vector<LibraryPresence> probe_libraries();

[[nodiscard]] GpuPresence probe_gpu(const std::filesystem::path& root = "/");

}  // namespace moe::sysinfo
