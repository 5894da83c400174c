#pragma once

// The header of a GGUF file (version 2 or 3, little-endian; docs/gguf.md of ggml-org/ggml):
// key-value pairs and the list of tensors, with every count, length and offset checked against the
// file before it is used. Holds no tensor data.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace moe::model {

enum class GgufValueType : std::uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};

// A value as the file holds it: `bytes` are its little-endian bytes (of a string: without the
// length; of an array: of all elements). Views into the parsed bytes.
struct GgufValue {
  GgufValueType type = GgufValueType::kU8;
  GgufValueType element_type = GgufValueType::kU8;  // of an array
  std::uint64_t count = 1;                          // of an array
  std::span<const std::byte> bytes;
};

struct GgufTensor {
  std::string name;
  std::uint32_t type_id = 0;
  std::vector<std::int64_t> dims;  // ne[0], the contiguous axis, first
  std::int64_t offset = 0;         // from the start of the data
  std::int64_t size_bytes = 0;
  std::size_t part = 0;  // of a model in several files: which one, from 0
};

struct GgufHeader {
  std::uint32_t version = 0;
  std::int64_t alignment = 32;
  std::string architecture;  // general.architecture; empty when the file has none
  std::unordered_map<std::string, GgufValue> values;
  std::vector<GgufTensor> tensors;
  std::int64_t data_begin = 0;  // offset of the data in the file
};

// `where` names the file in messages. Throws Error(kInput) with the key or tensor at fault.
[[nodiscard]] GgufHeader parse_gguf_header(std::span<const std::byte> file, std::string_view where);

}  // namespace moe::model
