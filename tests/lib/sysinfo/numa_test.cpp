#include "lib/sysinfo/numa.hpp"

#include <numeric>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/aligned_buffer.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::sysinfo {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A machine's nodes in a folder, as the kernel writes them.
class FakeNodes {
 public:
  void online(const std::string& list) { test::write_file(folder_ / "online", list + "\n"); }
  void node(int id, const std::string& cpus, std::int64_t memory_kb, const std::string& distances) {
    const auto folder = path() / ("node" + std::to_string(id));
    std::filesystem::create_directories(folder);
    const std::string head = "Node " + std::to_string(id) + " ";
    test::write_file(folder / "cpulist", cpus + "\n");
    test::write_file(folder / "meminfo", head + "MemTotal:       " + std::to_string(memory_kb) +
                                             " kB\n" + head + "MemFree:        17 kB\n");
    test::write_file(folder / "distance", distances + "\n");
  }
  [[nodiscard]] const std::filesystem::path& path() const { return folder_.path(); }

 private:
  test::TempDir folder_;
};

std::vector<std::int32_t> cpus_up_to(std::int32_t count) {
  std::vector<std::int32_t> cpus(static_cast<std::size_t>(count));
  std::iota(cpus.begin(), cpus.end(), 0);
  return cpus;
}

TEST(ReadNuma, ReadsNodesWithHolesInTheirCpus) {
  FakeNodes machine;
  machine.online("0-1");
  machine.node(0, "0-3,8-11", 1000, "10 21");
  machine.node(1, "4-7,12-15", 2000, "21 10");
  const NumaTopology topology = read_numa(machine.path(), {cpus_up_to(16), {}});
  EXPECT_THAT(topology.unknown_reason, IsEmpty());
  ASSERT_EQ(topology.nodes.size(), 2U);
  EXPECT_THAT(topology.nodes[0].cpus, ElementsAre(0, 1, 2, 3, 8, 9, 10, 11));
  EXPECT_EQ(topology.nodes[1].id, 1);
  EXPECT_EQ(topology.nodes[1].memory_bytes, 2000 * 1024);
  EXPECT_THAT(topology.nodes[1].distances, ElementsAre(21, 10));
}

TEST(ReadNuma, KeepsOnlyCpusAndMemoryThatTheProcessMayUse) {
  FakeNodes machine;
  machine.online("0-1");
  machine.node(0, "0-3", 1000, "10 21");
  machine.node(1, "4-7", 1000, "21 10");
  const NumaTopology topology =
      read_numa(machine.path(), {{2, 3, 4, 99}, std::vector<std::int32_t>{1}});
  ASSERT_EQ(topology.nodes.size(), 2U);
  EXPECT_THAT(topology.nodes[0].cpus, ElementsAre(2, 3));
  EXPECT_THAT(topology.nodes[1].cpus, ElementsAre(4));
  EXPECT_EQ(topology.nodes[0].memory_bytes, 0);
  EXPECT_EQ(topology.nodes[1].memory_bytes, 1000 * 1024);
}

TEST(ReadNuma, ANodeMayHaveMemoryOnlyOrNoMemory) {
  FakeNodes machine;
  machine.online("0,2-3");
  machine.node(0, "0-1", 1000, "10 20 30");
  machine.node(2, "", 8000, "20 10 30");
  machine.node(3, "2-3", 0, "30 30 10");
  const NumaTopology topology = read_numa(machine.path(), {cpus_up_to(4), {}});
  EXPECT_THAT(topology.unknown_reason, IsEmpty());
  ASSERT_EQ(topology.nodes.size(), 3U);
  EXPECT_EQ(topology.nodes[1].id, 2);
  EXPECT_THAT(topology.nodes[1].cpus, IsEmpty());
  EXPECT_EQ(topology.nodes[1].memory_bytes, 8000 * 1024);
  EXPECT_EQ(topology.nodes[2].memory_bytes, 0);
}

void expect_one_node(const FakeNodes& machine, const std::string& mention) {
  const NumaTopology topology = read_numa(machine.path(), {{1, 5}, {}});
  EXPECT_THAT(topology.unknown_reason, HasSubstr(mention));
  ASSERT_EQ(topology.nodes.size(), 1U);
  EXPECT_EQ(topology.nodes[0].id, 0);
  EXPECT_THAT(topology.nodes[0].cpus, ElementsAre(1, 5));
  EXPECT_FALSE(topology.nodes[0].memory_bytes);
}

