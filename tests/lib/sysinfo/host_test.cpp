#include "lib/sysinfo/host.hpp"

#include <string>

#include <gtest/gtest.h>

#include "tests/support/temp_dir.hpp"

namespace moe::sysinfo {
namespace {

// A machine in a folder.
class FakeRoot {
 public:
  void file(const std::string& path, const std::string& text) {
    const auto full = folder_ / path;
    std::filesystem::create_directories(full.parent_path());
    test::write_file(full, text);
  }
  [[nodiscard]] const std::filesystem::path& path() const { return folder_.path(); }

 private:
  test::TempDir folder_;
};

std::string processor(int id, int package, int core) {
  return "processor\t: " + std::to_string(id) +
         "\nvendor_id\t: GenuineIntel\nmodel name\t: Example Xeon\nphysical id\t: " +
         std::to_string(package) + "\ncore id\t\t: " + std::to_string(core) +
         "\nflags\t\t: fpu avx2 avx512f amx_tile hypervisor\n\n";
}

void add_cache(FakeRoot& root, int index, const std::string& level, const std::string& kind,
               const std::string& size, const std::string& shared) {
  const std::string folder =
      "sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
  root.file(folder + "level", level + "\n");
  root.file(folder + "type", kind + "\n");
  root.file(folder + "size", size + "\n");
  root.file(folder + "shared_cpu_list", shared + "\n");
}

TEST(ReadCpu, CountsSocketsCoresAndThreads) {
  FakeRoot root;
  // Two sockets with two cores each, two threads a core; core numbers repeat over the sockets.
  std::string cpuinfo;
  int id = 0;
  for (int package = 0; package < 2; ++package) {
    for (const int core : {0, 1, 0, 1}) cpuinfo += processor(id++, package, core);
  }
  root.file("proc/cpuinfo", cpuinfo);
  root.file("sys/devices/system/cpu/smt/active", "1\n");
  root.file("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n");
  add_cache(root, 0, "1", "Data", "48K", "0,4");
  add_cache(root, 1, "3", "Unified", "32M", "0-7");
  const CpuInfo cpu = read_cpu(root.path());
  EXPECT_EQ(cpu.model, "Example Xeon");
  EXPECT_EQ(cpu.num_sockets, 2);
  EXPECT_EQ(cpu.num_cores, 4);
  EXPECT_EQ(cpu.num_threads, 8);
  EXPECT_EQ(cpu.smt_active, true);
  EXPECT_EQ(cpu.governor, "performance");
  EXPECT_EQ(cpu.isa_flags, (std::vector<std::string>{"avx2", "avx512f", "amx_tile"}));
  ASSERT_EQ(cpu.caches.size(), 2U);
  EXPECT_EQ(cpu.caches[0].kind, "data");
  EXPECT_EQ(cpu.caches[0].size_bytes, 49152);
  EXPECT_EQ(cpu.caches[0].shared_by_threads, 2);
  EXPECT_EQ(cpu.caches[1].size_bytes, 33554432);
  EXPECT_EQ(cpu.caches[1].shared_by_threads, 8);
}

TEST(ReadCpu, ReadsTheQuotaOfBothControlGroupVersions) {
  FakeRoot two;
  two.file("sys/fs/cgroup/cpu.max", "150000 100000\n");
  EXPECT_EQ(read_cpu(two.path()).quota_cores, 1.5);
  two.file("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_FALSE(read_cpu(two.path()).quota_cores);
  FakeRoot one;
  one.file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n");
  one.file("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(read_cpu(one.path()).quota_cores, 2.0);
  one.file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  EXPECT_FALSE(read_cpu(one.path()).quota_cores);
}

TEST(ReadMemory, ReadsTotalsAndTheLimit) {
  FakeRoot root;
  root.file("proc/meminfo",
            "MemTotal:       16384 kB\nMemAvailable:    8192 kB\nHugePages_Total:       3\n"
            "Hugepagesize:       2048 kB\n");
  root.file("sys/fs/cgroup/memory.max", "4194304\n");
  root.file("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  const MemoryInfo memory = read_memory(root.path());
  EXPECT_EQ(memory.total_bytes, 16384 * 1024);
  EXPECT_EQ(memory.available_bytes, 8192 * 1024);
  EXPECT_EQ(memory.limit_bytes, 4194304);
  EXPECT_EQ(memory.huge_page_bytes, 2048 * 1024);
  EXPECT_EQ(memory.huge_pages_total, 3);
  EXPECT_EQ(memory.transparent_huge_pages, "madvise");
  EXPECT_EQ(usable_memory_bytes(memory), 4194304);
  root.file("sys/fs/cgroup/memory.max", "max\n");
  EXPECT_EQ(usable_memory_bytes(read_memory(root.path())), 8192 * 1024);
}

TEST(ReadMemory, KnowsThatAHugeLimitIsNone) {
  FakeRoot root;
  root.file("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_FALSE(read_memory(root.path()).limit_bytes);
}

TEST(ReadHost, NamesTheSystemAndHintsAtVirtualization) {
  FakeRoot root;
  root.file("etc/os-release", "NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n");
  root.file("proc/loadavg", "0.25 1.50 2.00 1/100 42\n");
  root.file("proc/cpuinfo", processor(0, 0, 0));
  root.file("sys/class/dmi/id/sys_vendor", "QEMU\n");
  HostInfo host = read_host(root.path());
  EXPECT_EQ(host.os, "Debian GNU/Linux 12");
  EXPECT_EQ(host.load_average, (std::array<double, 3>{0.25, 1.5, 2.0}));
  EXPECT_EQ(host.virtualization, "hypervisor (QEMU)");
  EXPECT_FALSE(host.kernel.empty());
  root.file(".dockerenv", "");
  EXPECT_EQ(read_host(root.path()).virtualization, "container (docker)");
}

TEST(ReadHost, GuessesNothingOnAnEmptyMachine) {
  const FakeRoot root;
  const HostInfo host = read_host(root.path());
  EXPECT_FALSE(host.os || host.load_average || host.virtualization);
  EXPECT_FALSE(host.cpu.model || host.cpu.num_cores || host.cpu.smt_active || host.cpu.governor);
  EXPECT_TRUE(host.cpu.caches.empty() && host.cpu.isa_flags.empty());
  EXPECT_FALSE(host.memory.total_bytes || usable_memory_bytes(host.memory));
}

TEST(ReadHost, SurvivesNonsense) {
  FakeRoot root;
  root.file("proc/cpuinfo", std::string("\0\xff: :\n:\nprocessor", 18));
  root.file("proc/meminfo", "MemTotal: lots kB\nMemAvailable: 99999999999999999999 kB\n");
  root.file("proc/loadavg", "high\n");
  add_cache(root, 0, "x", "Data", "32K", "0");
  const HostInfo host = read_host(root.path());
  EXPECT_FALSE(host.memory.total_bytes || host.memory.available_bytes || host.load_average);
  EXPECT_TRUE(host.cpu.caches.empty());
}

TEST(ReadHost, KnowsThisMachine) {
  const HostInfo host = read_host();
  EXPECT_FALSE(host.host.empty());
  ASSERT_TRUE(host.cpu.num_usable_threads);
  EXPECT_GE(*host.cpu.num_usable_threads, 1);
  ASSERT_TRUE(host.memory.total_bytes && host.memory.available_bytes);
  EXPECT_LE(*host.memory.available_bytes, *host.memory.total_bytes);
}

}  // namespace
}  // namespace moe::sysinfo
