// The merge loop against the definition written down as directly as possible.

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "lib/base/rng.hpp"
#include "lib/model/tokenizer.hpp"
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

// A vocabulary of random strings over a, b, c, d, in which many pairs of letters never join.
TEST(Bpe, LongWordsMeetTheDefinition) {
  Rng rng(4);
  for (int round = 0; round < 100; ++round) {
    std::vector<std::string> tokens = {"a", "b", "c", "d"};
    std::string merges;
    Rules rules;
    for (int i = 0; i < 8; ++i) {
      const std::size_t left = rng.next_below(tokens.size());
      const std::size_t right = rng.next_below(tokens.size());
      const std::string merged = tokens[left] + tokens[right];
      if (std::find(tokens.begin(), tokens.end(), merged) != tokens.end()) continue;
      const Pair pair{static_cast<std::int32_t>(left), static_cast<std::int32_t>(right)};
      rules[pair] = {static_cast<std::int32_t>(rules.size()),
                     static_cast<std::int32_t>(tokens.size())};
      merges += (merges.empty() ? "\"" : ",\"") + tokens[left] + ' ' + tokens[right] + '"';
      tokens.push_back(merged);
    }
    std::string vocabulary;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      vocabulary += (i == 0 ? "\"" : ",\"") + tokens[i] + "\":" + std::to_string(i);
    }
    const auto tokenizer = Tokenizer::parse(R"({"model": {"type": "BPE", "vocab": {)" + vocabulary +
                                                R"(}, "merges": [)" + merges + "]}}",
                                            "t.json");
    std::string text;
    std::vector<std::int32_t> symbols;
    for (int i = 0; i < 150; ++i) {
      symbols.push_back(static_cast<std::int32_t>(rng.next_below(4)));
      text += tokens[static_cast<std::size_t>(symbols.back())];
    }
    EXPECT_EQ(tokenizer.encode(text, false), merge_by_definition(symbols, rules)) << merges;
  }
}

}  // namespace
}  // namespace moe::model::tokenizer_detail
