// The keys tokenizer.ggml.* as the tokenizer.json that means the same. Byte-level vocabularies
// ("gpt2") keep their merges; SentencePiece ones ("llama") keep scores, from which merges follow: a
// pair merges when its piece is in the vocabulary, pieces of higher score first.

#include "lib/model/gguf_tokenizer.hpp"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/base/text.hpp"
#include "lib/json/read.hpp"

namespace moe::model {
namespace {

using json::Json;

constexpr std::string_view kTokensKey = "tokenizer.ggml.tokens";
constexpr std::string_view kSpace = "\xe2\x96\x81";  // U+2581, the space of SentencePiece

// Kinds of tokens, llama.h of llama.cpp.
constexpr int kUnknown = 2;
constexpr int kControl = 3;
constexpr int kUserDefined = 4;

constexpr std::string_view kLlama3Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kO200kWords =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// What a name of tokenizer.ggml.pre stands for.
struct PreTokenizerRule {
  std::string_view name;
  std::string_view words;  // empty: the pattern of GPT-2
  bool normalizes;         // NFC
  bool ignores_merges;
  bool adds_bos;  // unless add_bos_token says
};

constexpr std::array<PreTokenizerRule, 11> kPreTokenizers = {{
    {"gpt-2", {}, false, false, false},
    {"olmo", {}, true, false, false},
    {"qwen2", kQwen2Words, true, false, false},
    {"llama-bpe", kLlama3Words, false, true, true},
    {"llama3", kLlama3Words, false, true, true},
    {"llama-v3", kLlama3Words, false, true, true},
    {"dbrx", kLlama3Words, false, false, false},
    {"glm4", kLlama3Words, false, false, false},
    {"chatglm-bpe", kLlama3Words, false, false, false},
    {"gpt-4o", kO200kWords, false, false, false},
    {"llama4", kO200kWords, false, false, false},
}};

const PreTokenizerRule& find_pre_tokenizer(const GgufFile& file) {
  constexpr std::string_view kKey = "tokenizer.ggml.pre";
  const auto name = file.text(kKey);
  std::string known;
  for (const PreTokenizerRule& rule : kPreTokenizers) {
    if (name == rule.name) return rule;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", rule.name);
  }
  file.fail(kKey, fmt::format("{}; supported: {} (or give a checkpoint directory with "
                              "tokenizer.json)",
                              name ? fmt::format("\"{}\" is not known", printable(*name))
                                   : "missing: how text is split is not said",
                              known));
}

Json vocabulary(const GgufFile& file, const std::vector<std::string_view>& tokens) {
  Json vocab = Json::object();
  std::unordered_set<std::string_view> seen;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (first_invalid_utf8(tokens[id]) != tokens[id].size()) {
      file.fail(kTokensKey, fmt::format("token {} is not UTF-8", id));
    }
    if (!seen.insert(tokens[id]).second) {
      file.fail(kTokensKey, fmt::format("token \"{}\" is there twice", printable(tokens[id])));
    }
    vocab.emplace(std::string(tokens[id]), id);
  }
  return vocab;
}

std::vector<int> token_kinds(const GgufFile& file, std::size_t count) {
  const auto kinds = file.numbers("tokenizer.ggml.token_type");
  std::vector<int> out(count, 1);
  if (!kinds) return out;
  if (kinds->size() != count) {
    file.fail("tokenizer.ggml.token_type",
              fmt::format("{} entries for {} tokens", kinds->size(), count));
  }
  for (std::size_t id = 0; id < count; ++id) {
    const double kind = (*kinds)[id];
    if (!(kind >= 0.0 && kind <= 255.0)) {
      file.fail("tokenizer.ggml.token_type", fmt::format("{} of token {} is no kind", kind, id));
    }
    out[id] = static_cast<int>(kind);
  }
  return out;
}

Json added_tokens(const std::vector<std::string_view>& tokens, const std::vector<int>& kinds) {
  Json added = Json::array();
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (kinds[id] != kControl && kinds[id] != kUserDefined && kinds[id] != kUnknown) continue;
    if (tokens[id].empty()) continue;
    added.push_back({{"id", id},
                     {"content", std::string(tokens[id])},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", kinds[id] != kUserDefined}});
  }
  return added;
}

// Merges of a SentencePiece vocabulary by falling score.
Json merges_by_score(const GgufFile& file, const std::vector<std::string_view>& tokens,
                     const std::vector<int>& kinds) {
  const auto scores = file.numbers("tokenizer.ggml.scores");
  if (!scores || scores->size() != tokens.size()) {
    file.fail("tokenizer.ggml.scores",
              fmt::format("expected a score for each of {} tokens", tokens.size()));
  }
  std::unordered_map<std::string_view, std::size_t> id_of;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (kinds[id] == 1) id_of.emplace(tokens[id], id);
  }
  struct Merge {
    double score;
    std::size_t left;
    std::size_t right;
  };
  std::vector<Merge> merges;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (kinds[id] != 1) continue;
    const std::string_view piece = tokens[id];
    for (std::size_t at = 1; at < piece.size(); ++at) {
      const auto left = id_of.find(piece.substr(0, at));
      if (left == id_of.end()) continue;
      const auto right = id_of.find(piece.substr(at));
      if (right == id_of.end()) continue;
      merges.push_back({(*scores)[id], left->second, right->second});
    }
  }
  std::ranges::stable_sort(merges, std::ranges::greater{}, &Merge::score);
  Json out = Json::array();
  for (const Merge& merge : merges) {
    out.push_back(Json::array({std::string(tokens[merge.left]), std::string(tokens[merge.right])}));
  }
  return out;
}

