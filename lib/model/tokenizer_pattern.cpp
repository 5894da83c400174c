#include "lib/model/tokenizer_pattern.hpp"

#include <limits>
#include <mutex>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <oniguruma.h>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/model/unicode_text.hpp"

namespace moe::model::tokenizer_detail {
namespace {

// Backtracking steps of one search; the reference engine's own default is the same.
constexpr unsigned long kMaxRetries = 10'000'000;
// Entries of the backtracking stack, about 50 bytes each.
constexpr unsigned int kMaxStackEntries = 16U << 20;
constexpr std::size_t kMaxPatternBytes = std::size_t{64} << 10;
constexpr std::uint32_t kStepsPerClockLook = 1024;

// Time for one call: generous for honest patterns on a slow or sanitized build (about 0.2 s per MB
// is needed), an end for the others.
std::chrono::milliseconds time_limit(std::size_t text_bytes) {
  return std::chrono::milliseconds(20'000 + static_cast<std::int64_t>(text_bytes >> 7));
}

const OnigUChar* bytes_of(std::string_view text) {
  return reinterpret_cast<const OnigUChar*>(text.data());
}

void initialize_onig() {
  static std::once_flag once;
  std::call_once(once, [] {
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    onig_initialize(encodings, 1);
  });
}

bool is_boundary(std::string_view text, std::size_t at) {
  return at >= text.size() || (static_cast<unsigned char>(text[at]) & 0xC0U) != 0x80U;
}

std::string onig_message(int code, OnigErrorInfo* info) {
  OnigUChar buffer[ONIG_MAX_ERROR_MESSAGE_LEN] = {};
  const int length = info == nullptr ? onig_error_code_to_str(buffer, code)
                                     : onig_error_code_to_str(buffer, code, info);
  return {reinterpret_cast<const char*>(buffer), static_cast<std::size_t>(length)};
}

}  // namespace

struct MatchScratch::Onig {
  Onig() : region(onig_region_new()), param(onig_new_match_param()) {
    MOE_CHECK(region != nullptr && param != nullptr);
    onig_initialize_match_param(param);
    onig_set_match_stack_limit_size_of_match_param(param, kMaxStackEntries);
    onig_set_retry_limit_in_match_of_match_param(param, kMaxRetries);
    onig_set_retry_limit_in_search_of_match_param(param, kMaxRetries);
  }
  Onig(const Onig&) = delete;
  Onig& operator=(const Onig&) = delete;
  ~Onig() {
    onig_region_free(region, 1);
    onig_free_match_param(param);
  }

  OnigRegion* region;
  OnigMatchParam* param;
};

MatchScratch::MatchScratch(std::size_t text_bytes) {
  restart(text_bytes);
}

MatchScratch::~MatchScratch() = default;

void MatchScratch::restart(std::size_t text_bytes) {
  deadline_ = std::chrono::steady_clock::now() + time_limit(text_bytes);
}

void MatchScratch::spend(const std::string& where) {
  if (++steps_ % kStepsPerClockLook != 0) return;
  if (std::chrono::steady_clock::now() < deadline_) return;
  refuse(where, "matching takes too long on this text; the pattern backtracks too much");
}

MatchScratch::Onig& MatchScratch::onig() {
  if (!onig_) onig_ = std::make_unique<Onig>();
  return *onig_;
}

struct Pattern::Compiled {
  explicit Compiled(regex_t* compiled_regex) : regex(compiled_regex) {}
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;
  ~Compiled() { onig_free(regex); }

