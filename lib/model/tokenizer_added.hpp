#pragma once

// Added tokens: strings that become one token wherever they stand in a text, before BPE sees it.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/model/tokenizer_normalizer.hpp"
#include "lib/model/tokenizer_pretokenizer.hpp"

namespace moe::model::tokenizer_detail {

struct AddedToken {
  std::string content;
  // The content behind the normalizer, where `normalized` is set: what is looked for in normalised
  // text, and what decoding starts from.
  std::string normalized_content;
  std::int32_t id = -1;
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // and behind it
  bool normalized = false;   // matches the normalised text instead of the raw text
  bool special = false;
};

// Finds the leftmost, then longest of a set of strings.
class StringSetMatcher {
 public:
  StringSetMatcher() = default;
  // `values` are what find() returns; strings must not be empty. The later of two equal ones
  // counts.
  void add(std::string_view text, std::int32_t value);
  [[nodiscard]] bool empty() const { return nodes_.empty(); }

  struct Match {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::int32_t value = -1;  // -1: nothing found
  };
  [[nodiscard]] Match find(std::string_view text, std::size_t from, MatchScratch& scratch,
                           const std::string& where) const;

 private:
  struct Node {
    std::int32_t first_child = -1;
    std::int32_t next_sibling = -1;
    std::int32_t value = -1;
    char byte = 0;
  };
  [[nodiscard]] std::int32_t child(std::int32_t node, char byte) const;

  std::vector<Node> nodes_;             // nodes_[0] is the root
  std::vector<std::int32_t> children_;  // of the root, by byte
};

class AddedTokens {
 public:
  AddedTokens() = default;
  AddedTokens(std::vector<AddedToken> tokens, std::string where);

  [[nodiscard]] const std::vector<AddedToken>& tokens() const { return tokens_; }

  // Raw text -> normalised pieces and added tokens.
  [[nodiscard]] PieceList split(std::string_view text, const Normalizer* normalizer,
                                MatchScratch& scratch) const;

 private:
  struct Found {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::int32_t token = -1;
  };
  void find(std::string_view text, const StringSetMatcher& matcher, MatchScratch& scratch,
            std::vector<Found>& out) const;

  std::vector<AddedToken> tokens_;
  std::string where_;
  StringSetMatcher raw_;  // values are indices into tokens_
  StringSetMatcher normalized_;
};

}  // namespace moe::model::tokenizer_detail
