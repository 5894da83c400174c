#include "lib/model/tokenizer_normalizer.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/model/tokenizer_bytes.hpp"
#include "lib/model/unicode_text.hpp"

namespace moe::model::tokenizer_detail {
namespace {

using NormalizerPtr = std::unique_ptr<const Normalizer>;

// Rewrites character by character, or nearly so: what stands at the front stays there.
template <typename Rewrite>
void rewrite(NormalizedText& text, Rewrite rewritten) {
  if (text.start_bytes > 0) {
    text.start_bytes = rewritten(std::string_view(text.text).substr(0, text.start_bytes)).size();
  }
  text.text = rewritten(text.text);
}

std::string without_marks(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const CodePoint c = first_code_point(text);
    if (!is_mark(c.value)) out.append(text.substr(0, c.length));
    text.remove_prefix(c.length);
  }
  return out;
}

class UnicodeNormalizer final : public Normalizer {
 public:
  explicit UnicodeNormalizer(NormalizationForm form) : form_(form) {}
  void apply(NormalizedText& text, MatchScratch& /*scratch*/) const override {
    rewrite(text, [this](std::string_view part) { return normalize(part, form_); });
  }

 private:
  NormalizationForm form_;
};

class PrependNormalizer final : public Normalizer {
 public:
  explicit PrependNormalizer(std::string prefix) : prefix_(std::move(prefix)) {}
  void apply(NormalizedText& text, MatchScratch& /*scratch*/) const override {
    if (text.text.empty()) return;
    text.text.insert(0, prefix_);
    if (text.start_bytes > 0) text.start_bytes += prefix_.size();
  }

 private:
  std::string prefix_;
};

class ReplaceNormalizer final : public Normalizer {
 public:
  ReplaceNormalizer(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  void apply(NormalizedText& text, MatchScratch& scratch) const override {
    std::vector<PatternRange> ranges;
    pattern_.find(text.text, scratch, ranges);
    std::string out;
    out.reserve(text.text.size());
    const std::string_view old = text.text;
    std::size_t start_bytes = 0;
    for (const PatternRange& range : ranges) {
      if (out.size() > text.max_bytes) refuse(pattern_.where(), "the text grows without end");
      const std::string_view part = old.substr(range.begin, range.end - range.begin);
      out.append(range.is_match ? std::string_view(content_) : part);
      // What replaces several characters belongs to the last of them.
      if (range.end <= text.start_bytes) {
        start_bytes = out.size();
      } else if (!range.is_match && range.begin < text.start_bytes) {
        start_bytes = out.size() - (range.end - text.start_bytes);
      }
    }
    text.start_bytes = start_bytes;
    text.text = std::move(out);
  }

 private:
  Pattern pattern_;
  std::string content_;
};

class StripNormalizer final : public Normalizer {
 public:
  StripNormalizer(bool left, bool right) : left_(left), right_(right) {}

  void apply(NormalizedText& text, MatchScratch& /*scratch*/) const override {
    std::string_view rest = text.text;
    while (left_ && !rest.empty() && is_white_space(first_code_point(rest).value)) {
      const std::size_t length = first_code_point(rest).length;
      rest.remove_prefix(length);
      text.start_bytes -= std::min(text.start_bytes, length);
    }
    while (right_ && !rest.empty() && is_white_space(last_code_point(rest).value)) {
      rest.remove_suffix(last_code_point(rest).length);
    }
    text.text = std::string(rest);
  }

 private:
  bool left_;
  bool right_;
};

class StripAccentsNormalizer final : public Normalizer {
 public:
  void apply(NormalizedText& text, MatchScratch& /*scratch*/) const override {
    rewrite(text, without_marks);
  }
};

class LowercaseNormalizer final : public Normalizer {
 public:
  void apply(NormalizedText& text, MatchScratch& /*scratch*/) const override {
    rewrite(text, lowercase);
  }
};

class ByteLevelNormalizer final : public Normalizer {
 public:
  void apply(NormalizedText& text, MatchScratch& /*scratch*/) const override {
    rewrite(text, to_byte_alphabet);
  }
};

class SequenceNormalizer final : public Normalizer {
 public:
  SequenceNormalizer(std::vector<NormalizerPtr> steps, std::string where)
      : steps_(std::move(steps)), where_(std::move(where)) {}
  void apply(NormalizedText& text, MatchScratch& scratch) const override {
    for (const NormalizerPtr& step : steps_) {
      step->apply(text, scratch);
      if (text.text.size() > text.max_bytes) refuse(where_, "the text grows without end");
    }
  }

 private:
  std::vector<NormalizerPtr> steps_;
  std::string where_;
};

NormalizerPtr parse_component(const JsonFields& fields) {
  const std::string type = fields.text("type");
  if (type == "Sequence") {
    std::vector<NormalizerPtr> steps;
    for (const json::Json& node : require_array(fields, "normalizers")) {
      steps.push_back(
          parse_component(JsonFields(node, element_where(fields, "normalizers", steps.size()))));
    }
    return std::make_unique<SequenceNormalizer>(std::move(steps), fields.where());
  }
  if (type == "NFC") return std::make_unique<UnicodeNormalizer>(NormalizationForm::kNfc);
  if (type == "NFD") return std::make_unique<UnicodeNormalizer>(NormalizationForm::kNfd);
  if (type == "NFKC") return std::make_unique<UnicodeNormalizer>(NormalizationForm::kNfkc);
  if (type == "NFKD") return std::make_unique<UnicodeNormalizer>(NormalizationForm::kNfkd);
  if (type == "Prepend") return std::make_unique<PrependNormalizer>(fields.text("prepend"));
  if (type == "Replace") {
    return std::make_unique<ReplaceNormalizer>(Pattern::parse(fields), fields.text("content"));
  }
  if (type == "Strip") {
    return std::make_unique<StripNormalizer>(fields.required_flag("strip_left"),
                                             fields.required_flag("strip_right"));
  }
  if (type == "StripAccents") return std::make_unique<StripAccentsNormalizer>();
  if (type == "Lowercase") return std::make_unique<LowercaseNormalizer>();
  if (type == "ByteLevel") return std::make_unique<ByteLevelNormalizer>();
  refuse(fields.where(),
         fmt::format("normalizer {} is not known (known: NFC, NFD, NFKC, NFKD, Prepend, Replace, "
                     "Strip, StripAccents, Lowercase, ByteLevel, Sequence)",
                     quote(type)));
}

}  // namespace

std::unique_ptr<const Normalizer> parse_normalizer(const json::Json* node,
                                                   const std::string& where) {
  if (node == nullptr) return nullptr;
  return parse_component(JsonFields(*node, where));
}

}  // namespace moe::model::tokenizer_detail
