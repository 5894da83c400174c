#pragma once

// The header of a safetensors file, read with every rule of the format, and one mapped file.
//
// Layout: 8 bytes little-endian N, N bytes of JSON, then the data to the end of the file. The JSON
// maps names to {"dtype", "shape", "data_offsets": [begin, end]}, offsets relative to the data.
// A reader must hold: N <= 100,000,000 and 8 + N <= file size, both before anything is allocated;
// valid UTF-8 and JSON; no name twice; the tensors, sorted by offset, cover the data exactly,
// without holes or overlap; every product of sizes is checked.

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/base/file_map.hpp"
#include "lib/base/name_map.hpp"
#include "lib/model/dtype.hpp"

namespace moe::model {

inline constexpr std::int64_t kMaxHeaderBytes = 100'000'000;
inline constexpr std::int64_t kMaxTensorsPerFile = 1'000'000;
inline constexpr std::size_t kMaxTensorNameBytes = 4096;
inline constexpr std::size_t kMaxRank = 8;
// A checkpoint in one file.
inline constexpr std::string_view kSingleFileName = "model.safetensors";

// The sizes of a tensor, outermost first; a fixed buffer, so a header of a million tensors is one
// allocation of shapes.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> sizes);

  // False when the rank would exceed kMaxRank.
  [[nodiscard]] bool push_back(std::int64_t size);
  [[nodiscard]] std::size_t rank() const { return rank_; }
  [[nodiscard]] std::int64_t operator[](std::size_t axis) const { return sizes_[axis]; }
  [[nodiscard]] std::span<const std::int64_t> sizes() const { return {sizes_.data(), rank_}; }
  // nullopt when the product overflows.
  [[nodiscard]] std::optional<std::int64_t> num_elements() const;
  [[nodiscard]] std::string to_string() const;  // "[8, 96, 64]"
  [[nodiscard]] bool operator==(const Shape& other) const;

 private:
  std::array<std::int64_t, kMaxRank> sizes_{};
  std::size_t rank_ = 0;
};

// Bytes of a tensor; nullopt on overflow or when the bits do not fill whole bytes.
[[nodiscard]] std::optional<std::int64_t> tensor_bytes(Dtype dtype, const Shape& shape);

struct TensorEntry {
  std::string name;
  Dtype dtype = Dtype::kF32;
  Shape shape;
  std::int64_t begin = 0;  // bytes from the start of the data
  std::int64_t end = 0;
};

struct SafetensorsHeader {
  SafetensorsHeader() = default;
  SafetensorsHeader(SafetensorsHeader&&) = default;  // a copy's index would point into the other
  SafetensorsHeader& operator=(SafetensorsHeader&&) = default;

  std::vector<TensorEntry> tensors;  // by offset
  NameMap index;                     // name -> position in tensors; keys point into them
  std::vector<std::pair<std::string, std::string>> metadata;
  std::int64_t data_begin = 0;  // bytes from the start of the file
};

// `file` is the whole file (only the header is read); `where` names it in messages. Throws
// Error(kInput): "DIR/model.safetensors: tensor "x": ...".
[[nodiscard]] SafetensorsHeader parse_safetensors(std::span<const std::byte> file,
                                                  const std::string& where);

// A tensor in mapped memory; the bytes may be unaligned.
struct TensorRef {
  std::string_view name;
  Dtype dtype = Dtype::kF32;
  Shape shape;
  std::span<const std::byte> bytes;
};

// One safetensors file (a golden file, a routing trace), mapped. The references stay valid as long
// as the object, or one moved from it, lives.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  [[nodiscard]] const std::filesystem::path& path() const { return map_.path(); }
  [[nodiscard]] std::int64_t size_bytes() const { return map_.size_bytes(); }
  [[nodiscard]] const std::vector<TensorEntry>& entries() const { return header_->tensors; }
  [[nodiscard]] std::optional<TensorRef> find(std::string_view name) const;
  // Throws Error(kInput) naming file and tensor when it is not there.
  [[nodiscard]] TensorRef at(std::string_view name) const;
  [[nodiscard]] TensorRef ref(const TensorEntry& entry) const;
  // Value of a key of __metadata__.
  [[nodiscard]] std::optional<std::string_view> metadata(std::string_view key) const;
  [[nodiscard]] const FileMap& map() const { return map_; }

 private:
  FileMap map_;
  std::unique_ptr<SafetensorsHeader> header_;
};

// Plain reads of whole tensors. to_f32: F32, F16, BF16, F64; to_i32: I32, U8, I64 and the like,
// each value checked to fit. Throws Error(kInput) on another dtype.
[[nodiscard]] std::vector<float> to_f32(const TensorRef& tensor);
[[nodiscard]] std::vector<std::int32_t> to_i32(const TensorRef& tensor);

}  // namespace moe::model
