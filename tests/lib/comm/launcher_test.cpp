#include "lib/comm/launcher.hpp"

#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/base/error.hpp"

namespace moe::comm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

LauncherFound find(const std::map<std::string, std::string>& variables) {
  return find_launcher([&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

TEST(Launcher, OfTorchrunSaysWhereToMeet) {
  const LauncherFound found = find({{"RANK", "5"},
                                    {"WORLD_SIZE", "16"},
                                    {"LOCAL_RANK", "5"},
                                    {"LOCAL_WORLD_SIZE", "8"},
                                    {"MASTER_ADDR", "node-0"},
                                    {"MASTER_PORT", "29500"}});
  EXPECT_EQ(found.facts.name, "torchrun");
  EXPECT_EQ(found.facts.rank, 5);
  EXPECT_EQ(found.facts.num_ranks, 16);
  EXPECT_EQ(found.facts.local_rank, 5);
  EXPECT_EQ(found.facts.num_local_ranks, 8);
  EXPECT_EQ(found.facts.store_host, "node-0");
  EXPECT_EQ(found.facts.store_port, 29500);
  EXPECT_THAT(found.also_found, IsEmpty());
}

TEST(Launcher, LeavesThePortOfTorchrunsAgentAlone) {
  std::map<std::string, std::string> variables = {{"RANK", "0"},
                                                  {"WORLD_SIZE", "2"},
                                                  {"MASTER_ADDR", "a"},
                                                  {"MASTER_PORT", "29500"},
                                                  {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
  EXPECT_EQ(find(variables).facts.store_port, 29501);
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  EXPECT_EQ(find(variables).facts.store_port, 29500);
}

TEST(Launcher, TheInnermostIsTaken) {
  std::map<std::string, std::string> variables = {
      {"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_LOCALID", "0"}};
  EXPECT_EQ(find(variables).facts.name, "Slurm");
  variables.insert({{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}});
  EXPECT_EQ(find(variables).facts.name, "Open MPI");
  EXPECT_EQ(find(variables).facts.rank, 3);
  variables.insert({{"RANK", "7"}, {"WORLD_SIZE", "8"}});
  EXPECT_EQ(find(variables).facts.name, "torchrun");
  EXPECT_THAT(find(variables).also_found, ElementsAre("Open MPI", "Slurm"));
}

TEST(Launcher, OfSlurmIsTheStepNotTheScript) {
  std::map<std::string, std::string> variables = {
      {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "16"}, {"SLURM_JOB_ID", "41"}};
  EXPECT_EQ(find(variables).facts.name, "") << "a bare sbatch script is one process";
  variables.insert({{"SLURM_STEP_NUM_TASKS", "11"},
                    {"SLURM_LOCALID", "2"},
                    {"SLURM_NODEID", "2"},
                    {"SLURM_STEP_TASKS_PER_NODE", "4(x2),3"},
                    {"SLURM_STEP_NODELIST", "gpu[07-09],x"},
                    {"SLURM_STEP_ID", "1"}});
  const LauncherFacts facts = find(variables).facts;
  EXPECT_EQ(facts.num_ranks, 11);
  EXPECT_EQ(facts.num_local_ranks, 3);
  EXPECT_EQ(facts.store_host, "gpu07");
  EXPECT_EQ(facts.store_port, 20042);
}

TEST(Launcher, OfMpichAndByHand) {
  EXPECT_EQ(find({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}).facts.name, "MPICH");
  const LauncherFacts none = find({{"RANK", "3"}}).facts;
  EXPECT_EQ(none.name, "");
  EXPECT_FALSE(none.rank.has_value());
}

TEST(Launcher, RefusesVariablesThatMakeNoSense) {
  EXPECT_THROW((void)find({{"RANK", "4"}, {"WORLD_SIZE", "4"}}), Error);
  EXPECT_THROW((void)find({{"RANK", "x"}, {"WORLD_SIZE", "4"}}), Error);
  EXPECT_THROW((void)find({{"RANK", "-1"}, {"WORLD_SIZE", "4"}}), Error);
  EXPECT_THROW((void)find({{"RANK", "0"}, {"WORLD_SIZE", "99999999999"}}), Error);
  EXPECT_THROW((void)find({{"MASTER_PORT", "70000"}}), Error);
}

TEST(SlurmNodes, TheFirstIsFound) {
  EXPECT_EQ(first_slurm_node("gpu[003-010,15],x1"), "gpu003");
  EXPECT_EQ(first_slurm_node("a1,b[2-3]"), "a1");
  EXPECT_EQ(first_slurm_node("n[4]"), "n4");
  EXPECT_EQ(first_slurm_node("alone"), "alone");
  EXPECT_EQ(first_slurm_node("x["), "x");
}

}  // namespace
}  // namespace moe::comm