Json literal_replace(std::string_view from, std::string_view to) {
  return {{"type", "Replace"},
          {"pattern", {{"String", std::string(from)}}},
          {"content", std::string(to)}};
}

// A leading BOS and a closing EOS where the file asks for them.
Json post_processor(const GgufFile& file, const std::vector<std::string_view>& tokens,
                    bool adds_bos) {
  Json single = Json::array();
  Json special = Json::object();
  const auto add = [&](std::string_view key) {
    const auto id = file.integer(key);
    if (!id) return;
    if (*id < 0 || *id >= std::ssize(tokens)) {
      file.fail(key, fmt::format("{} is not the id of a token", *id));
    }
    const std::string text(tokens[static_cast<std::size_t>(*id)]);
    single.push_back({{"SpecialToken", {{"id", text}, {"type_id", 0}}}});
    special[text] = {{"id", text}, {"ids", {*id}}, {"tokens", {text}}};
  };
  if (file.boolean("tokenizer.ggml.add_bos_token").value_or(adds_bos)) {
    add("tokenizer.ggml.bos_token_id");
  }
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  if (file.boolean("tokenizer.ggml.add_eos_token").value_or(false)) {
    add("tokenizer.ggml.eos_token_id");
  }
  if (single.size() == 1) return nullptr;
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", single},
          {"special_tokens", special}};
}

Json sentence_piece(const GgufFile& file, const std::vector<std::string_view>& tokens,
                    const std::vector<int>& kinds) {
  const bool adds_space = file.boolean("tokenizer.ggml.add_space_prefix").value_or(true);
  Json normalizers = Json::array();
  if (adds_space) {
    normalizers.push_back({{"type", "Prepend"}, {"prepend", std::string(kSpace)}});
  }
  normalizers.push_back(literal_replace(" ", kSpace));
  Json decoders = Json::array();
  decoders.push_back(literal_replace(kSpace, " "));
  decoders.push_back({{"type", "ByteFallback"}});
  decoders.push_back({{"type", "Fuse"}});
  if (adds_space) {
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  Json unknown = nullptr;
  if (const auto id = file.integer("tokenizer.ggml.unknown_token_id")) {
    if (*id < 0 || *id >= std::ssize(tokens)) {
      file.fail("tokenizer.ggml.unknown_token_id", fmt::format("{} is not the id of a token", *id));
    }
    unknown = std::string(tokens[static_cast<std::size_t>(*id)]);
  }
  return {{"normalizer", {{"type", "Sequence"}, {"normalizers", normalizers}}},
          {"pre_tokenizer", nullptr},
          {"post_processor", post_processor(file, tokens, true)},
          {"decoder", {{"type", "Sequence"}, {"decoders", decoders}}},
          {"model",
           {{"type", "BPE"},
            {"unk_token", unknown},
            {"fuse_unk", true},
            {"byte_fallback", true},
            {"vocab", vocabulary(file, tokens)},
            {"merges", merges_by_score(file, tokens, kinds)}}}};
}

Json byte_level(const GgufFile& file, const std::vector<std::string_view>& tokens) {
  const PreTokenizerRule& rule = find_pre_tokenizer(file);
  const auto merges = file.texts("tokenizer.ggml.merges");
  if (!merges) file.fail("tokenizer.ggml.merges", "missing; expected a list of strings");
  Json merge_list = Json::array();
  for (const std::string_view merge : *merges) {
    if (first_invalid_utf8(merge) != merge.size()) {
      file.fail("tokenizer.ggml.merges", "an entry is not UTF-8");
    }
    merge_list.push_back(std::string(merge));
  }
  const auto bytes = [](bool uses_regex) -> Json {
    return {{"type", "ByteLevel"},
            {"add_prefix_space", false},
            {"trim_offsets", true},
            {"use_regex", uses_regex}};
  };
  Json pre_tokenizer = bytes(true);
  if (!rule.words.empty()) {
    pre_tokenizer = {{"type", "Sequence"},
                     {"pretokenizers",
                      {{{"type", "Split"},
                        {"pattern", {{"Regex", std::string(rule.words)}}},
                        {"behavior", "Isolated"},
                        {"invert", false}},
                       bytes(false)}}};
  }
  return {{"normalizer", rule.normalizes ? Json{{"type", "NFC"}} : Json(nullptr)},
          {"pre_tokenizer", pre_tokenizer},
          {"post_processor", post_processor(file, tokens, rule.adds_bos)},
          {"decoder", bytes(true)},
          {"model",
           {{"type", "BPE"},
            {"ignore_merges", rule.ignores_merges},
            {"vocab", vocabulary(file, tokens)},
            {"merges", merge_list}}}};
}

}  // namespace

std::optional<Tokenizer> load_gguf_tokenizer(const GgufFile& file) {
  constexpr std::string_view kModelKey = "tokenizer.ggml.model";
  const auto model = file.text(kModelKey);
  if (!model) return std::nullopt;
  const auto tokens = file.texts(kTokensKey);
  if (!tokens || tokens->empty()) file.fail(kTokensKey, "missing; expected a list of strings");
  const std::vector<int> kinds = token_kinds(file, tokens->size());
  Json root;
  if (*model == "llama") {
    root = sentence_piece(file, *tokens, kinds);
  } else if (*model == "gpt2") {
    root = byte_level(file, *tokens);
  } else {
    file.fail(kModelKey,
              fmt::format("\"{}\" is not supported; supported: llama, gpt2", printable(*model)));
  }
  root["version"] = "1.0";
  root["truncation"] = nullptr;
  root["padding"] = nullptr;
  root["added_tokens"] = added_tokens(*tokens, kinds);
  return Tokenizer::parse(root.dump(), file.path().string());
}

}  // namespace moe::model
