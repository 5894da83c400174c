// The merge loop against the definition written down as directly as possible.

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "lib/base/rng.hpp"
#include "lib/model/tokenizer_bpe.hpp"

namespace moe::model::tokenizer_detail {
namespace {

using Pair = std::pair<std::int32_t, std::int32_t>;
using Rules = std::map<Pair, MergeTable::Merge>;

// Looks for the pair of lowest rank (the leftmost among equals), merges it, starts again.
std::vector<std::int32_t> merge_by_definition(std::vector<std::int32_t> symbols,
                                              const Rules& rules) {
  while (true) {
    std::optional<std::size_t> best;
    std::int32_t best_rank = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto it = rules.find({symbols[i], symbols[i + 1]});
      if (it == rules.end() || (best && it->second.rank >= best_rank)) continue;
      best = i;
      best_rank = it->second.rank;
    }
    if (!best) return symbols;
    symbols[*best] = rules.at({symbols[*best], symbols[*best + 1]}).merged;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(*best) + 1);
  }
}

MergeTable table_of(const Rules& rules) {
  MergeTable table(rules.size());
  for (const auto& [pair, merge] : rules) table.set(pair.first, pair.second, merge);
  return table;
}

TEST(MergeTable, FindsWhatWasSetAndNothingElse) {
  MergeTable table(3);
  table.set(1, 2, {0, 10});
  table.set(2, 1, {1, 11});
  table.set(1, 2, {5, 12});
  EXPECT_EQ(table.find(1, 2).rank, 5);
  EXPECT_EQ(table.find(1, 2).merged, 12);
  EXPECT_EQ(table.find(2, 1).merged, 11);
  EXPECT_EQ(table.find(0, 0).rank, -1);
  EXPECT_EQ(MergeTable(0).find(1, 2).rank, -1);
}

TEST(MergeSymbols, TakesTheLowestRankFirstThenTheLeftmost) {
  // a=0 b=1; "aa" -> 2 has the lower rank, so "aab" is (aa)(b) although "ab" -> 3 exists.
  const Rules rules = {{{0, 0}, {0, 2}}, {{0, 1}, {1, 3}}};
  const MergeTable table = table_of(rules);
  std::vector<std::int32_t> symbols = {0, 0, 0, 1};
  merge_symbols(symbols, table);
  EXPECT_EQ(symbols, (std::vector<std::int32_t>{2, 3}));
  std::vector<std::int32_t> one = {0};
  merge_symbols(one, table);
  EXPECT_EQ(one, std::vector<std::int32_t>{0});
  std::vector<std::int32_t> none;
  merge_symbols(none, table);
  EXPECT_TRUE(none.empty());
}

TEST(MergeSymbols, MeetsTheDefinitionForShortAndLongWords) {
  Rng rng(3);
  for (int round = 0; round < 200; ++round) {
    // Tokens are strings over a small alphabet, numbered as they appear, as in a real vocabulary.
    Rules rules;
    std::int32_t tokens = 3;
    const auto count = static_cast<std::int32_t>(1 + rng.next_below(30));
    for (std::int32_t rank = 0; rank < count; ++rank) {
      const auto pick = [&] {
        return static_cast<std::int32_t>(rng.next_below(static_cast<std::uint64_t>(tokens)));
      };
      if (rules.emplace(Pair{pick(), pick()}, MergeTable::Merge{rank, tokens}).second) ++tokens;
    }
    const MergeTable table = table_of(rules);
    for (const std::uint64_t length : {5U, 31U, 32U, 33U, 34U, 200U}) {
      std::vector<std::int32_t> symbols;
      for (std::uint64_t i = 0; i < length; ++i) {
        symbols.push_back(static_cast<std::int32_t>(rng.next_below(3)));
      }
      const auto expected = merge_by_definition(symbols, rules);
      merge_symbols(symbols, table);
      EXPECT_EQ(symbols, expected);
    }
  }
}

}  // namespace
}  // namespace moe::model::tokenizer_detail
