#pragma once

// Opens NCCL and the CUDA runtime where they are installed, and says what is missing where not.

#include <string>
#include <vector>

#include "lib/comm/nccl_abi.hpp"

namespace moe::comm {

struct NcclLibraries {
  NcclApi nccl;
  CudaApi cuda;
  int num_devices = 0;
  std::string nccl_version;          // "2.28.9"
  std::string cuda_runtime_version;  // "13.0"
  std::string cuda_driver_version;   // "12.8"
};

struct NcclSonames {
  std::vector<std::string> cuda = {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"};
  std::vector<std::string> nccl = {"libnccl.so.2"};
};

// The libraries stay open to the end of the process: NCCL has threads of its own. Throws
// Error(kUnavailable) with the first of: no CUDA runtime, no driver, no device, no NCCL, one that
// is too old.
[[nodiscard]] NcclLibraries load_nccl(const NcclSonames& names = {});

// The same checks for tables that came from elsewhere.
void check_nccl(NcclLibraries& libraries);

// "2.28.9" of 22809.
[[nodiscard]] std::string nccl_version_text(int version);

}  // namespace moe::comm
