#include "lib/model/gguf_header.hpp"

#include <bit>
#include <cstring>
#include <optional>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/base/int_math.hpp"
#include "lib/base/text.hpp"
#include "lib/model/gguf_types.hpp"

namespace moe::model {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr std::uint64_t kMaxTensors = 1'000'000;
constexpr std::uint64_t kMaxValues = 1'000'000;
constexpr std::uint64_t kMaxStringBytes = std::uint64_t{1} << 30;
constexpr std::uint64_t kMaxArrayElements = std::uint64_t{1} << 30;
constexpr std::uint32_t kMaxDims = 4;
constexpr std::size_t kMaxGgufNameBytes = 63;
constexpr std::int64_t kMaxAlignment = std::int64_t{1} << 20;
constexpr const char* kAlignmentKey = "general.alignment";
constexpr const char* kArchitectureKey = "general.architecture";

// Bytes of a value of fixed size; 0 for strings and arrays.
std::uint64_t fixed_size(GgufValueType type) {
  switch (type) {
    case GgufValueType::kU8:
    case GgufValueType::kI8:
    case GgufValueType::kBool:
      return 1;
    case GgufValueType::kU16:
    case GgufValueType::kI16:
      return 2;
    case GgufValueType::kU32:
    case GgufValueType::kI32:
    case GgufValueType::kF32:
      return 4;
    case GgufValueType::kU64:
    case GgufValueType::kI64:
    case GgufValueType::kF64:
      return 8;
    case GgufValueType::kString:
    case GgufValueType::kArray:
      return 0;
  }
  return 0;
}

// Reads forward; every step checks what is left of the file first.
class Cursor {
 public:
  Cursor(std::span<const std::byte> file, std::string_view where) : file_(file), where_(where) {}

  [[nodiscard]] std::uint64_t left() const { return file_.size() - at_; }
  [[nodiscard]] std::size_t at() const { return at_; }

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorCode::kInput, fmt::format("{}: {}", where_, what));
  }

  std::span<const std::byte> take(std::uint64_t count, std::string_view what) {
    if (count > left()) {
      fail(fmt::format("{} needs {} bytes at offset {}, where the file has {} left", what, count,
                       at_, left()));
    }
    const auto taken = file_.subspan(at_, static_cast<std::size_t>(count));
    at_ += static_cast<std::size_t>(count);
    return taken;
  }

  template <typename Number>
  Number number(std::string_view what) {
    Number value{};
    std::memcpy(&value, take(sizeof(value), what).data(), sizeof(value));
    return value;
  }

  std::span<const std::byte> string(std::string_view what) {
    const auto length = number<std::uint64_t>(what);
    if (length > kMaxStringBytes) {
      fail(fmt::format("{} is said to be {} bytes long, more than the limit of {}", what, length,
                       kMaxStringBytes));
    }
    return take(length, what);
  }

 private:
  std::span<const std::byte> file_;
  std::string_view where_;
  std::size_t at_ = 0;
};

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

GgufValueType read_type(Cursor& cursor, const std::string& key) {
  const auto type = cursor.number<std::uint32_t>("a value type");
  if (type > static_cast<std::uint32_t>(GgufValueType::kF64)) {
    cursor.fail(fmt::format("key \"{}\": unknown value type {}", key, type));
  }
  return static_cast<GgufValueType>(type);
}

GgufValue read_array(Cursor& cursor, const std::string& key) {
  GgufValue value;
  value.type = GgufValueType::kArray;
  value.element_type = read_type(cursor, key);
  if (value.element_type == GgufValueType::kArray) {
    cursor.fail(fmt::format("key \"{}\": an array of arrays is not allowed", key));
  }
  value.count = cursor.number<std::uint64_t>("the length of an array");
  // A string takes at least the eight bytes of its length.
  const std::uint64_t least =
      value.element_type == GgufValueType::kString ? 8 : fixed_size(value.element_type);
  if (value.count > kMaxArrayElements || value.count > cursor.left() / least) {
    cursor.fail(
        fmt::format("key \"{}\": an array of {} elements does not fit into the {} bytes "
                    "that are left",
                    key, value.count, cursor.left()));
  }
  if (value.element_type != GgufValueType::kString) {
    value.bytes = cursor.take(value.count * least, key);
    return value;
  }
  Cursor ahead = cursor;
  for (std::uint64_t i = 0; i < value.count; ++i) {
    static_cast<void>(ahead.string(fmt::format("element {} of key \"{}\"", i, key)));
  }
  value.bytes = cursor.take(ahead.at() - cursor.at(), key);
  return value;
}

