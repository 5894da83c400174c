#include "lib/model/unicode_text.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include <utf8proc.h>

#include "lib/base/check.hpp"

namespace moe::model {
namespace {

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

utf8proc_category_t category(char32_t value) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(value));
}

int combining_class(utf8proc_int32_t value) {
  return utf8proc_get_property(value)->combining_class;
}

// Canonical ordering (Unicode 15, section 3.11, D109), as a stable sort of each run of marks: the
// exchange of neighbours that libraries do takes quadratic time on a long run.
void order_marks(std::vector<utf8proc_int32_t>& points) {
  std::size_t at = 0;
  while (at < points.size()) {
    if (combining_class(points[at]) == 0) {
      ++at;
      continue;
    }
    std::size_t end = at + 1;
    while (end < points.size() && combining_class(points[end]) != 0) ++end;
    std::stable_sort(points.begin() + static_cast<std::ptrdiff_t>(at),
                     points.begin() + static_cast<std::ptrdiff_t>(end),
                     [](utf8proc_int32_t a, utf8proc_int32_t b) {
                       return combining_class(a) < combining_class(b);
                     });
    at = end;
  }
}

}  // namespace

CodePoint first_code_point(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<char32_t>(text[i]) & 0x3FU; };
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1FU) << 6 | byte(1), 2};
  if (lead < 0xF0) return {(lead & 0x0FU) << 12 | byte(1) << 6 | byte(2), 3};
  return {(lead & 0x07U) << 18 | byte(1) << 12 | byte(2) << 6 | byte(3), 4};
}

CodePoint last_code_point(std::string_view text) {
  std::size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U) --at;
  return first_code_point(text.substr(at));
}

void append_code_point(char32_t value, std::string& out) {
  std::array<utf8proc_uint8_t, 4> bytes{};
  const auto count = utf8proc_encode_char(static_cast<utf8proc_int32_t>(value), bytes.data());
  out.append(bytes.begin(), bytes.begin() + count);
}

bool is_white_space(char32_t value) {
  return (value >= 0x09 && value <= 0x0D) || value == 0x20 || value == 0x85 || value == 0xA0 ||
         value == 0x1680 || (value >= 0x2000 && value <= 0x200A) || value == 0x2028 ||
         value == 0x2029 || value == 0x202F || value == 0x205F || value == 0x3000;
}

bool is_numeric(char32_t value) {
  const auto c = category(value);
  return c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(char32_t value) {
  if (value < 0x80) {
    return (value >= 0x21 && value <= 0x2F) || (value >= 0x3A && value <= 0x40) ||
           (value >= 0x5B && value <= 0x60) || (value >= 0x7B && value <= 0x7E);
  }
  const auto c = category(value);
  return c >= UTF8PROC_CATEGORY_PC && c <= UTF8PROC_CATEGORY_PO;
}

bool is_mark(char32_t value) {
  const auto c = category(value);
  return c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_MC || c == UTF8PROC_CATEGORY_ME;
}

bool is_word(char32_t value) {
  if (value == 0x200C || value == 0x200D) return true;
  // Symbols with the property Other_Alphabetic: letters in circles and squares (PropList.txt).
  if ((value >= 0x24B6 && value <= 0x24E9) || (value >= 0x1F130 && value <= 0x1F149) ||
      (value >= 0x1F150 && value <= 0x1F169) || (value >= 0x1F170 && value <= 0x1F189)) {
    return true;
  }
  const auto c = category(value);
  return (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO) || is_mark(value) ||
         c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_PC;
}

std::string normalize(std::string_view text, NormalizationForm form) {
  if (is_ascii(text)) return std::string(text);
  const bool compose = form == NormalizationForm::kNfc || form == NormalizationForm::kNfkc;
  const bool compatible = form == NormalizationForm::kNfkc || form == NormalizationForm::kNfkd;
  const int decompose =
      static_cast<int>(UTF8PROC_DECOMPOSE) | (compatible ? static_cast<int>(UTF8PROC_COMPAT) : 0);

  std::vector<utf8proc_int32_t> points;
  points.reserve(text.size());
  // The longest full decomposition of one character has 18 (U+FDFA, compatibility).
  std::array<utf8proc_int32_t, 32> one{};
  int boundary_class = 0;
  while (!text.empty()) {
    const CodePoint c = first_code_point(text);
    text.remove_prefix(c.length);
    const auto count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.value), one.data(),
                                static_cast<utf8proc_ssize_t>(one.size()),
                                static_cast<utf8proc_option_t>(decompose), &boundary_class);
    MOE_CHECK(count >= 0 && count <= static_cast<utf8proc_ssize_t>(one.size()));
    points.insert(points.end(), one.begin(), one.begin() + count);
  }
  order_marks(points);
  auto length = static_cast<utf8proc_ssize_t>(points.size());
  if (compose) {
    length = utf8proc_normalize_utf32(
        points.data(), length,
        static_cast<utf8proc_option_t>(static_cast<int>(UTF8PROC_STABLE) |
                                       static_cast<int>(UTF8PROC_COMPOSE)));
    MOE_CHECK(length >= 0);
  }
  std::string out;
  out.reserve(points.size());
  for (utf8proc_ssize_t i = 0; i < length; ++i) {
    append_code_point(static_cast<char32_t>(points[static_cast<std::size_t>(i)]), out);
  }
  return out;
}

std::string lowercase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const CodePoint c = first_code_point(text);
    text.remove_prefix(c.length);
    if (c.value == 0x130) {
      out += "i\xCC\x87";  // the only character whose lower case has two (SpecialCasing.txt)
    } else {
      append_code_point(
          static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c.value))), out);
    }
  }
  return out;
}

}  // namespace moe::model
