// Goal: dumps of other tools read as what they hold. Method: recorded and synthetic files whose
// sums were taken by an independent reader (Python's zipfile, struct and numpy), and small files
// written here byte by byte.

#include <cstdint>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/base/error.hpp"
#include "lib/routing/open_input.hpp"
#include "lib/routing/windows.hpp"
#include "tests/lib/routing/support.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::routing {
namespace {

using moe::test::TempDir;
using moe::test::write_file;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Counts = std::vector<std::int64_t>;

std::vector<std::int32_t> ids_of_token(TokenSource& source, std::int64_t wanted) {
  source.rewind();
  TokenBlock block;
  std::int64_t begin = 0;
  while (source.next(block)) {
    if (wanted < begin + block.num_tokens) {
      const std::int32_t* ids = block.ids_of(wanted - begin, 0);
      return {ids, ids + block.num_layers * block.top_k};
    }
    begin += block.num_tokens;
  }
  return {};
}

TEST(SglangDump, InStatModeIsReadStepByStep) {
  RoutingInput input = open_input(test::data_file("synthetic_sglang_stat.pt"));
  EXPECT_EQ(input.info.format, Format::kSglangStat);
  EXPECT_FALSE(input.info.has_tokens);
  const ExpertCounts counts = count_windows(input, parse_window("1steps"));
  EXPECT_EQ(counts.num_windows(), 4);
  EXPECT_THAT(counts.empty_layers, ElementsAre(0));
  std::int64_t sums[4] = {};
  for (std::int64_t w = 0; w < 4; ++w) {
    for (const std::int64_t count : counts.window(w)) sums[w] += count;
  }
  EXPECT_THAT(sums, ElementsAre(8744, 7408, 8524, 0));
  const Counts total = counts.total();
  EXPECT_EQ(
      Counts(total.begin(), total.begin() + 16),
      (Counts{860, 1193, 1142, 715, 332, 1031, 953, 707, 275, 549, 1065, 717, 863, 742, 710, 870}));
}

TEST(SglangDump, InPerTokenModeMapsSlotsToExperts) {
  RoutingInput input = open_input(test::data_file("synthetic_sglang_per_token_rank0.pt"));
  EXPECT_EQ(input.info.format, Format::kSglangPerToken);
  EXPECT_EQ(input.info.num_experts, 16);
  EXPECT_EQ(input.info.num_slots, 20);
  EXPECT_EQ(input.info.top_k, 8);
  EXPECT_THAT(input.info.ranks, ElementsAre(0, 1));
  EXPECT_EQ(input.tokens->num_tokens(), 22);
  EXPECT_EQ(test::totals_of(input),
            (Counts{8, 7, 5, 5, 3, 5, 7, 8, 5, 6, 3, 3, 9, 5, 3, 6, 5, 6, 5, 5, 4, 2, 4, 9,
                    6, 8, 5, 6, 2, 5, 9, 7, 4, 6, 7, 7, 5, 2, 8, 6, 4, 9, 7, 2, 6, 3, 4, 8}));
  const InputCheck check = check_input(input);
  EXPECT_EQ(check.num_steps, 2);
  EXPECT_EQ(test::finding_count(check, "ids.sentinel"), 264);
  EXPECT_FALSE(has_error(check));
}

// The same dump without its chosen experts is a per_pass dump: physical counts of two ranks.
TEST(SglangDump, InPerPassModeSumsRanksAndMapsSlots) {
  const TempDir dir;
  std::string bytes = moe::test::read_file(test::data_file("synthetic_sglang_per_token_rank0.pt"));
  const std::string key = "topk_ids_of_layer";
  bytes.replace(bytes.find(key), key.size(), "gone_ids_of_layer");
  write_file(dir / "rank0.pt", bytes);
  RoutingInput input = open_input((dir / "rank0.pt").string());
  EXPECT_EQ(input.info.format, Format::kSglangPerPass);
  RoutingInput tokens = open_input(test::data_file("synthetic_sglang_per_token_rank0.pt"));
  const Counts expected = test::totals_of(tokens);
  EXPECT_EQ(test::totals_of(input), expected);
  // A second file adds to the passes of the first.
  write_file(dir / "rank1.pt", bytes);
  RoutingInput both = open_input(dir.path().string());
  Counts doubled = expected;
  for (std::int64_t& count : doubled) count *= 2;
  EXPECT_EQ(test::totals_of(both), doubled);
}

// Without data parallelism every rank records the same tokens.
TEST(SglangDump, CountsTokensThatSeveralRanksRecordedOnce) {
  const std::string file = test::data_file("synthetic_sglang_per_token_rank0.pt");
  const std::vector<std::string> twice = {file, file};
  RoutingInput once = open_input(file);
  RoutingInput input = open_input(twice);
  EXPECT_EQ(test::totals_of(input), test::totals_of(once));
  EXPECT_EQ(test::finding_count(check_input(input), "records.same_on_ranks"), 4);
}

TEST(TensorRtStatistic, SumsItsRanks) {
  RoutingInput input = open_input(test::data_file("synthetic_trtllm"));
  EXPECT_EQ(input.info.format, Format::kTensorRtStatistic);
  EXPECT_THAT(input.info.layers, ElementsAre(1, 2));
  EXPECT_EQ(input.info.num_experts, 16);
  EXPECT_EQ(input.info.top_k, 4);
  EXPECT_THAT(input.info.ranks, ElementsAre(0, 1));
  const ExpertCounts counts = count_windows(input, parse_window("1steps"));
  EXPECT_EQ(counts.num_windows(), 4);
  EXPECT_EQ(counts.windows[0].first_step, 100);
  for (const std::int64_t count : counts.at(3, 1)) EXPECT_EQ(count, 0);
  // One rank alone is half of it, and known to be.
  RoutingInput alone = open_input(test::data_file("synthetic_trtllm/rank1.safetensors"));
  EXPECT_EQ(test::finding_count(check_input(alone), "ranks.missing"), 1);
}

TEST(TensorRtStatistic, InRawFormHoldsTokens) {
  const TempDir dir;
  const std::string header = R"({"5_3":{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]},)"
                             R"("5_4":{"dtype":"I32","shape":[2,2],"data_offsets":[16,32]}})";
  write_file(dir / "rank0_raw.safetensors",
             test::safetensors_bytes(header, test::raw<std::int32_t>({0, 1, 2, 3, 3, 2, 1, 0})));
  write_file(dir / "meta_info.json", R"({"num_experts": 8, "num_experts_per_token": 2})");
  RoutingInput input = open_input((dir / "rank0_raw.safetensors").string());
  EXPECT_EQ(input.info.format, Format::kTensorRtRaw);
  EXPECT_THAT(input.info.layers, ElementsAre(3, 4));
  EXPECT_THAT(ids_of_token(*input.tokens, 1), ElementsAre(2, 3, 1, 0));
}

TEST(CountSets, AreNamedAfterAHash) {
  const std::string file = test::scenario_file("routing/olmoe_domains/expert_counts.json");
  const ExpertCounts counts = load_counts(file + "#olmoe/arxiv");
  EXPECT_EQ(counts.info.name, "olmoe/arxiv");
  EXPECT_THAT(counts.info.layers, ElementsAre(0, 7, 15));
  EXPECT_EQ(counts.info.top_k, 8);
  EXPECT_EQ(counts.at(0, 0)[0], 204013);
  EXPECT_THAT(test::refusal_of(file), HasSubstr("olmoe/arxiv"));
  EXPECT_THAT(test::refusal_of(file + "#none"), HasSubstr("no set none"));
}

TEST(JsonLines, ReadRowsOfAPatchedEngine) {
  const std::string file = test::data_file("vllm_patch_olmoe/moe_routes_excerpt.jsonl");
  RoutingInput input = open_input(file);
  EXPECT_EQ(input.info.format, Format::kJsonLines);
  EXPECT_EQ(input.info.model, "allenai/OLMoE-1B-7B-0924");
  EXPECT_EQ(input.info.num_experts, 64);
  const InputCheck check = check_input(input);
  EXPECT_EQ(check.num_tokens, 901);
  EXPECT_EQ(test::finding_count(check, "tokens.profiling"), 150);
  OpenOptions options;
  options.skip_profiling = true;
  RoutingInput served = open_input(file, options);
  EXPECT_EQ(check_input(served).num_tokens, 751);
  EXPECT_THAT(ids_of_token(*served.tokens, 0), ElementsAre(45, 57, 46, 17, 42, 22, 29, 47));
}

TEST(JsonLines, JoinBatchesLayerByLayer) {
  const TempDir dir;
  write_file(dir / "t.jsonl", R"({"layer": 2, "batch_id": 0, "topk_experts": [[0, 1], [2, 3]]})"
                              "\n"
                              R"({"layer": 5, "batch_id": 0, "topk_experts": [[4, 5], [6, 7]]})"
                              "\n"
                              R"({"layer": 2, "batch_id": 3, "topk_experts": [[1]]})"
                              "\n"
                              R"({"layer": 5, "batch_id": 3, "topk_experts": [[7, 0]]})"
                              "\n");
  RoutingInput input = open_input((dir / "t.jsonl").string());
  EXPECT_THAT(input.info.layers, ElementsAre(2, 5));
  EXPECT_THAT(ids_of_token(*input.tokens, 1), ElementsAre(2, 3, 6, 7));
  EXPECT_THAT(ids_of_token(*input.tokens, 2), ElementsAre(1, kUnusedSlot, 7, 0));
  const InputCheck check = check_input(input);
  EXPECT_EQ(test::finding_count(check, "steps.gap"), 2);
  EXPECT_EQ(test::finding_count(check, "top_k.varies"), 1);
  EXPECT_EQ(test::finding_count(check, "experts.inferred"), 8);
}

TEST(EsftText, JoinsItsLayersAndFindsTopK) {
  const std::vector<std::string> files = {test::data_file("esft/law_expert_weights_26.head3.txt"),
                                          test::data_file("esft/law_expert_weights_1.head3.txt")};
  RoutingInput input = open_input(files);
  EXPECT_EQ(input.info.format, Format::kEsftText);
  EXPECT_EQ(input.info.top_k, 6);
  EXPECT_THAT(input.info.layers, ElementsAre(1, 26));
  // The same first three sequences as in the packed array of all layers.
  RoutingInput packed = open_input(test::data_file("esft/law_topk.npy"));
  EXPECT_EQ(check_input(input).num_tokens, 211 + 238 + 260);
  for (const std::int64_t token : {0, 210, 211, 500, 708}) {
    const auto text = ids_of_token(*input.tokens, token);
    const auto array = ids_of_token(*packed.tokens, token);
    EXPECT_EQ(std::vector(text.begin(), text.begin() + 6),
              std::vector(array.begin(), array.begin() + 6));
    EXPECT_EQ(std::vector(text.begin() + 6, text.end()), std::vector(array.end() - 6, array.end()));
  }
}

TEST(VllmRoutedExperts, OfAnEmptyBufferAreReadAndRefused) {
  RoutingInput input = open_input(test::data_file("vllm_routed_experts_empty/english_0.npy"));
  EXPECT_EQ(input.info.num_layers(), 6);
  EXPECT_EQ(input.info.top_k, 4);
  const InputCheck check = check_input(input);
  EXPECT_EQ(check.num_tokens, 230);
  EXPECT_EQ(test::finding_count(check, "ids.duplicate"), 230 * 6 * 3);
  EXPECT_TRUE(has_error(check));
  EXPECT_THROW(require_sane(input, check), Error);
}

TEST(VllmRoutedExperts, AreFoundInAResponse) {
  const TempDir dir;
  write_file(dir / "r.json",
             R"({"id": "x", "prompt_routed_experts": [[[0, 1], [2, 3]], [[1, 2], [3, 0]]],
                 "choices": [{"index": 0, "routed_experts": [[[3, 0], [1, 2]]]}]})");
  RoutingInput input = open_input((dir / "r.json").string());
  EXPECT_EQ(input.info.format, Format::kVllmRoutedExperts);
  EXPECT_EQ(check_input(input).num_tokens, 3);
  EXPECT_THAT(ids_of_token(*input.tokens, 2), ElementsAre(3, 0, 1, 2));
  write_file(dir / "none.json", R"({"choices": [{"text": "a"}]})");
  EXPECT_THAT(test::refusal_of((dir / "none.json").string()),
              HasSubstr("--enable-return-routed-experts"));
}

