// One error of what several ranks saw when they gave up.

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lib/comm/backend.hpp"

namespace moe::comm {
namespace {

constexpr std::size_t kMaxShown = 4;

// Pairs, those that most ranks point at first: a pair that hangs is seen from both ends, and what
// merely waits behind it from one.
std::vector<StuckPair> by_votes(const std::vector<StuckReport>& reports,
                                const std::vector<int>& silent_ranks) {
  std::map<std::pair<int, int>, int> votes;
  for (const StuckReport& report : reports) {
    for (const StuckPair& pair : report.pairs) ++votes[{pair.sender, pair.receiver}];
  }
  for (auto& [pair, count] : votes) {
    for (const int rank : silent_ranks) count += pair.first == rank || pair.second == rank ? 2 : 0;
  }
  std::vector<std::pair<std::pair<int, int>, int>> ordered(votes.begin(), votes.end());
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<StuckPair> pairs;
  for (const auto& [pair, count] : ordered) pairs.push_back({pair.first, pair.second});
  return pairs;
}

std::string describe(const std::vector<StuckPair>& pairs) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < std::min(kMaxShown, pairs.size()); ++i) {
    texts.push_back(fmt::format("rank {} -> rank {}", pairs[i].sender, pairs[i].receiver));
  }
  std::string text = fmt::format("{}", fmt::join(texts, ", "));
  if (pairs.size() > kMaxShown) text += fmt::format(" and {} more", pairs.size() - kMaxShown);
  return text;
}

}  // namespace

StuckError merge_stuck(std::vector<StuckReport> reports, const std::vector<int>& silent_ranks) {
  std::sort(reports.begin(), reports.end(),
            [](const StuckReport& a, const StuckReport& b) { return a.rank < b.rank; });
  double waited_s = 0.0;
  std::string operation = "a collective";
  for (const StuckReport& report : reports) {
    if (report.waited_s >= waited_s) operation = report.operation;
    waited_s = std::max(waited_s, report.waited_s);
  }
  std::string message = fmt::format("{} did not end within {:.1f} s", operation, waited_s);
  if (!silent_ranks.empty()) {
    message += fmt::format("; nothing was heard of rank {}", fmt::join(silent_ranks, ", "));
  }
  const std::vector<StuckPair> pairs = by_votes(reports, silent_ranks);
  if (!pairs.empty()) message += "; waiting for " + describe(pairs);
  message += "; look at these hosts and the link between them, or raise --time-limit";
  return {message, std::move(reports), silent_ranks, pairs};
}

}  // namespace moe::comm
