#include "lib/app/bench/compare_answers.hpp"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "lib/base/text.hpp"

namespace moe::app {
namespace {

using client::RequestRecord;

constexpr std::string_view kReplacement = "\xef\xbf\xbd";
constexpr std::size_t kShownBytes = 16;

using ByRequest = std::map<std::pair<std::int64_t, std::int32_t>, const RequestRecord*>;

ByRequest successes_of(const std::vector<RequestRecord>& records) {
  ByRequest answers;
  for (const RequestRecord& record : records) {
    if (record.is_success()) answers[{record.conversation, record.turn}] = &record;
  }
  return answers;
}

std::string_view comparable(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(kReplacement)) text.remove_suffix(kReplacement.size());
  return text;
}

// The place of the first difference; absent when there is none.
template <typename Sequence>
std::optional<std::size_t> first_difference(const Sequence& expected, const Sequence& found) {
  const auto [left, right] =
      std::mismatch(expected.begin(), expected.end(), found.begin(), found.end());
  if (left == expected.end() && right == found.end()) return std::nullopt;
  return static_cast<std::size_t>(left - expected.begin());
}

std::string id_at(const std::vector<std::int32_t>& ids, std::size_t place) {
  return place < ids.size() ? fmt::format("token {}", ids[place]) : "the end";
}

std::string text_at(std::string_view text, std::size_t place) {
  if (place >= text.size()) return "the end";
  return fmt::format("\"{}\"", printable(text.substr(place, kShownBytes)));
}

std::optional<AnswerDifference> difference_of(const RequestRecord& expected,
                                              const RequestRecord& found, bool is_by_ids) {
  AnswerDifference difference;
  difference.conversation = expected.conversation;
  difference.turn = expected.turn;
  difference.is_by_ids = is_by_ids;
  std::optional<std::size_t> place;
  if (is_by_ids) {
    place = first_difference(expected.token_ids, found.token_ids);
    if (!place) return std::nullopt;
    difference.expected = id_at(expected.token_ids, *place);
    difference.found = id_at(found.token_ids, *place);
  } else {
    const std::string_view left = comparable(expected.text);
    const std::string_view right = comparable(found.text);
    place = first_difference(left, right);
    if (!place) return std::nullopt;
    difference.expected = text_at(left, *place);
    difference.found = text_at(right, *place);
  }
  difference.position = static_cast<std::int64_t>(*place);
  return difference;
}

}  // namespace

AnswerComparison compare_answers(const std::vector<RequestRecord>& expected,
                                 const std::vector<RequestRecord>& found) {
  AnswerComparison comparison;
  const ByRequest left = successes_of(expected);
  const ByRequest right = successes_of(found);
  std::int64_t num_in_both = 0;
  for (const auto& [request, own] : left) {
    const auto other = right.find(request);
    if (other == right.end()) continue;
    ++num_in_both;
    const bool is_by_ids = !own->token_ids.empty() && !other->second->token_ids.empty();
    if (!is_by_ids && (own->text.empty() || other->second->text.empty())) {
      ++comparison.num_missing;
      continue;
    }
    ++(is_by_ids ? comparison.num_by_ids : comparison.num_by_text);
    std::optional<AnswerDifference> difference = difference_of(*own, *other->second, is_by_ids);
    if (!difference) {
      ++comparison.num_equal;
    } else if (!comparison.first) {
      comparison.first = std::move(difference);
    }
  }
  comparison.num_missing += static_cast<std::int64_t>(left.size()) - num_in_both;
  comparison.num_missing += static_cast<std::int64_t>(right.size()) - num_in_both;
  return comparison;
}

}  // namespace moe::app
