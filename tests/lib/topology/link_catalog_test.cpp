#include "lib/topology/link_catalog.hpp"

#include <gtest/gtest.h>

#include "lib/base/error.hpp"
#include "tests/lib/topology/samples.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::topology {
namespace {

double gb(std::string_view speed, std::int32_t lanes) {
  return pcie_rate(test_catalog(), speed, lanes).bytes_per_s / 1e9;
}

TEST(PcieRate, MatchesTheBeginningAsNcclDoes) {
  EXPECT_DOUBLE_EQ(gb("32.0 GT/s PCIe", 16), 48.0);
  EXPECT_DOUBLE_EQ(gb("5.0 GT/s PCIe", 16), 6.0);
  EXPECT_DOUBLE_EQ(gb("16 GT/s", 16), 24.0);
  EXPECT_DOUBLE_EQ(gb("8 GT/s", 16), 12.0);
  EXPECT_DOUBLE_EQ(gb("64.0 GT/s PCIe", 16), 96.0);
  EXPECT_DOUBLE_EQ(gb("2.5 GT/s PCIe", 16), 3.0);
  EXPECT_DOUBLE_EQ(gb("32.0 GT/s PCIe", 4), 12.0);
}

TEST(PcieRate, TakesTheUnknownForGen3OnSixteenLanes) {
  EXPECT_DOUBLE_EQ(gb("32.0 GT/s", 16), 12.0);
  EXPECT_DOUBLE_EQ(gb("64 GT/s", 16), 12.0);
  EXPECT_DOUBLE_EQ(gb("", 0), 12.0);
  EXPECT_FALSE(pcie_rate(test_catalog(), "32.0 GT/s", 16).is_speed_known);
  EXPECT_FALSE(pcie_rate(test_catalog(), "", 0).is_width_known);
}

TEST(LinkCatalog, HasNcclsRatesOfTheFabrics) {
  const auto fabric = [](const char* id) {
    return fabric_bytes_per_s(test_catalog(), *test_catalog().find_gpu(id)) / 1e9;
  };
  EXPECT_NEAR(fabric("h100_sxm"), 370.8, 1e-9);
  EXPECT_NEAR(fabric("a100_sxm"), 240.0, 1e-9);
  EXPECT_NEAR(fabric("b200_sxm"), 721.8, 1e-9);
  EXPECT_NEAR(fabric("mi300x"), 336.0, 1e-9);
  EXPECT_EQ(fabric("l40s"), 0.0);
}

TEST(LinkCatalog, FindsGpusByAliasInAnyCase) {
  ASSERT_NE(test_catalog().find_gpu("H100"), nullptr);
  EXPECT_EQ(test_catalog().find_gpu("H100")->id, "h100_sxm");
  EXPECT_EQ(test_catalog().find_gpu("h100-sxm")->id, "h100_sxm");
  EXPECT_EQ(test_catalog().find_gpu("nothing"), nullptr);
}

TEST(LinkCatalog, RefusesAnUnknownGpuWithTheKnownOnes) {
  try {
    (void)sample("hgx-h100-8nic.topo-m.txt", "h1000");
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_NE(std::string(error.what()).find("h100_sxm"), std::string::npos);
  }
}

TEST(LinkCatalog, NamesThePlaceOfAFault) {
  test::TempDir folder;
  const auto path = folder / "catalog.json";
  test::write_file(path,
                   R"({"schema": "moekit-link-catalog", "pcie_lane": {"unit_bits_per_s": 0}})");
  try {
    (void)read_link_catalog(path);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("/pcie_lane"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace moe::topology
