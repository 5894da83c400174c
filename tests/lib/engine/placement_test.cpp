// Where threads and memory go on machines that are not at hand.

#include "lib/engine/placement.hpp"

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/engine/engine.hpp"
#include "tests/lib/engine/support.hpp"

namespace moe::engine {
namespace {

using sysinfo::NumaNode;
using sysinfo::NumaSystem;
using sysinfo::NumaTopology;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t kGib = std::int64_t{1} << 30;

NumaTopology two_nodes() {
  return {{NumaNode{0, {0, 1, 2, 3}, kGib, {10, 21}}, NumaNode{1, {4, 5, 6, 7}, kGib, {21, 10}}},
          ""};
}

TEST(DecidePlacement, OneNodeLeavesEverythingAlone) {
  const NumaTopology topology{{NumaNode{0, {0, 1}, kGib, {10}}}, ""};
  const Placement placement = decide_placement(topology, 2);
  EXPECT_THAT(placement.nodes, ElementsAre(0));
  EXPECT_THAT(placement.thread_cpus, IsEmpty());
  EXPECT_THAT(placement.memory_nodes, IsEmpty());
}

TEST(DecidePlacement, ThreadsAreSpreadAndMemoryInterleavedOverTwoNodes) {
  const Placement placement = decide_placement(two_nodes(), 5);
  EXPECT_THAT(placement.nodes, ElementsAre(0, 1));
  EXPECT_THAT(placement.thread_nodes, ElementsAre(0, 1, 0, 1, 0));
  EXPECT_THAT(placement.thread_cpus[1], ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(placement.memory_nodes, ElementsAre(0, 1));
}

TEST(DecidePlacement, OneThreadUsesOneNode) {
  const Placement placement = decide_placement(two_nodes(), 1);
  EXPECT_THAT(placement.nodes, ElementsAre(0));
  EXPECT_THAT(placement.thread_cpus, IsEmpty());
  EXPECT_THAT(placement.memory_nodes, IsEmpty());
}

TEST(DecidePlacement, ThreadsFollowTheUsableCpus) {
  NumaTopology topology = two_nodes();
  topology.nodes[0].cpus = {3};
  const Placement placement = decide_placement(topology, 5);
  EXPECT_EQ(std::ranges::count(placement.thread_nodes, 0), 1);
  EXPECT_EQ(std::ranges::count(placement.thread_nodes, 1), 4);
  // More threads than CPUs keep the proportion.
  EXPECT_EQ(std::ranges::count(decide_placement(topology, 50).thread_nodes, 0), 10);
}

TEST(DecidePlacement, FewThreadsGoToNodesNearToEachOther) {
  const NumaTopology topology{
      {NumaNode{0, {0, 1}, kGib, {10, 32, 12, 32}}, NumaNode{1, {2, 3}, kGib, {32, 10, 32, 12}},
       NumaNode{2, {4, 5}, kGib, {12, 32, 10, 32}}, NumaNode{3, {6, 7}, kGib, {32, 12, 32, 10}}},
      ""};
  EXPECT_THAT(decide_placement(topology, 2).nodes, ElementsAre(0, 2));
  EXPECT_THAT(decide_placement(topology, 8).nodes, ElementsAre(0, 1, 2, 3));
}

TEST(DecidePlacement, NodesWithoutCpusOrMemoryArePassedOver) {
  NumaTopology topology = two_nodes();
  topology.nodes.push_back({2, {}, 8 * kGib, {}});
  EXPECT_THAT(decide_placement(topology, 4).memory_nodes, ElementsAre(0, 1));
  topology.nodes[1].memory_bytes = 0;
  const Placement placement = decide_placement(topology, 4);
  EXPECT_THAT(placement.nodes, ElementsAre(0, 1));
  EXPECT_THAT(placement.memory_nodes, IsEmpty());
}

// Answers for a machine and writes down what it is asked.
class FakeNuma {
 public:
  using Numbers = std::vector<std::int32_t>;

  explicit FakeNuma(NumaTopology topology) : topology_(std::move(topology)) {}

  int interleave_answer = 0;
  int bind_answer = 0;
  std::vector<std::pair<std::span<const std::byte>, Numbers>> interleaved;
  std::vector<std::pair<std::thread::id, Numbers>> bound;

  NumaSystem system() {
    return {[this] { return topology_; },
            [this](std::span<const std::byte> block, std::span<const std::int32_t> nodes) {
              // Packing would have left something behind.
              EXPECT_TRUE(std::ranges::all_of(
                  block, [](std::byte value) { return value == std::byte{0}; }));
              interleaved.emplace_back(block, Numbers(nodes.begin(), nodes.end()));
              return interleave_answer;
            },
            [this](std::span<const std::int32_t> cpus) {
              const std::lock_guard lock(mutex_);
              bound.emplace_back(std::this_thread::get_id(), Numbers(cpus.begin(), cpus.end()));
              return bind_answer;
            }};
  }

 private:
  NumaTopology topology_;
  std::mutex mutex_;
};

class PlacedEngineTest : public ::testing::Test {
 protected:
  Engine load(const NumaSystem& system, int num_threads) {
    EngineOptions options = testing::small_options(16, 2);
    options.num_threads = num_threads;
    NullProgress progress;
    const Interrupt interrupt;
    return Engine::load(model_, options, system, progress, interrupt);
  }

  model::BoundModel model_ = model::bind_checkpoint(testing::checkpoint_dir("qwen3moe-a"));
  std::vector<std::int32_t> tokens_ = testing::random_tokens(9, model_.config.vocab_size, 5);
};

TEST_F(PlacedEngineTest, BindsWorkersAndInterleavesWhatAllOfThemRead) {
  FakeNuma numa(two_nodes());
  const NumaSystem system = numa.system();
  const Engine engine = load(system, 4);
  ASSERT_EQ(numa.bound.size(), 3U);
  std::vector<FakeNuma::Numbers> cpus;
  for (const auto& [thread, numbers] : numa.bound) {
    EXPECT_NE(thread, std::this_thread::get_id());
    cpus.push_back(numbers);
  }
  std::ranges::sort(cpus);
  EXPECT_THAT(
      cpus, ElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(4, 5, 6, 7), ElementsAre(4, 5, 6, 7)));
  ASSERT_EQ(numa.interleaved.size(), 3U);
  EXPECT_EQ(numa.interleaved[0].first.data(), engine.packed_weights().data());
  EXPECT_EQ(numa.interleaved[0].first.size(), engine.packed_weights().size());
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(numa.interleaved[i + 1].first.data(), engine.kv_cache()[i].data());
    EXPECT_EQ(numa.interleaved[i + 1].first.size(), engine.kv_cache()[i].size());
  }
  for (const auto& [block, nodes] : numa.interleaved) EXPECT_THAT(nodes, ElementsAre(0, 1));
  const PlacementOutcome& outcome = engine.placement();
  EXPECT_TRUE(outcome.are_threads_bound && outcome.is_interleaved);
  EXPECT_THAT(outcome.trouble, IsEmpty());
  EXPECT_THAT(outcome.summary, HasSubstr("interleaved over nodes 0, 1"));
}

TEST_F(PlacedEngineTest, ARefusalIsSaidAndIsNoError) {
  FakeNuma numa(two_nodes());
  numa.interleave_answer = EPERM;
  numa.bind_answer = EINVAL;
  const NumaSystem system = numa.system();
  Engine engine = load(system, 2);
  const PlacementOutcome& outcome = engine.placement();
  EXPECT_FALSE(outcome.are_threads_bound || outcome.is_interleaved);
  EXPECT_THAT(outcome.trouble, HasSubstr("interleaved over nodes 0, 1: Operation not permitted"));
  EXPECT_THAT(outcome.trouble, HasSubstr("could not be bound to the CPUs of nodes 0, 1"));
  EXPECT_THAT(outcome.summary, HasSubstr("first touched"));
  EXPECT_FALSE(testing::all_logits(engine, 0, tokens_).empty());
}

TEST_F(PlacedEngineTest, OneNodeAsksTheSystemForNothing) {
  FakeNuma known({{NumaNode{0, {0, 1}, kGib, {10}}}, ""});
  FakeNuma unknown({{NumaNode{0, {0, 1}, {}, {}}}, "online: expected a list of nodes"});
  for (FakeNuma* numa : {&known, &unknown}) {
    const NumaSystem system = numa->system();
    const Engine engine = load(system, 3);
    EXPECT_THAT(numa->bound, IsEmpty());
    EXPECT_THAT(numa->interleaved, IsEmpty());
    EXPECT_FALSE(engine.placement().are_threads_bound || engine.placement().is_interleaved);
    EXPECT_THAT(engine.placement().trouble, IsEmpty());
    EXPECT_THAT(engine.placement().summary, HasSubstr("one node"));
  }
}

TEST_F(PlacedEngineTest, PlacementChangesNoValue) {
  FakeNuma two(two_nodes());
  FakeNuma one({{NumaNode{0, {0, 1}, kGib, {10}}}, ""});
  const NumaSystem two_system = two.system();
  const NumaSystem one_system = one.system();
  Engine spread = load(two_system, 3);
  Engine plain = load(one_system, 1);
  EXPECT_EQ(testing::all_logits(spread, 0, tokens_), testing::all_logits(plain, 0, tokens_));
}

}  // namespace
}  // namespace moe::engine
