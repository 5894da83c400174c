#pragma once

// Everything that a tokenizer.json says, in the form in which it is used.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "lib/model/tokenizer_added.hpp"
#include "lib/model/tokenizer_bpe.hpp"
#include "lib/model/tokenizer_decoder.hpp"
#include "lib/model/tokenizer_normalizer.hpp"
#include "lib/model/tokenizer_pretokenizer.hpp"

namespace moe::model::tokenizer_detail {

// A part of the post-processor's template: the text's own ids, or fixed ones.
struct TemplatePart {
  bool is_text = false;
  std::vector<std::int32_t> ids;
};

struct Token {
  std::string text;          // as the file writes it
  std::string decoded_from;  // what the decoder starts with; differs for normalised added tokens
  bool special = false;      // an added token marked special
  bool skipped = false;      // left out when decoding without special tokens
};

struct TokenizerData {
  explicit TokenizerData(BpeModel bpe_model) : bpe(std::move(bpe_model)) {}

  std::string where;
  std::unique_ptr<const Normalizer> normalizer;  // null: none
  PreTokenizerChain pre_tokenizer;
  BpeModel bpe;
  AddedTokens added;
  std::vector<TemplatePart> post_processor;  // empty: the text's ids as they are
  DecoderChain decoder;

  std::vector<Token> tokens;
  std::vector<std::int32_t> index_of_id;  // into tokens; -1: no token has this id
  std::unordered_map<std::string, std::int32_t> added_id_of;
  std::vector<std::string> warnings;

  [[nodiscard]] const Token* find(std::int32_t id) const;
};

// Throws Error(kInput). `where` names the file.
[[nodiscard]] std::shared_ptr<const TokenizerData> parse_tokenizer(const json::Json& root,
                                                                   const std::string& where);

}  // namespace moe::model::tokenizer_detail
