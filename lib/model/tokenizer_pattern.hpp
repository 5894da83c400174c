#pragma once

// Literal and regular-expression patterns of tokenizer.json, with limits against runaway matching.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lib/model/tokenizer_json.hpp"

namespace moe::model::tokenizer_detail {

// What one encode or decode call may spend in patterns, and the memory it reuses. Not shared.
class MatchScratch {
 public:
  explicit MatchScratch(std::size_t text_bytes);
  MatchScratch(const MatchScratch&) = delete;
  MatchScratch& operator=(const MatchScratch&) = delete;
  ~MatchScratch();

  // The time for the next text begins now.
  void restart(std::size_t text_bytes);
  // Throws Error(kInput) once the time of this call is used up. Cheap: looks at the clock rarely.
  void spend(const std::string& where);

 private:
  friend class Pattern;
  struct Onig;
  Onig& onig();

  std::chrono::steady_clock::time_point deadline_;
  std::uint32_t steps_ = 0;
  std::unique_ptr<Onig> onig_;
};

struct PatternRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool is_match = false;
};

class Pattern {
 public:
  // `text` is matched as it is. An empty text matches between all characters, like an empty regex.
  [[nodiscard]] static Pattern literal(std::string text, std::string where);
  // Oniguruma syntax, as in the reference library. Refuses a pattern that does not compile.
  [[nodiscard]] static Pattern regex(std::string pattern, std::string where);
  // {"String": "..."} or {"Regex": "..."} in field "pattern".
  [[nodiscard]] static Pattern parse(const JsonFields& component);

  // Appends ranges that cover `text` in order: the matches (maybe empty) and what lies between.
  void find(std::string_view text, MatchScratch& scratch, std::vector<PatternRange>& out) const;
  [[nodiscard]] std::string replace(std::string_view text, std::string_view content,
                                    MatchScratch& scratch) const;
  [[nodiscard]] const std::string& where() const { return where_; }

 private:
  struct Compiled;
  Pattern(std::string text, std::string where) : text_(std::move(text)), where_(std::move(where)) {}
  void find_literal(std::string_view text, std::vector<PatternRange>& out) const;

  std::string text_;
  std::string where_;
  std::shared_ptr<const Compiled> compiled_;  // null: literal
};

}  // namespace moe::model::tokenizer_detail
