#include "lib/model/tokenizer_pretokenizer.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/model/tokenizer_bytes.hpp"
#include "lib/model/tokenizer_split.hpp"
#include "lib/model/unicode_text.hpp"

namespace moe::model::tokenizer_detail {
namespace {

using PreTokenizerPtr = std::unique_ptr<const PreTokenizer>;

// The pattern of ByteLevel with use_regex (GPT-2).
constexpr const char* kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

using Finder = std::function<void(std::string_view, MatchScratch&, std::vector<PatternRange>&)>;

// Cuts every piece without a token by `find` and `behavior`; the text stays.
void split_pieces(PieceList& list, MatchScratch& scratch, SplitBehavior behavior, bool invert,
                  const Finder& find) {
  std::vector<Piece> pieces;
  pieces.reserve(list.pieces.size());
  std::vector<PatternRange> ranges;
  for (const Piece& piece : list.pieces) {
    if (piece.token >= 0) {
      pieces.push_back(piece);
      continue;
    }
    ranges.clear();
    find(list.view(piece), scratch, ranges);
    if (invert) {
      for (PatternRange& range : ranges) range.is_match = !range.is_match;
    }
    apply_split_behavior(behavior, ranges);
    for (const PatternRange& range : ranges) {
      if (range.begin == range.end) continue;
      pieces.push_back({piece.begin + range.begin, piece.begin + range.end, -1,
                        piece.start_bytes - std::min(piece.start_bytes, range.begin)});
    }
  }
  list.pieces = std::move(pieces);
}

// Rewrites the text piece by piece: `rewrite(old, at_start, out)` appends the new text of a piece.
template <typename Rewrite>
void rewrite_pieces(PieceList& list, Rewrite rewrite) {
  std::string text;
  text.reserve(list.text.size() + 16);
  for (Piece& piece : list.pieces) {
    if (piece.token >= 0) continue;
    const std::string_view old = list.view(piece);
    const std::size_t begin = text.size();
    const bool at_start = piece.start_bytes > 0;
    if (at_start) {
      rewrite(old.substr(0, piece.start_bytes), at_start, text);
      piece.start_bytes = text.size() - begin;
      text.resize(begin);
    }
    rewrite(old, at_start, text);
    piece.begin = begin;
    piece.end = text.size();
    if (text.size() > list.max_bytes)
      refuse(list.where, "the text grows without end in pre_tokenizer");
  }
  list.text = std::move(text);
}

// The matches are the characters that `is_delimiter` picks.
template <typename IsDelimiter>
Finder find_characters(IsDelimiter is_delimiter) {
  return [is_delimiter](std::string_view text, MatchScratch&, std::vector<PatternRange>& out) {
    std::size_t done = 0;
    std::size_t at = 0;
    while (at < text.size()) {
      const CodePoint c = first_code_point(text.substr(at));
      if (is_delimiter(c.value)) {
        if (at > done) out.push_back({done, at, false});
        done = at + c.length;
        out.push_back({at, done, true});
      }
      at += c.length;
    }
    if (done < text.size()) out.push_back({done, text.size(), false});
  };
}

// The matches are runs of word characters, and runs of what is neither word nor white space.
void find_words(std::string_view text, MatchScratch&, std::vector<PatternRange>& out) {
  const auto kind_of = [](char32_t c) { return is_word(c) ? 1 : is_white_space(c) ? 0 : 2; };
  std::size_t at = 0;
  while (at < text.size()) {
    const CodePoint first = first_code_point(text.substr(at));
    const int kind = kind_of(first.value);
    std::size_t end = at + first.length;
    while (end < text.size()) {
      const CodePoint c = first_code_point(text.substr(end));
      if (kind_of(c.value) != kind) break;
      end += c.length;
    }
    out.push_back({at, end, kind != 0});
    at = end;
  }
}

class SplitStep final : public PreTokenizer {
 public:
  SplitStep(Finder find, SplitBehavior behavior, bool invert)
      : find_(std::move(find)), behavior_(behavior), invert_(invert) {}
  void apply(PieceList& list, MatchScratch& scratch) const override {
    split_pieces(list, scratch, behavior_, invert_, find_);
  }

 private:
  Finder find_;
  SplitBehavior behavior_;
  bool invert_;
};

class PrefixSpaceStep final : public PreTokenizer {
 public:
  void apply(PieceList& list, MatchScratch& /*scratch*/) const override {
    rewrite_pieces(list, [](std::string_view piece, bool /*at_start*/, std::string& out) {
      if (!piece.starts_with(' ')) out += ' ';
      out += piece;
    });
  }
};

class ByteAlphabetStep final : public PreTokenizer {
 public:
  void apply(PieceList& list, MatchScratch& /*scratch*/) const override {
    rewrite_pieces(list, [](std::string_view piece, bool /*at_start*/, std::string& out) {
      append_byte_alphabet(piece, out);
    });
  }
};

enum class PrependScheme { kFirst, kNever, kAlways };

class MetaspaceSplit final : public PreTokenizer {
 public:
  MetaspaceSplit(std::string replacement, PrependScheme scheme)
      : replacement_(std::move(replacement)), scheme_(scheme) {}