  regex_t* regex;
};

Pattern Pattern::literal(std::string text, std::string where) {
  if (text.empty()) return regex({}, std::move(where));
  return {std::move(text), std::move(where)};
}

Pattern Pattern::regex(std::string pattern, std::string where) {
  initialize_onig();
  if (pattern.size() > kMaxPatternBytes) {
    refuse(where,
           fmt::format("pattern has {} bytes, more than {}", pattern.size(), kMaxPatternBytes));
  }
  Pattern result(std::move(pattern), std::move(where));
  const OnigUChar* const begin = bytes_of(result.text_);
  regex_t* compiled = nullptr;
  OnigErrorInfo info{};
  const int code = onig_new(&compiled, begin, begin + result.text_.size(), ONIG_OPTION_NONE,
                            ONIG_ENCODING_UTF8, ONIG_SYNTAX_DEFAULT, &info);
  if (code != ONIG_NORMAL) {
    refuse(result.where_, fmt::format("pattern {} does not compile: {}", quote(result.text_),
                                      onig_message(code, &info)));
  }
  result.compiled_ = std::make_shared<const Compiled>(compiled);
  return result;
}

Pattern Pattern::parse(const JsonFields& component) {
  const JsonFields pattern(component.require("pattern"), component.where("pattern"));
  if (pattern.find("String") != nullptr) return literal(pattern.text("String"), pattern.where());
  if (pattern.find("Regex") != nullptr) return regex(pattern.text("Regex"), pattern.where());
  refuse(pattern.where(), "expected {\"String\": ...} or {\"Regex\": ...}");
}

void Pattern::find_literal(std::string_view text, std::vector<PatternRange>& out) const {
  std::size_t done = 0;
  while (done < text.size()) {
    const std::size_t at = text.find(text_, done);
    if (at == std::string_view::npos) break;
    if (at > done) out.push_back({done, at, false});
    done = at + text_.size();
    out.push_back({at, done, true});
  }
  if (done < text.size()) out.push_back({done, text.size(), false});
}

void Pattern::find(std::string_view text, MatchScratch& scratch,
                   std::vector<PatternRange>& out) const {
  if (!compiled_) return find_literal(text, out);
  if (text.empty()) return;
  if (text.size() > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    refuse(where_, fmt::format("a text of {} bytes is too long for a pattern", text.size()));
  }
  MatchScratch::Onig& onig = scratch.onig();
  const OnigUChar* const begin = bytes_of(text);
  const OnigUChar* const end = begin + text.size();
  std::size_t done = 0;  // everything before is in `out`
  std::size_t from = 0;  // where the next search starts
  std::size_t last_match_end = std::string_view::npos;
  while (from <= text.size()) {
    scratch.spend(where_);
    const int found = onig_search_with_param(compiled_->regex, begin, end, begin + from, end,
                                             onig.region, ONIG_OPTION_NONE, onig.param);
    if (found == ONIG_MISMATCH) break;
    if (found < 0) {
      refuse(where_, fmt::format("pattern {} gives up on this text: {}", quote(text_),
                                 onig_message(found, nullptr)));
    }
    const auto match_begin = static_cast<std::size_t>(onig.region->beg[0]);
    const auto match_end = static_cast<std::size_t>(onig.region->end[0]);
    if (match_begin == match_end && match_end == last_match_end) {
      // An empty match right after a match is no match: go on behind the next character.
      from += from < text.size() ? first_code_point(text.substr(from)).length : 1;
      continue;
    }
    if (match_begin < done || match_end < match_begin || !is_boundary(text, match_begin) ||
        !is_boundary(text, match_end)) {
      refuse(where_,
             fmt::format("pattern {} matches outside of the characters of the text", quote(text_)));
    }
    if (match_begin > done) out.push_back({done, match_begin, false});
    out.push_back({match_begin, match_end, true});
    done = match_end;
    from = match_end;
    last_match_end = match_end;
  }
  if (done < text.size()) out.push_back({done, text.size(), false});
}

std::string Pattern::replace(std::string_view text, std::string_view content,
                             MatchScratch& scratch) const {
  std::vector<PatternRange> ranges;
  find(text, scratch, ranges);
  std::string out;
  out.reserve(text.size());
  for (const PatternRange& range : ranges) {
    out.append(range.is_match ? content : text.substr(range.begin, range.end - range.begin));
  }
  return out;
}

}  // namespace moe::model::tokenizer_detail