GgufValue read_value(Cursor& cursor, const std::string& key) {
  const GgufValueType type = read_type(cursor, key);
  if (type == GgufValueType::kArray) return read_array(cursor, key);
  GgufValue value;
  value.type = type;
  value.bytes = type == GgufValueType::kString ? cursor.string(fmt::format("key \"{}\"", key))
                                               : cursor.take(fixed_size(type), key);
  return value;
}

void read_values(Cursor& cursor, std::uint64_t count, GgufHeader& header) {
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto bytes = cursor.string(fmt::format("the name of key {}", i));
    const std::string key = printable(as_text(bytes));
    if (key.empty()) cursor.fail(fmt::format("key {} has no name", i));
    GgufValue value = read_value(cursor, key);
    if (!header.values.emplace(std::string(as_text(bytes)), value).second) {
      cursor.fail(fmt::format("key \"{}\" is there twice", key));
    }
  }
}

void read_general_keys(const Cursor& cursor, GgufHeader& header) {
  if (const auto found = header.values.find(kAlignmentKey); found != header.values.end()) {
    std::uint32_t alignment = 0;
    if (found->second.type != GgufValueType::kU32) {
      cursor.fail(fmt::format("{}: expected an unsigned 32-bit number", kAlignmentKey));
    }
    std::memcpy(&alignment, found->second.bytes.data(), sizeof(alignment));
    if (!std::has_single_bit(alignment) || alignment > kMaxAlignment) {
      cursor.fail(fmt::format("{}: expected a power of two up to {}, found {}", kAlignmentKey,
                              kMaxAlignment, alignment));
    }
    header.alignment = alignment;
  }
  if (const auto found = header.values.find(kArchitectureKey); found != header.values.end()) {
    if (found->second.type != GgufValueType::kString) {
      cursor.fail(fmt::format("{}: expected a string", kArchitectureKey));
    }
    header.architecture = printable(as_text(found->second.bytes));
  }
}

// Bytes of the tensor's data; checks the shape against the block type.
std::int64_t tensor_bytes(const Cursor& cursor, const std::string& label,
                          const GgufTensor& tensor) {
  const auto type = find_gguf_block_type(tensor.type_id);
  if (!type) cursor.fail(fmt::format("{}: unknown tensor type {}", label, tensor.type_id));
  if (tensor.dims.front() % type->block_values != 0) {
    cursor.fail(fmt::format("{}: rows of {} values are not whole {} blocks of {}", label,
                            tensor.dims.front(), type->name, type->block_values));
  }
  std::optional<std::int64_t> bytes = tensor.dims.front() / type->block_values;
  for (std::size_t axis = 1; axis < tensor.dims.size() && bytes; ++axis) {
    bytes = checked_mul(*bytes, tensor.dims[axis]);
  }
  if (bytes) bytes = checked_mul(*bytes, type->block_bytes);
  if (!bytes) cursor.fail(fmt::format("{}: the product of its dimensions overflows", label));
  return *bytes;
}

