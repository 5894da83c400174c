// How many tokens an answer had, and which event brought how many.

#include <algorithm>
#include <numeric>

#include "lib/client/answer_reader.hpp"

namespace moe::client {

bool AnswerReader::count_ids(std::vector<double>& weights) const {
  bool has_ids = false;
  for (std::size_t i = 0; i < seen_.size(); ++i) {
    // An event with text and no ids: the ids are not the whole answer.
    if (seen_[i].has_output && seen_[i].num_ids < 0) return false;
    has_ids = has_ids || seen_[i].num_ids > 0;
    weights[i] = std::max(0, seen_[i].num_ids);
  }
  return has_ids;
}

bool AnswerReader::count_running(std::vector<double>& weights) const {
  std::int64_t total = 0;
  for (std::size_t i = 0; i < seen_.size(); ++i) {
    weights[i] = 0.0;
    if (seen_[i].usage_total < 0) {
      if (seen_[i].has_output) return false;
      continue;
    }
    if (seen_[i].usage_total < total) return false;
    weights[i] = static_cast<double>(seen_[i].usage_total - total);
    total = seen_[i].usage_total;
  }
  // A count that comes only with the last event is a final count.
  const auto with_count = std::count_if(seen_.begin(), seen_.end(),
                                        [](const Seen& seen) { return seen.usage_total >= 0; });
  return total > 0 && with_count > 1;
}

bool AnswerReader::spread(std::int64_t total, std::vector<double>& weights) const {
  std::int64_t with_output = 0;
  std::int64_t with_choice = 0;
  for (const Seen& seen : seen_) {
    with_output += seen.has_output ? 1 : 0;
    with_choice += seen.is_prelude ? 0 : 1;
  }
  // One token an event, the usual case; or one for each event with a choice, where tokens inside a
  // character and the end of sequence give events without text.
  const bool counts_empty = total == with_choice && total != with_output;
  const std::int64_t num_events = counts_empty ? with_choice : with_output;
  const double share =
      num_events > 0 ? static_cast<double>(total) / static_cast<double>(num_events) : 0.0;
  for (std::size_t i = 0; i < seen_.size(); ++i) {
    const bool counts = counts_empty ? !seen_[i].is_prelude : seen_[i].has_output;
    weights[i] = counts ? share : 0.0;
  }
  return total == num_events;
}

void AnswerReader::count(const CountTokens& count_tokens, RequestRecord& record) const {
  std::vector<double> weights(seen_.size(), 0.0);
  std::vector<double> ids = weights;
  if (count_ids(ids)) {
    record.id_output_tokens =
        static_cast<std::int64_t>(std::accumulate(ids.begin(), ids.end(), 0.0));
  }
  const std::string all = reasoning_ + text_;
  if (count_tokens && keeps_text_) record.tokenizer_output_tokens = count_tokens(all);

  record.num_output_events = static_cast<std::int32_t>(
      std::count_if(seen_.begin(), seen_.end(), [](const Seen& seen) { return seen.has_output; }));
  bool is_exact = true;
  if (record.id_output_tokens) {
    record.token_source = TokenSource::kTokenIds;
    record.output_tokens = record.id_output_tokens;
    weights = ids;
  } else if (!is_plain_ && count_running(weights)) {
    record.token_source = TokenSource::kContinuousUsage;
    record.output_tokens =
        static_cast<std::int64_t>(std::accumulate(weights.begin(), weights.end(), 0.0));
  } else if (record.server_output_tokens) {
    record.token_source = TokenSource::kFinalUsage;
    record.output_tokens = record.server_output_tokens;
    is_exact = spread(*record.output_tokens, weights);
  } else if (record.tokenizer_output_tokens) {
    record.token_source = TokenSource::kTokenizer;
    record.output_tokens = record.tokenizer_output_tokens;
    is_exact = spread(*record.output_tokens, weights);
  } else {
    record.token_source = TokenSource::kNone;
    is_exact = false;
    for (std::size_t i = 0; i < seen_.size(); ++i) weights[i] = seen_[i].has_output ? 1.0 : 0.0;
  }
  record.has_exact_arrivals = is_exact && !is_plain_;
  if (!is_plain_) fill_times(weights, record);
}

void AnswerReader::fill_times(const std::vector<double>& weights, RequestRecord& record) const {
  // Without a count of each event, only an event with output is sure to carry a token.
  const bool is_counted = record.token_source == TokenSource::kTokenIds ||
                          record.token_source == TokenSource::kContinuousUsage;
  const double sent_s = record.sent_s.value_or(0.0);
  double before_first = 0.0;  // tokens of events that cannot be told from empty ones
  record.arrivals.reserve(seen_.size());
  for (std::size_t i = 0; i < seen_.size(); ++i) {
    const Seen& seen = seen_[i];
    if (seen.is_visible && !record.first_visible_s) record.first_visible_s = seen.time_s;
    if (weights[i] <= 0.0 && !seen.has_output) continue;
    if (!record.first_token_s && !is_counted && !seen.has_output) {
      before_first += weights[i];
      continue;
    }
    if (!record.first_token_s) record.first_token_s = seen.time_s;
    record.last_token_s = seen.time_s;
    record.arrivals.push_back(
        {static_cast<float>(seen.time_s - sent_s), static_cast<float>(weights[i] + before_first)});
    before_first = 0.0;
  }
}

}  // namespace moe::client
