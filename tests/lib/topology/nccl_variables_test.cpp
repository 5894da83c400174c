#include "lib/topology/nccl_variables.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "tests/lib/topology/samples.hpp"

namespace moe::topology {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

const NcclVariables& shipped_variables() {
  static const NcclVariables variables = [] {
    const std::string path = std::string(MOE_SOURCE_DIR) + "/scenarios/nccl/variables.json";
    return nccl_variables_from_json(json::parse_file(path), path);
  }();
  return variables;
}

std::vector<Remark> check(const std::string& name, const std::string& value,
                          std::optional<std::int32_t> version = 22809) {
  return check_nccl_variables({{name, value}}, shipped_variables(), version);
}

// The one remark on a variable.
Remark only(const std::string& name, const std::string& value,
            std::optional<std::int32_t> version = 22809) {
  const std::vector<Remark> remarks = check(name, value, version);
  EXPECT_EQ(remarks.size(), 1U) << name;
  return remarks.empty() ? Remark() : remarks.front();
}

TEST(NcclVariables, MisspeltOnesAreNamedWithWhatWasMeant) {
  for (const auto& [wrong, meant] :
       {std::pair("NCCL_BUFF_SIZE", "NCCL_BUFFSIZE"),
        {"NCCL_IB_HCAS", "NCCL_IB_HCA"},
        {"NCCL_SOCKET_IFNAMES", "NCCL_SOCKET_IFNAME"},
        {"NCCL_P2P_LEVLE", "NCCL_P2P_LEVEL"},
        {"NCCL_MIN_P2P_CHANNELS", "NCCL_MIN_P2P_NCHANNELS"},
        {"NCCL_NCHANNELS_PER_NETPEER", "NCCL_NCHANNELS_PER_NET_PEER"}}) {
    const Remark remark = only(wrong, "1");
    EXPECT_EQ(remark.code, "nccl.variable_misspelt") << wrong;
    EXPECT_THAT(remark.advice, HasSubstr(std::string("Set ") + meant));
  }
}

TEST(NcclVariables, ThoseWithoutEffectOnAnAllToAllAreSaid) {
  for (const char* name : {"NCCL_ALGO", "NCCL_PROTO", "NCCL_NVLS_ENABLE", "NCCL_COLLNET_ENABLE"}) {
    EXPECT_EQ(only(name, "1").code, "nccl.variable_without_effect") << name;
  }
}

TEST(NcclVariables, LeftoversOfExperimentsAreSaidByValue) {
  EXPECT_EQ(only("NCCL_P2P_DISABLE", "1").code, "nccl.variable_slows");
  EXPECT_EQ(only("NCCL_SHM_DISABLE", "1").code, "nccl.variable_slows");
  EXPECT_EQ(only("NCCL_MNNVL_ENABLE", "0").code, "nccl.variable_slows");
  EXPECT_EQ(only("NCCL_DEBUG", "trace").code, "nccl.variable_slows");
  EXPECT_THAT(check("NCCL_P2P_DISABLE", "0"), IsEmpty());
  EXPECT_THAT(check("NCCL_DEBUG", "WARN"), IsEmpty());
}

TEST(NcclVariables, VersionsDecide) {
  EXPECT_EQ(only("NCCL_IB_OOO_RQ", "1", 22809).code, "nccl.variable_too_new");
  EXPECT_THAT(check("NCCL_IB_OOO_RQ", "1", 23000), IsEmpty());
  EXPECT_THAT(check("NCCL_IB_OOO_RQ", "1", std::nullopt), IsEmpty());
  const Remark old = only("NCCL_MIN_NCHANNELS", "16", 22809);
  EXPECT_EQ(old.code, "nccl.variable_deprecated");
  EXPECT_EQ(old.advice, "Use NCCL_MIN_CTAS");
  EXPECT_THAT(check("NCCL_MIN_NCHANNELS", "16", 21200), IsEmpty());
  const std::vector<Remark> gone = check("NCCL_LL_THRESHOLD", "0", 22809);
  EXPECT_TRUE(has_remark(gone, "nccl.variable_removed"));
}

TEST(NcclVariables, ValuesThatMakeNoSense) {
  EXPECT_EQ(only("NCCL_P2P_LEVEL", "NODE").code, "nccl.value_unknown");
  EXPECT_THAT(check("NCCL_P2P_LEVEL", "phb"), IsEmpty());
}

TEST(NcclVariables, HealthySettingsAndThoseOfOthersAreLeftAlone) {
  for (const char* name : {"NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "NCCL_TOPO_FILE", "NCCL_BUFFSIZE",
                           "NCCL_TESTS_DEVICE", "NCCL_FASTRAK_CTRL_DEV", "OMP_NUM_THREADS"}) {
    EXPECT_THAT(check(name, "x"), IsEmpty()) << name;
  }
  EXPECT_EQ(only("NCCL_COMPLETELY_DIFFERENT", "1").code, "nccl.variable_unknown");
  EXPECT_EQ(only("NCCL_" + std::string(100000, 'A'), "1").code, "nccl.variable_unknown");
}

TEST(NcclVariables, VersionsAreReadAsNcclWritesThem) {
  EXPECT_EQ(parse_nccl_version("2.28.9"), 22809);
  EXPECT_EQ(parse_nccl_version("2.18"), 21800);
  for (const char* text : {"", "2", "2.", "2.28.9.1", "2.x", "2.100", "-2.1", "2.28.9+cuda"}) {
    EXPECT_FALSE(parse_nccl_version(text).has_value()) << text;
  }
}

TEST(NcclVariables, LinesOfEnvAndOfNcclConf) {
  const auto variables = read_variable_lines(
      "# comment\nNCCL_ALGO=Ring\r\n export NCCL_DEBUG=\"INFO\"\nno line\n=x\nA=b=c", "conf");
  EXPECT_EQ(variables.size(), 3U);
  EXPECT_EQ(variables.at("NCCL_ALGO"), "Ring");
  EXPECT_EQ(variables.at("NCCL_DEBUG"), "INFO");
  EXPECT_EQ(variables.at("A"), "b=c");
}

TEST(NcclVariables, TheDataIsValidated) {
  const auto read = [](const char* text) {
    return nccl_variables_from_json(json::parse(text, "x"), "x");
  };
  EXPECT_THROW((void)read("[]"), Error);
  EXPECT_THROW((void)read(R"({"schema_version": 1})"), Error);
  const auto with = [&](const std::string& variable) {
    const std::string text = R"({"schema_version": 1, "misspellings": [], "other_prefixes": [],
                                 "variables": [)" +
                             variable + "]}";
    return read(text.c_str());
  };
  EXPECT_EQ(with(R"({"name": "NCCL_A", "since": "2.3"})").known.at("NCCL_A").since, 20300);
  EXPECT_THROW((void)with(R"({"name": "ALGO"})"), Error);
  EXPECT_THROW((void)with(R"({"name": "NCCL_A", "since": "new"})"), Error);
  EXPECT_THROW((void)with(R"({"name": "NCCL_A"}, {"name": "NCCL_A"})"), Error);
  EXPECT_THROW((void)with(R"({"name": "NCCL_A", "values": "x"})"), Error);
}

}  // namespace
}  // namespace moe::topology