GgufTensor read_tensor(Cursor& cursor, std::uint64_t index) {
  GgufTensor tensor;
  tensor.name = as_text(cursor.string(fmt::format("the name of tensor {}", index)));
  const std::string label = fmt::format("tensor \"{}\"", printable(tensor.name));
  if (tensor.name.empty() || tensor.name.size() > kMaxGgufNameBytes) {
    cursor.fail(fmt::format("{}: expected a name of 1 to {} bytes", label, kMaxGgufNameBytes));
  }
  const auto num_dims = cursor.number<std::uint32_t>(label);
  if (num_dims < 1 || num_dims > kMaxDims) {
    cursor.fail(
        fmt::format("{}: expected 1 to {} dimensions, found {}", label, kMaxDims, num_dims));
  }
  for (std::uint32_t axis = 0; axis < num_dims; ++axis) {
    const auto size = cursor.number<std::uint64_t>(label);
    if (size > static_cast<std::uint64_t>(INT64_MAX)) {
      cursor.fail(fmt::format("{}: dimension {} overflows", label, size));
    }
    tensor.dims.push_back(static_cast<std::int64_t>(size));
  }
  tensor.type_id = cursor.number<std::uint32_t>(label);
  const auto offset = cursor.number<std::uint64_t>(label);
  tensor.size_bytes = tensor_bytes(cursor, label, tensor);
  if (offset > static_cast<std::uint64_t>(INT64_MAX)) {
    cursor.fail(fmt::format("{}: its data would begin at {}", label, offset));
  }
  tensor.offset = static_cast<std::int64_t>(offset);
  return tensor;
}

// Data lie one after the other in the order of the list, padded to the alignment: no holes, no
// overlaps.
void check_offsets(const Cursor& cursor, const GgufHeader& header, std::int64_t data_bytes) {
  std::int64_t expected = 0;
  for (const GgufTensor& tensor : header.tensors) {
    const std::string label = fmt::format("tensor \"{}\"", printable(tensor.name));
    if (tensor.offset != expected) {
      cursor.fail(
          fmt::format("{}: its data begin at {}, expected {}", label, tensor.offset, expected));
    }
    if (tensor.size_bytes > data_bytes - tensor.offset) {
      cursor.fail(
          fmt::format("{}: {} bytes at {} do not fit into the {} bytes of data (is the "
                      "file complete?)",
                      label, tensor.size_bytes, tensor.offset, data_bytes));
    }
    expected = align_up(tensor.offset + tensor.size_bytes, header.alignment);
  }
}

void check_version(const Cursor& cursor, std::uint32_t version) {
  if (version == 2 || version == 3) return;
  if ((version & 0xffffU) == 0) {
    cursor.fail("the version field is byte-swapped: a big-endian file, which is not read");
  }
  cursor.fail(fmt::format("GGUF version {} is not supported; supported: 2, 3", version));
}

}  // namespace

GgufHeader parse_gguf_header(std::span<const std::byte> file, std::string_view where) {
  Cursor cursor(file, where);
  if (as_text(cursor.take(kMagic.size(), "the magic")) != kMagic) {
    cursor.fail("expected a GGUF file, which begins with the letters GGUF");
  }
  GgufHeader header;
  header.version = cursor.number<std::uint32_t>("the version");
  check_version(cursor, header.version);
  const auto num_tensors = cursor.number<std::uint64_t>("the number of tensors");
  const auto num_values = cursor.number<std::uint64_t>("the number of keys");
  if (num_tensors > kMaxTensors || num_values > kMaxValues) {
    cursor.fail(fmt::format("{} tensors and {} keys are more than the limits of {} and {}",
                            num_tensors, num_values, kMaxTensors, kMaxValues));
  }
  read_values(cursor, num_values, header);
  read_general_keys(cursor, header);
  std::unordered_set<std::string> names;
  for (std::uint64_t index = 0; index < num_tensors; ++index) {
    header.tensors.push_back(read_tensor(cursor, index));
    const std::string& name = header.tensors.back().name;
    if (!names.insert(name).second) {
      cursor.fail(fmt::format("tensor \"{}\" is there twice", printable(name)));
    }
  }
  header.data_begin = align_up(static_cast<std::int64_t>(cursor.at()), header.alignment);
  const auto size = static_cast<std::int64_t>(file.size());
  check_offsets(cursor, header, size > header.data_begin ? size - header.data_begin : 0);
  return header;
}

}  // namespace moe::model