TEST(RouterLogits, NeedTopKAndPickTheLargest) {
  const TempDir dir;
  write_file(
      dir / "logits.npy",
      test::npy_bytes("<f4", "(2, 4)",
                      test::raw<float>({0.5F, -1.0F, 3.0F, 0.5F, -2.0F, -3.0F, -1.0F, 0.25F})));
  const std::string file = (dir / "logits.npy").string();
  EXPECT_THAT(test::refusal_of(file), HasSubstr("--top-k"));
  OpenOptions options;
  options.top_k = 2;
  RoutingInput input = open_input(file, options);
  EXPECT_EQ(input.info.format, Format::kRouterLogits);
  // Ties go to the smaller id.
  EXPECT_THAT(ids_of_token(*input.tokens, 0), ElementsAre(2, 0));
  EXPECT_THAT(ids_of_token(*input.tokens, 1), ElementsAre(3, 2));
}

TEST(RouterLogits, OfSeveralLayersComeAsNamedArrays) {
  const TempDir dir;
  const std::string layer0 = test::npy_bytes("<f8", "(1, 3)", test::raw<double>({1.5, -2.0, 3.0}));
  const std::string layer9 = test::npy_bytes("<f8", "(1, 3)", test::raw<double>({5.5, 2.0, 3.0}));
  write_file(dir / "l.npz", test::zip_bytes({{"layer_9.npy", layer9}, {"layer_0.npy", layer0}}));
  OpenOptions options;
  options.top_k = 1;
  RoutingInput input = open_input((dir / "l.npz").string(), options);
  EXPECT_THAT(input.info.layers, ElementsAre(0, 9));
  EXPECT_THAT(ids_of_token(*input.tokens, 0), ElementsAre(2, 0));
}