  void apply(PieceList& list, MatchScratch& /*scratch*/) const override {
    rewrite_pieces(list, [this](std::string_view piece, bool at_start, std::string& out) {
      const bool has_prefix = piece.starts_with(' ') || piece.starts_with(replacement_);
      const bool wants_prefix =
          scheme_ == PrependScheme::kAlways || (scheme_ == PrependScheme::kFirst && at_start);
      if (wants_prefix && !has_prefix) out += replacement_;
      for (const char c : piece) {
        if (c == ' ') {
          out += replacement_;
        } else {
          out += c;
        }
      }
    });
  }

 private:
  std::string replacement_;
  PrependScheme scheme_;
};

PrependScheme parse_prepend_scheme(const JsonFields& fields) {
  const bool has_old_flag = fields.find("add_prefix_space") != nullptr;
  const bool old_flag = fields.flag("add_prefix_space", true);
  const auto name = fields.optional_text("prepend_scheme");
  if (!name) return old_flag ? PrependScheme::kAlways : PrependScheme::kNever;
  if (has_old_flag && !old_flag && *name != "never") {
    refuse(fields.where("prepend_scheme"),
           fmt::format("{} contradicts add_prefix_space false", quote(*name)));
  }
  if (*name == "first") return PrependScheme::kFirst;
  if (*name == "never") return PrependScheme::kNever;
  if (*name == "always") return PrependScheme::kAlways;
  refuse(fields.where("prepend_scheme"),
         fmt::format("{} is not known (known: first, never, always)", quote(*name)));
}

PreTokenizerPtr pattern_step(Pattern pattern, SplitBehavior behavior, bool invert) {
  return std::make_unique<SplitStep>(
      [pattern = std::move(pattern)](std::string_view text, MatchScratch& scratch,
                                     std::vector<PatternRange>& out) {
        pattern.find(text, scratch, out);
      },
      behavior, invert);
}

void parse_metaspace(const JsonFields& fields, std::vector<PreTokenizerPtr>& steps) {
  const std::string replacement = fields.character("replacement");
  steps.push_back(std::make_unique<MetaspaceSplit>(replacement, parse_prepend_scheme(fields)));
  if (fields.flag("split", true)) {
    steps.push_back(pattern_step(Pattern::literal(replacement, fields.where()),
                                 SplitBehavior::kMergedWithNext, false));
  }
}

void parse_byte_level(const JsonFields& fields, std::vector<PreTokenizerPtr>& steps) {
  if (fields.flag("add_prefix_space", true)) steps.push_back(std::make_unique<PrefixSpaceStep>());
  if (fields.flag("use_regex", true)) {
    steps.push_back(pattern_step(Pattern::regex(kGpt2Pattern, fields.where()),
                                 SplitBehavior::kIsolated, false));
  }
  steps.push_back(std::make_unique<ByteAlphabetStep>());
}

void parse_component(const JsonFields& fields, std::vector<PreTokenizerPtr>& steps) {
  const std::string type = fields.text("type");
  if (type == "Sequence") {
    std::size_t index = 0;
    for (const json::Json& node : require_array(fields, "pretokenizers")) {
      parse_component(JsonFields(node, element_where(fields, "pretokenizers", index++)), steps);
    }
  } else if (type == "ByteLevel") {
    parse_byte_level(fields, steps);
  } else if (type == "Metaspace") {
    parse_metaspace(fields, steps);
  } else if (type == "Split") {
    const SplitBehavior behavior = parse_split_behavior(fields);
    steps.push_back(pattern_step(Pattern::parse(fields), behavior, fields.required_flag("invert")));
  } else if (type == "Digits") {
    steps.push_back(std::make_unique<SplitStep>(find_characters(is_numeric),
                                                fields.flag("individual_digits", false)
                                                    ? SplitBehavior::kIsolated
                                                    : SplitBehavior::kContiguous,
                                                false));
  } else if (type == "Punctuation") {
    const SplitBehavior behavior = fields.find("behavior") == nullptr
                                       ? SplitBehavior::kIsolated
                                       : parse_split_behavior(fields);
    steps.push_back(std::make_unique<SplitStep>(find_characters(is_punctuation), behavior, false));
  } else if (type == "WhitespaceSplit") {
    steps.push_back(std::make_unique<SplitStep>(find_characters(is_white_space),
                                                SplitBehavior::kRemoved, false));
  } else if (type == "Whitespace") {
    steps.push_back(std::make_unique<SplitStep>(find_words, SplitBehavior::kRemoved, true));
  } else {
    refuse(fields.where(),
           fmt::format("pre-tokenizer {} is not known (known: ByteLevel, Split, Metaspace, Digits, "
                       "Punctuation, Whitespace, WhitespaceSplit, Sequence)",
                       quote(type)));
  }
}

}  // namespace

PreTokenizerChain parse_pre_tokenizer(const json::Json* node, const std::string& where) {
  PreTokenizerChain chain;
  if (node == nullptr) return chain;
  parse_component(JsonFields(*node, where), chain.steps);
  if (!chain.steps.empty() &&
      dynamic_cast<const ByteAlphabetStep*>(chain.steps.back().get()) != nullptr) {
    chain.bytes_at_end = true;
    chain.steps.pop_back();
  }
  return chain;
}

}  // namespace moe::model::tokenizer_detail
