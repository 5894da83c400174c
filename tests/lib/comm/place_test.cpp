// The port that carries traffic to other hosts, from a file system of our own.

#include "lib/comm/place.hpp"

#include <gtest/gtest.h>

#include "tests/support/temp_dir.hpp"

namespace moe::comm {
namespace {

class FindNic : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    test::write_file(root_ / path, text);
  }
  [[nodiscard]] std::string found() const { return find_nic(root_ / ""); }
  test::TempDir root_;
};

TEST_F(FindNic, TakesThePortOfTheDefaultRoute) {
  write("proc/net/route",
        "Iface\tDestination\tGateway\neth0\t0000000A\t00000000\nbond0\t00000000\t0100000A\n");
  write("sys/class/net/eth0/operstate", "up\n");
  EXPECT_EQ(found(), "bond0");
}

TEST_F(FindNic, ElseAnActiveInfinibandDevice) {
  write("sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n");
  write("sys/class/infiniband/mlx5_1/ports/1/state", "4: ACTIVE\n");
  write("sys/class/net/eth0/operstate", "up\n");
  EXPECT_EQ(found(), "mlx5_1");
}

TEST_F(FindNic, ElseTheFirstPortThatIsUp) {
  write("sys/class/net/lo/operstate", "up\n");
  write("sys/class/net/eth0/operstate", "down\n");
  write("sys/class/net/eth1/operstate", "up\n");
  EXPECT_EQ(found(), "eth1");
}

TEST_F(FindNic, ElseNone) {
  EXPECT_EQ(found(), "");
}

TEST(FindPlace, KnowsHostProcessAndCpus) {
  const RankPlace place = find_place();
  EXPECT_FALSE(place.host.empty());
  EXPECT_GT(place.process, 0);
  EXPECT_GT(place.num_cpus, 0);
}

}  // namespace
}  // namespace moe::comm