TEST(CountMatrix, IsReadFromArrayJsonAndCsv) {
  const TempDir dir;
  const Counts expected = {5, 0, 7, 1, 2, 3};
  write_file(dir / "a.npy", test::npy_bytes("<i8", "(2, 3)", test::raw<std::int64_t>(expected)));
  write_file(dir / "b.json", "[[5, 0, 7], [1, 2, 3]]");
  write_file(dir / "c.csv", "5,0,7\n1,2,3\n");
  write_file(dir / "d.csv", "layer,expert,count\n0,0,5\n0,2,7\n4,0,1\n4,1,2\n4,2,3\n");
  write_file(dir / "e.csv", "layer,e0,e1,e2\n0,5,0,7\n4,1,2,3\n");
  for (const char* name : {"a.npy", "b.json", "c.csv", "d.csv", "e.csv"}) {
    RoutingInput input = open_input((dir / name).string());
    EXPECT_EQ(input.info.format, Format::kCountMatrix) << name;
    EXPECT_EQ(test::totals_of(input), expected) << name;
  }
  EXPECT_THAT(open_input((dir / "d.csv").string()).info.layers, ElementsAre(0, 4));
}

TEST(CountMatrix, IsReadInFortranOrder) {
  const TempDir dir;
  std::string bytes = test::npy_bytes("<i8", "(3, 2)", test::raw<std::int64_t>({5, 0, 7, 1, 2, 3}));
  bytes.replace(bytes.find("False"), 5, "True ");
  write_file(dir / "f.npy", bytes);
  RoutingInput input = open_input((dir / "f.npy").string());
  EXPECT_EQ(test::totals_of(input), (Counts{5, 1, 0, 2, 7, 3}));
}

