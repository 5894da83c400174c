#pragma once

// The "pre_tokenizer" of tokenizer.json: cuts text into the pieces that BPE sees one by one.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lib/model/tokenizer_json.hpp"
#include "lib/model/tokenizer_pattern.hpp"

namespace moe::model::tokenizer_detail {

// A piece of PieceList::text, or an added token that was found in its place.
struct Piece {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::int32_t token = -1;      // >= 0: this token, whatever the text says
  std::size_t start_bytes = 0;  // see NormalizedText
};

struct PieceList {
  std::string text;
  std::vector<Piece> pieces;  // in order; none empty
  std::size_t max_bytes = 0;  // see NormalizedText
  std::string where;          // names the file when the text grows beyond

  [[nodiscard]] std::string_view view(const Piece& piece) const {
    return std::string_view(text).substr(piece.begin, piece.end - piece.begin);
  }
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(PieceList& list, MatchScratch& scratch) const = 0;
};

// The steps in order. A ByteLevel step at the very end leaves its change of alphabet to BPE, which
// can work on the bytes themselves: then `bytes_at_end` is set.
struct PreTokenizerChain {
  std::vector<std::unique_ptr<const PreTokenizer>> steps;
  bool bytes_at_end = false;
};

[[nodiscard]] PreTokenizerChain parse_pre_tokenizer(const json::Json* node,
                                                    const std::string& where);

}  // namespace moe::model::tokenizer_detail
