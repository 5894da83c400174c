#pragma once

// A reader of the pickle streams that torch.save writes for plain data. It builds numbers, texts,
// lists, dictionaries and descriptions of tensors; it looks nothing up and calls nothing. Any other
// opcode or name is refused, which is the whole of its security.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/routing/array_view.hpp"

namespace moe::routing {

enum class PickleKind : std::uint8_t {
  kNone,
  kBool,
  kInteger,
  kReal,
  kText,
  kList,  // also tuples
  kDict,  // a list of keys and values in turn
  kTensor,
  kName,     // one of the few names that the reader knows; never in a finished document
  kStorage,  // no data
  kMark,     // no data
};

// 16 bytes; what is larger lies in a pool of the document, `bits` is its number there.
struct PickleValue {
  PickleKind kind = PickleKind::kNone;
  std::uint64_t bits = 0;
};

struct PickleTensor {
  std::string storage;  // name of the member that holds the numbers
  ElementType type = ElementType::kI64;
  std::int64_t offset = 0;  // in elements
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
};

class PickleDocument {
 public:
  PickleValue root;
  std::vector<std::string> texts;
  std::vector<std::vector<PickleValue>> lists;
  std::vector<PickleTensor> tensors;

  // Empty when the value is of another kind.
  [[nodiscard]] std::string_view text(PickleValue value) const;
  [[nodiscard]] std::span<const PickleValue> list(PickleValue value) const;
  [[nodiscard]] const PickleTensor* tensor(PickleValue value) const;  // nullptr
  // Value of a text key of a dictionary; nullptr when there is none.
  [[nodiscard]] const PickleValue* find(PickleValue dict, std::string_view key) const;
  [[nodiscard]] static bool as_integer(PickleValue value, std::int64_t& out);
};

// Throws Error(kInput) with `where` and the byte at fault.
[[nodiscard]] PickleDocument read_pickle(std::span<const std::byte> bytes,
                                         const std::string& where);

}  // namespace moe::routing
