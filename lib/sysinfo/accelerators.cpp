#include "lib/sysinfo/accelerators.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>

#include <dlfcn.h>

#include "lib/sysinfo/text_file.hpp"

namespace moe::sysinfo {
namespace {

namespace fs = std::filesystem;

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  ..." -> "580.65.06": the first word
// that is digits and points.
std::optional<std::string> find_driver_version(const std::string& line) {
  std::size_t begin = 0;
  while (begin < line.size()) {
    const std::size_t end = std::min(line.find(' ', begin), line.size());
    const std::string word = line.substr(begin, end - begin);
    const bool is_version = !word.empty() && word.find('.') != std::string::npos &&
                            word.find_first_not_of("0123456789.") == std::string::npos;
    if (is_version) return word;
    begin = end + 1;
  }
  return std::nullopt;
}

// CUDA counts 1000 x major + 10 x minor, NCCL since 2.9 10000 x major + 100 x minor + patch.
std::string version_text(int version) {
  if (version >= 20000) {
    return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
           std::to_string(version % 100);
  }
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

LibraryPresence probe_library(const std::string& name, const std::string& version_symbol) {
  LibraryPresence presence;
  presence.name = name;
  const std::unique_ptr<void, int (*)(void*)> library(dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL),
                                                      dlclose);
  if (!library) {
    const char* error = dlerror();
    presence.reason = error != nullptr ? error : "could not be loaded";
    return presence;
  }
  presence.is_present = true;
  if (version_symbol.empty()) return presence;
  using VersionFunction = int (*)(int*);
  void* symbol = dlsym(library.get(), version_symbol.c_str());
  int version = 0;
  // POSIX promises that a function's address survives the trip through void*.
  const auto ask = reinterpret_cast<VersionFunction>(reinterpret_cast<std::uintptr_t>(symbol));
  if (symbol != nullptr && ask(&version) == 0 && version > 0) {
    presence.version = version_text(version);
  }
  return presence;
}

std::vector<LibraryPresence> probe_libraries() {
  return {probe_library("libcuda.so.1", "cuDriverGetVersion"), probe_library("libnvidia-ml.so.1"),
          probe_library("libnccl.so.2", "ncclGetVersion")};
}

GpuPresence probe_gpu(const fs::path& root) {
  GpuPresence gpu;
  if (const auto line = read_line(root / "proc/driver/nvidia/version")) {
    gpu.driver_version = find_driver_version(*line);
  }
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(root / "dev", ignored)) {
    const std::string name = entry.path().filename().string();
    constexpr std::string_view kPrefix = "nvidia";
    const bool is_device = name.starts_with(kPrefix) && parse_integer(name.substr(kPrefix.size()));
    if (is_device) gpu.device_nodes.push_back("/dev/" + name);
  }
  std::sort(gpu.device_nodes.begin(), gpu.device_nodes.end());
  if (gpu.device_nodes.empty()) {
    gpu.reason = gpu.driver_version ? "the driver is loaded but there is no /dev/nvidia<N>"
                                    : "no NVIDIA driver is loaded and there is no /dev/nvidia<N>";
  }
  return gpu;
}

}  // namespace moe::sysinfo
