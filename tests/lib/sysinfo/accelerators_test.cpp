#include "lib/sysinfo/accelerators.hpp"

#include <set>

#include <gtest/gtest.h>

#include "lib/sysinfo/build_info.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::sysinfo {
namespace {

TEST(ProbeLibrary, SaysWhyALibraryIsNotThere) {
  const LibraryPresence none = probe_library("libmoekit-does-not-exist.so.9");
  EXPECT_FALSE(none.is_present);
  EXPECT_NE(none.reason.find("libmoekit-does-not-exist.so.9"), std::string::npos);
}

TEST(ProbeLibrary, FindsTheCLibrary) {
  const LibraryPresence libc = probe_library("libc.so.6", "no_such_symbol_here");
  EXPECT_TRUE(libc.is_present);
  EXPECT_TRUE(libc.reason.empty());
  EXPECT_FALSE(libc.version);
}

TEST(ProbeGpu, ReadsDriverAndDevices) {
  const test::TempDir root;
  std::filesystem::create_directories(root / "proc/driver/nvidia");
  std::filesystem::create_directories(root / "dev");
  EXPECT_FALSE(probe_gpu(root.path()).reason.empty());
  test::write_file(root / "proc/driver/nvidia/version",
                   "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27\n");
  EXPECT_EQ(probe_gpu(root.path()).driver_version, "580.65.06");
  EXPECT_NE(probe_gpu(root.path()).reason.find("no /dev/nvidia"), std::string::npos);
  for (const char* name : {"dev/nvidia1", "dev/nvidia0", "dev/nvidiactl", "dev/nvidia-uvm"}) {
    test::write_file(root / name, "");
  }
  const GpuPresence gpu = probe_gpu(root.path());
  EXPECT_EQ(gpu.device_nodes, (std::vector<std::string>{"/dev/nvidia0", "/dev/nvidia1"}));
  EXPECT_TRUE(gpu.reason.empty());
}

TEST(BuildInfo, IsFilled) {
  const BuildInfo build = build_info();
  EXPECT_FALSE(build.version.empty() || build.compiler.empty());
  EXPECT_EQ(build.commit.find(' '), std::string::npos);
}

TEST(ListBackends, NamesAllAndGivesReasons) {
  std::set<std::string> names;
  for (const Backend& backend : list_backends()) {
    names.insert(backend.name);
    EXPECT_EQ(backend.is_available, backend.reason.empty()) << backend.name;
    EXPECT_TRUE(backend.is_compiled_in || !backend.is_available) << backend.name;
  }
  EXPECT_EQ(names, (std::set<std::string>{"cpu", "cuda", "mpi", "nccl"}));
}

}  // namespace
}  // namespace moe::sysinfo