TEST(ReadNuma, WhatCannotBeReadIsOneNodeAndSaysWhy) {
  FakeNodes machine;
  expect_one_node(machine, "online: expected a list");
  for (const char* text : {"", "0-", "1,0", "zero", "0-99999999999"}) {
    machine.online(text);
    expect_one_node(machine, "online: expected a list");
  }
  machine.online("0-1");
  machine.node(0, "0-3", 1000, "10 21");
  expect_one_node(machine, "node1/cpulist: expected");
  machine.node(1, "4-7;", 1000, "21 10");
  expect_one_node(machine, "node1/cpulist: expected");
  machine.node(1, "4-7", 1000, "21 10");
  test::write_file(machine.path() / "node1/meminfo", "Node 0 MemTotal: 5 kB\n");
  expect_one_node(machine, "node1/meminfo: expected");
  test::write_file(machine.path() / "node1/meminfo", "Node 1 MemTotal: -5 kB\n");
  expect_one_node(machine, "node1/meminfo: expected");
}

TEST(ReadNuma, ATopologyWithoutOurCpusIsOneNode) {
  FakeNodes machine;
  machine.online("0-1");
  machine.node(0, "8-9", 1000, "10 21");
  machine.node(1, "10-11", 1000, "21 10");
  expect_one_node(machine, "CPUs of this process");
}

TEST(ReadNuma, DistancesThatMakeNoSenseAreUnknown) {
  FakeNodes machine;
  machine.online("0-1");
  machine.node(0, "0-3", 1000, "10");
  machine.node(1, "4-7", 1000, "21 x");
  const NumaTopology topology = read_numa(machine.path(), {cpus_up_to(8), {}});
  ASSERT_EQ(topology.nodes.size(), 2U);
  EXPECT_THAT(topology.nodes[0].distances, IsEmpty());
  EXPECT_THAT(topology.nodes[1].distances, IsEmpty());
}

TEST(NumaLimits, ReadsTheNodesOfTheControlGroup) {
  const test::TempDir folder;
  test::write_file(folder / "status", "Mems_allowed:\t05\nMems_allowed_list:\t0,2\n");
  EXPECT_EQ(numa_limits(folder / "status").mems, (std::vector<std::int32_t>{0, 2}));
  EXPECT_FALSE(numa_limits(folder / "none").mems);
}

TEST(MachineNuma, KnowsAtLeastOneNodeWithOurCpus) {
  const NumaTopology topology = machine_numa().topology();
  ASSERT_FALSE(topology.nodes.empty());
  std::size_t num_cpus = 0;
  for (const NumaNode& node : topology.nodes) num_cpus += node.cpus.size();
  EXPECT_EQ(num_cpus, usable_cpus().size());
}

TEST(MachineNuma, BindsTheCallingThreadOnly) {
  const std::vector<std::int32_t> before = usable_cpus();
  ASSERT_FALSE(before.empty());
  std::vector<std::int32_t> bound;
  int error = -1;
  std::thread([&] {
    error = machine_numa().bind_thread(std::vector<std::int32_t>{before.back()});
    bound = usable_cpus();
  }).join();
  EXPECT_EQ(error, 0);
  EXPECT_THAT(bound, ElementsAre(before.back()));
  EXPECT_EQ(usable_cpus(), before);
}

TEST(MachineNuma, InterleavedMemoryHasThatPolicy) {
  AlignedBytes bytes(std::int64_t{3} << 20);
  const std::span<const std::byte> block(bytes.data(),
                                         static_cast<std::size_t>(bytes.size_bytes()));
  const NumaTopology topology = machine_numa().topology();
  const int error =
      machine_numa().interleave(block, std::vector<std::int32_t>{topology.nodes.front().id});
  if (error != 0) GTEST_SKIP() << "the system refuses memory policies: errno " << error;
  int policy = -1;
  ASSERT_EQ(::syscall(SYS_get_mempolicy, &policy, nullptr, 0, block.data(), MPOL_F_ADDR), 0);
  EXPECT_EQ(policy, MPOL_INTERLEAVE);
  bytes.data()[bytes.size_bytes() - 1] = std::byte{7};
  EXPECT_EQ(bytes.data()[0], std::byte{0});
}

TEST(MachineNuma, ANodeThatIsNotThereIsRefused) {
  const AlignedBytes bytes(4096);
  const std::span<const std::byte> block(bytes.data(), 4096);
  EXPECT_NE(machine_numa().interleave(block, std::vector<std::int32_t>{1000}), 0);
}

}  // namespace
}  // namespace moe::sysinfo