TEST(CountMatrix, HoldsLargeCountsExactly) {
  const TempDir dir;
  write_file(dir / "a.json", "[[16777217.0, 3], [9007199254740993, 1000000000]]");
  RoutingInput input = open_input((dir / "a.json").string());
  EXPECT_EQ(test::totals_of(input), (Counts{16777217, 3, 9007199254740993, 1000000000}));
}

TEST(ExpertIdCsv, IsALogOfTokens) {
  const TempDir dir;
  write_file(dir / "log.csv", "layer_id,expert_ids\n0,3 1\n1,0 2\n0,2 3\n1,1 0\n");
  RoutingInput input = open_input((dir / "log.csv").string());
  EXPECT_EQ(input.info.format, Format::kExpertIdCsv);
  EXPECT_THAT(ids_of_token(*input.tokens, 1), ElementsAre(2, 3, 1, 0));
}

TEST(Placements, AreNotTakenForLoads) {
  const TempDir dir;
  write_file(dir / "p.json", R"({"physical_to_logical_map": [[0, 1, 0]]})");
  write_file(dir / "p.csv", "Expert,Node\n0,1\n1,0\n");
  EXPECT_THAT(test::refusal_of((dir / "p.json").string()), HasSubstr("placement"));
  EXPECT_THAT(test::refusal_of((dir / "p.csv").string()), HasSubstr("placement"));
}

TEST(DomainTraces, OfTheDefaultCheckpointAreRead) {
  for (const char* domain : {"c", "english", "python", "spanish"}) {
    RoutingInput input = open_input(test::scenario_file(
        std::string("checkpoints/tinymoe-qwen3/routing-") + domain + ".safetensors"));
    EXPECT_EQ(input.info.format, Format::kTokenIds);
    EXPECT_EQ(input.info.num_experts, 16);
    EXPECT_EQ(input.info.top_k, 4);
    const InputCheck check = check_input(input);
    EXPECT_EQ(check.num_assignments, check.num_tokens * 6 * 4);
    EXPECT_FALSE(has_error(check));
  }
}

}  // namespace
}  // namespace moe::routing
