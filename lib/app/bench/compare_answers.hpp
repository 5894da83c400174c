#pragma once

// Whether two subjects gave the same answers to the same requests: by token ids where both sides
// have them, else by text.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/client/request_record.hpp"

namespace moe::app {

struct AnswerDifference {
  std::int64_t conversation = 0;
  std::int32_t turn = 0;
  bool is_by_ids = true;
  std::int64_t position = 0;  // of the first token that differs, from 0; of texts the first byte
  std::string expected;       // there, on either side: an id, a piece of text, or "the end"
  std::string found;
};

struct AnswerComparison {
  std::int64_t num_by_ids = 0;
  std::int64_t num_by_text = 0;
  std::int64_t num_equal = 0;
  std::int64_t num_missing = 0;  // answered by one side only, or without ids and text there
  std::optional<AnswerDifference> first;  // of the lowest conversation

  [[nodiscard]] std::int64_t num_compared() const { return num_by_ids + num_by_text; }
};

// Only successes are compared. Of texts, blanks in front and replacement characters at the end do
// not count: servers differ in whether they send what a cut leaves of a character.
[[nodiscard]] AnswerComparison compare_answers(const std::vector<client::RequestRecord>& expected,
                                               const std::vector<client::RequestRecord>& found);

}  // namespace moe::app
