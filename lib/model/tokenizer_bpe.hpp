#pragma once

// Byte-pair encoding: the "model" of tokenizer.json.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lib/model/tokenizer_json.hpp"

namespace moe::model::tokenizer_detail {

// (left, right) -> (rank, merged id), by open addressing.
class MergeTable {
 public:
  struct Merge {
    std::int32_t rank = -1;  // -1: the two do not merge
    std::int32_t merged = -1;
  };

  explicit MergeTable(std::size_t count);
  // A pair that is there already takes the new value.
  void set(std::int32_t left, std::int32_t right, Merge merge);
  [[nodiscard]] Merge find(std::int32_t left, std::int32_t right) const;

 private:
  struct Slot {
    std::uint64_t key = kEmpty;
    Merge merge;
  };
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  [[nodiscard]] std::size_t slot_of(std::uint64_t key) const;

  std::vector<Slot> slots_;
  std::size_t mask_ = 0;
};

// Merges neighbours in place until none merges: the pair of lowest rank first, the leftmost among
// equals. O(n log n).
void merge_symbols(std::vector<std::int32_t>& symbols, const MergeTable& merges);

class BpeModel {
 public:
  // Refuses another type of model by name.
  static void check_type(const JsonFields& fields);
  // `byte_level`: pieces come as raw bytes, and the vocabulary is written in the byte alphabet.
  [[nodiscard]] static BpeModel parse(const JsonFields& fields, bool byte_level);

  // Remembers pieces within one text. Not shared between threads.
  struct Scratch {
    std::vector<std::int32_t> symbols;
    std::vector<std::int32_t> segment;
    std::vector<std::int32_t> pool;
    struct Span {
      std::uint32_t begin = 0;
      std::uint32_t count = 0;
    };
    std::unordered_map<std::string_view, Span> known;
  };
  // Appends the ids of one piece. `piece` must outlive `scratch`.
  void encode(std::string_view piece, Scratch& scratch, std::vector<std::int32_t>& out) const;

  [[nodiscard]] std::optional<std::int32_t> find(std::string_view token) const;
  [[nodiscard]] const std::vector<std::string>& tokens() const { return tokens_; }
  [[nodiscard]] const std::vector<std::int32_t>& ids() const { return ids_; }
  // What decoding or encoding would lose, one line each.
  [[nodiscard]] std::vector<std::string> oddities() const;

 private:
  BpeModel() : merges_(0), joints_(0) {}
  void parse_vocabulary(const JsonFields& fields);
  void parse_merges(const JsonFields& fields);
  void prepare_joints(const std::vector<std::pair<std::int32_t, std::int32_t>>& pairs);
  void prepare_bytes(bool byte_level);
  void merge_long(std::vector<std::int32_t>& symbols, std::vector<std::int32_t>& segment) const;
  void to_symbols(std::string_view piece, std::vector<std::int32_t>& symbols) const;
  bool append_byte_tokens(std::string_view character, std::vector<std::int32_t>& symbols) const;
  [[nodiscard]] std::int32_t unknown_id(std::string_view character) const;

  std::string where_;
  std::vector<std::string> tokens_;                           // in the order of the file
  std::vector<std::int32_t> ids_;                             // of tokens_[i]
  std::unordered_map<std::string_view, std::int32_t> id_of_;  // views of tokens_
  MergeTable merges_;
  // Pairs of characters that some merge joins. Where two neighbours are not among them, no merge
  // ever crosses, and both sides are words of their own.
  MergeTable joints_;
  bool has_joints_ = false;
  std::optional<std::string> unknown_token_;
  bool fuse_unknown_ = false;
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;
  bool raw_bytes_ = false;        // pieces are bytes and every byte has a token
  bool translate_bytes_ = false;  // pieces are bytes, but are translated to the alphabet first
  std::array<std::int32_t, 256> id_of_byte_{};      // of a byte-level character
  std::array<std::int32_t, 256> id_of_fallback_{};  // of <0x00> to <0xFF>; -1: not there
  std::array<std::int32_t, 128> id_of_ascii_{};     // of a one-character token; -1: not there
  std::vector<std::string> raw_tokens_;             // tokens_ as bytes, for ignore_merges
  std::unordered_map<std::string_view, std::int32_t> id_of_raw_;
};

}  // namespace moe::model::tokenizer_detail
