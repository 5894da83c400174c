// Goal: each kind of wrong dump is known by its code and counted. Method: one small file or
// generated input for each, and the same input without the fault, which must be silent.

#include <algorithm>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/base/error.hpp"
#include "lib/base/rng.hpp"
#include "lib/routing/open_input.hpp"
#include "lib/routing/skip_profiling.hpp"
#include "tests/lib/routing/support.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::routing {
namespace {

using moe::test::TempDir;
using moe::test::write_file;
using test::finding_count;
using ::testing::HasSubstr;

// Tokens in memory.
class ListSource final : public TokenSource {
 public:
  explicit ListSource(TokenBlock block) : block_(std::move(block)) {}
  bool next(TokenBlock& block) override {
    if (is_done_) return false;
    is_done_ = true;
    block = block_;
    return true;
  }
  void rewind() override { is_done_ = false; }

 private:
  TokenBlock block_;
  bool is_done_ = false;
};

// 400 tokens, 3 layers, 2 of 16 experts each, all different from their neighbours.
struct Tokens {
  InputInfo info;
  TokenBlock block;

  Tokens() {
    info.name = "made";
    info.layers = {0, 1, 2};
    info.num_experts = 16;
    info.top_k = 2;
    info.has_tokens = true;
    info.has_weights = true;
    info.has_time = true;
    info.has_requests = true;
    block.resize(400, info);
    Rng rng(7);
    for (std::size_t row = 0; row < 1200; ++row) {
      const auto first = static_cast<std::int32_t>(rng.next_below(16));
      block.ids[2 * row] = first;
      block.ids[2 * row + 1] = (first + 1 + static_cast<std::int32_t>(rng.next_below(15))) % 16;
      block.weights[2 * row] = 0.6F;
      block.weights[2 * row + 1] = 0.4F;
    }
    for (std::size_t t = 0; t < 400; ++t) {
      block.step[t] = static_cast<std::int64_t>(t / 4);
      block.request[t] = static_cast<std::int64_t>(t / 100);
      block.token[t] = static_cast<std::int64_t>(t % 100);
      block.time_s[t] = 0.01 * static_cast<double>(t);
    }
  }
  InputCheck check() {
    RoutingInput input;
    input.info = info;
    input.tokens = std::make_unique<ListSource>(block);
    return check_input(input);
  }
  void repeat(std::size_t begin, std::size_t end) {
    for (std::size_t t = begin; t < end; ++t) {
      std::copy_n(block.ids.begin() + static_cast<std::ptrdiff_t>(begin * 6), 6,
                  block.ids.begin() + static_cast<std::ptrdiff_t>(t * 6));
    }
  }
};

InputCheck check_file(const TempDir& dir, const std::string& text) {
  write_file(dir / "t.json", text);
  RoutingInput input = open_input((dir / "t.json").string());
  return check_input(input);
}

TEST(Sanity, OfSoundTokensIsSilent) {
  const InputCheck check = Tokens().check();
  EXPECT_TRUE(check.findings.empty()) << check.findings.front().code;
  EXPECT_EQ(check.num_tokens, 400);
  EXPECT_EQ(check.num_steps, 100);
  EXPECT_EQ(check.num_assignments, 2400);
}

TEST(Sanity, TellsProfilingFromPadding) {
  Tokens tokens;
  tokens.repeat(0, 40);
  tokens.repeat(200, 220);
  tokens.repeat(300, 310);  // ten alike may be text
  const InputCheck check = tokens.check();
  EXPECT_EQ(finding_count(check, "tokens.profiling"), 40);
  EXPECT_EQ(finding_count(check, "tokens.padding"), 20);
}

TEST(Sanity, CountsTokensWithoutWeight) {
  Tokens tokens;
  std::fill_n(tokens.block.weights.begin() + 60, 18, 0.0F);  // tokens 10 to 12
  EXPECT_EQ(finding_count(tokens.check(), "tokens.zero_weight"), 3);
}

TEST(Sanity, CountsRowsThatAreNotThere) {
  Tokens tokens;
  std::fill_n(tokens.block.ids.begin() + 6 * 5, 6, kUnusedSlot);  // token 5: nothing
  std::fill_n(tokens.block.ids.begin() + 6 * 9, 2, kUnusedSlot);  // token 9: no first layer
  tokens.block.ids[6 * 20 + 3] = kUnusedSlot;                     // token 20: one expert less
  const InputCheck check = tokens.check();
  EXPECT_EQ(finding_count(check, "tokens.empty"), 1);
  EXPECT_EQ(finding_count(check, "rows.missing"), 1);
  EXPECT_EQ(finding_count(check, "top_k.varies"), 1);
}

TEST(Sanity, CountsRepeatedExperts) {
  Tokens tokens;
  tokens.block.ids[1] = tokens.block.ids[0];
  const InputCheck one = tokens.check();
  EXPECT_EQ(finding_count(one, "ids.duplicate"), 1);
  EXPECT_FALSE(has_error(one));  // 1 of 2,400
  for (std::size_t row = 0; row < 100; ++row) {
    tokens.block.ids[2 * row + 1] = tokens.block.ids[2 * row];
  }
  EXPECT_TRUE(has_error(tokens.check()));
}

TEST(Sanity, SeesTimeRunningBackwards) {
  Tokens tokens;
  tokens.block.time_s[50] = 0.1;
  EXPECT_EQ(finding_count(tokens.check(), "time.backwards"), 1);
}

TEST(Sanity, SeesOneRequestForEverything) {
  Tokens tokens;
  std::fill(tokens.block.request.begin(), tokens.block.request.end(), 0);
  EXPECT_EQ(finding_count(tokens.check(), "requests.single"), 3);
}

TEST(Sanity, SuspectsASharedExpertThatEveryTokenTakes) {
  Tokens tokens;
  for (std::size_t row = 0; row < 1200; ++row) {
    if (tokens.block.ids[2 * row] == 15) tokens.block.ids[2 * row] = 14;
    tokens.block.ids[2 * row + 1] = 15;
  }
  EXPECT_EQ(finding_count(tokens.check(), "experts.shared_suspected"), 1);
}

TEST(Sanity, CountsSharedExpertsApartAndOthersOutOfRange) {
  const TempDir dir;
  write_file(dir / "t.jsonl",
             "{\"layer\": 0, \"topk_ids\": [0, 1, 4]}\n{\"layer\": 0, \"topk_ids\": [2, 3, 4]}\n"
             "{\"layer\": 0, \"topk_ids\": [1, 9, -1]}\n");
  OpenOptions options;
  options.num_experts = 4;
  RoutingInput plain = open_input((dir / "t.jsonl").string(), options);
  const InputCheck refused = check_input(plain);
  EXPECT_EQ(finding_count(refused, "ids.out_of_range"), 3);
  EXPECT_TRUE(has_error(refused));
  options.num_shared_experts = 1;
  RoutingInput input = open_input((dir / "t.jsonl").string(), options);
  const InputCheck check = check_input(input);
  EXPECT_EQ(finding_count(check, "ids.shared_expert"), 2);
  EXPECT_EQ(finding_count(check, "ids.out_of_range"), 1);
  EXPECT_EQ(finding_count(check, "ids.sentinel"), 1);
}

TEST(Sanity, ReadsTheSentinelOfUnsignedTypes) {
  const TempDir dir;
  const std::vector<std::uint8_t> ids = {0, 1, 2, 255, 3, 0, 1, 255};
  write_file(dir / "t.npy", test::npy_bytes("|u1", "(2, 2, 2)", test::raw(ids)));
  RoutingInput input = open_input((dir / "t.npy").string());
  EXPECT_EQ(input.info.num_experts, 4);
  EXPECT_EQ(finding_count(check_input(input), "ids.sentinel"), 2);
  OpenOptions options;
  options.num_experts = 256;  // now 255 is an expert, too
  RoutingInput ambiguous = open_input((dir / "t.npy").string(), options);
  EXPECT_EQ(finding_count(check_input(ambiguous), "ids.sentinel_ambiguous"), 2);
}

TEST(Sanity, OfRecordedCountsKnowsDenseLayersAndEqualTotals) {
  RoutingInput input = open_input(test::data_file("sglang_dsv3/prefill_in1024.json"));
  const InputCheck check = check_input(input);
  EXPECT_EQ(finding_count(check, "layers.zero"), 3);
  EXPECT_FALSE(has_error(check));
  EXPECT_EQ(finding_count(check, "counts.one_block"), 0);
}

TEST(Sanity, SeesWrappedCounters) {
  const TempDir dir;
  const InputCheck check = check_file(dir, "[[5, -2147483648, 7, 1], [9, 2, 3, 4]]");
  EXPECT_EQ(finding_count(check, "counts.negative"), 1);
  EXPECT_TRUE(has_error(check));
}

TEST(Sanity, SeesOneRanksDumpTakenForAll) {
  const TempDir dir;
  const InputCheck check = check_file(dir, "[[0, 0, 5, 9, 0, 0, 0, 0], [0, 0, 4, 3, 0, 0, 0, 0]]");
  EXPECT_EQ(finding_count(check, "counts.one_block"), 2);
  EXPECT_TRUE(has_error(check));
  // The same sums spread over two blocks are no rank's.
  EXPECT_EQ(finding_count(check_file(dir, "[[0, 0, 5, 9, 0, 0, 0, 0], [0, 0, 0, 0, 4, 3, 0, 0]]"),
                          "counts.one_block"),
            0);
  // One expert that takes everything is skew.
  const InputCheck one = check_file(dir, "[[0, 0, 14, 0, 0, 0, 0, 0]]");
  EXPECT_FALSE(has_error(one));
}

TEST(Sanity, SeesAConstantFactor) {
  std::string text = "[[";
  for (int e = 1; e <= 40; ++e) text += (e > 1 ? ", " : "") + std::to_string(8 * (e * e % 37 + 1));
  const TempDir dir;
  EXPECT_EQ(finding_count(check_file(dir, text + "]]"), "counts.common_factor"), 8);
}

TEST(Sanity, SeesUnequalTotals) {
  const TempDir dir;
  const InputCheck small = check_file(dir, "[[1000, 1001], [1000, 1002], [1000, 1001]]");
  EXPECT_EQ(finding_count(small, "layers.unequal_totals"), 2);
  EXPECT_EQ(small.findings.front().trouble, Trouble::kNote);
  const InputCheck large = check_file(dir, "[[1000, 1001], [1000, 1202]]");
  EXPECT_EQ(large.findings.front().trouble, Trouble::kWarning);
}

TEST(Sanity, OfNothingRoutedIsAnError) {
  const TempDir dir;
  const InputCheck check = check_file(dir, "[[0, 0], [0, 0]]");
  ASSERT_EQ(check.findings.size(), 1U);
  EXPECT_EQ(check.findings.front().code, "counts.none");
  EXPECT_TRUE(has_error(check));
}

TEST(Sanity, CountsUnusedStepsAndFractions) {
  const TempDir dir;
  const InputCheck check = check_file(dir, "[[[3, 4.5]], [[0, 0]], [[1, 2]]]");
  EXPECT_EQ(finding_count(check, "steps.zero"), 1);
  EXPECT_EQ(finding_count(check, "counts.fractional"), 1);
}

TEST(Sanity, NamesTheFileWhenItRefuses) {
  const TempDir dir;
  write_file(dir / "neg.json", "[[1, -1]]");
  RoutingInput input = open_input((dir / "neg.json").string());
  try {
    require_sane(input, check_input(input));
    ADD_FAILURE() << "expected a refusal";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInput);
    EXPECT_THAT(error.what(), HasSubstr("neg.json"));
    EXPECT_THAT(error.what(), HasSubstr("counts.negative"));
  }
}

}  // namespace
}  // namespace moe::routing
