#include "lib/model/gguf_file.hpp"

#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/base/text.hpp"
#include "lib/model/tensor_files.hpp"

namespace moe::model {
namespace {

constexpr std::string_view kSplitNumber = "split.no";
constexpr std::string_view kSplitCount = "split.count";
constexpr std::string_view kSplitTensors = "split.tensors.count";
constexpr std::size_t kMaxTensorsOfParts = 1'000'000;

template <typename T>
T load(std::span<const std::byte> bytes, std::size_t idx = 0) {
  T value{};
  std::memcpy(&value, bytes.data() + idx * sizeof(T), sizeof(T));
  return value;
}

bool is_float(GgufValueType type) {
  return type == GgufValueType::kF32 || type == GgufValueType::kF64;
}

// Element `idx` of a value or array; nullopt for a type that is no number.
std::optional<double> number_at(GgufValueType type, std::span<const std::byte> bytes,
                                std::size_t idx) {
  switch (type) {
    case GgufValueType::kU8:
      return load<std::uint8_t>(bytes, idx);
    case GgufValueType::kI8:
      return load<std::int8_t>(bytes, idx);
    case GgufValueType::kU16:
      return load<std::uint16_t>(bytes, idx);
    case GgufValueType::kI16:
      return load<std::int16_t>(bytes, idx);
    case GgufValueType::kU32:
      return load<std::uint32_t>(bytes, idx);
    case GgufValueType::kI32:
      return load<std::int32_t>(bytes, idx);
    case GgufValueType::kF32:
      return static_cast<double>(load<float>(bytes, idx));
    case GgufValueType::kU64:
      return static_cast<double>(load<std::uint64_t>(bytes, idx));
    case GgufValueType::kI64:
      return static_cast<double>(load<std::int64_t>(bytes, idx));
    case GgufValueType::kF64:
      return load<double>(bytes, idx);
    case GgufValueType::kBool:
    case GgufValueType::kString:
    case GgufValueType::kArray:
      return std::nullopt;
  }
  return std::nullopt;
}

// nullopt for another type, and beyond 2^63.
std::optional<std::int64_t> integer_of(const GgufValue& value) {
  if (value.type == GgufValueType::kU64) {
    const auto number = load<std::uint64_t>(value.bytes);
    if (number > static_cast<std::uint64_t>(INT64_MAX)) return std::nullopt;
    return static_cast<std::int64_t>(number);
  }
  if (value.type == GgufValueType::kI64) return load<std::int64_t>(value.bytes);
  if (is_float(value.type)) return std::nullopt;
  const auto number = number_at(value.type, value.bytes, 0);
  if (!number) return std::nullopt;
  return static_cast<std::int64_t>(*number);
}

}  // namespace

std::optional<GgufPartName> GgufPartName::parse(std::string_view file_name) {
  constexpr std::string_view kExtension = ".gguf";
  constexpr std::string_view kOf = "-of-";
  constexpr std::size_t kDigits = 5;
  constexpr std::size_t kTail = 1 + kDigits + kOf.size() + kDigits;  // -00001-of-00003
  if (!file_name.ends_with(kExtension)) return std::nullopt;
  file_name.remove_suffix(kExtension.size());
  if (file_name.size() <= kTail) return std::nullopt;
  const std::string_view tail = file_name.substr(file_name.size() - kTail);
  const auto number = [](std::string_view digits) -> std::int64_t {
    std::int64_t value = 0;
    for (const char digit : digits) {
      if (digit < '0' || digit > '9') return 0;
      value = value * 10 + (digit - '0');
    }
    return value;
  };
  GgufPartName name;
  name.prefix = file_name.substr(0, file_name.size() - kTail);
  name.number = number(tail.substr(1, kDigits));
  name.count = number(tail.substr(kTail - kDigits));
  if (tail.front() != '-' || tail.substr(1 + kDigits, kOf.size()) != kOf || name.number < 1 ||
      name.number > name.count) {
    return std::nullopt;
  }
  return name;
}

std::string GgufPartName::of_part(std::int64_t part_number) const {
  return fmt::format("{}-{:05}-of-{:05}.gguf", prefix, part_number, count);
}

GgufFile::GgufFile(const std::filesystem::path& path) : path_(path) {
  Part first;
  first.map = FileMap(path);
  first.bytes = first.map.bytes();
  const std::int64_t count = read_first(std::move(first));
  const auto name = GgufPartName::parse(path.filename().string());
  const std::filesystem::path directory =
      path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  for (std::int64_t number = 2; number <= count; ++number) {
    const auto file = checkpoint_file(directory, name->of_part(number));
    if (!file) {
      fail(kSplitCount, fmt::format("part {} of {} is missing: {}", number, count,
                                    printable((directory / name->of_part(number)).string())));
    }
    Part part;
    part.map = FileMap(*file);
    part.bytes = part.map.bytes();
    read_next(std::move(part), file->string());
  }
  make_index();
}

GgufFile::GgufFile(std::span<const std::byte> bytes, std::filesystem::path name)
    : GgufFile(std::vector{bytes}, std::move(name)) {}

GgufFile::GgufFile(const std::vector<std::span<const std::byte>>& parts, std::filesystem::path name)
    : path_(std::move(name)) {
  MOE_CHECK(!parts.empty());
  const std::int64_t count = read_first({{}, parts.front(), 0});
  if (count != std::ssize(parts)) {
    fail(kSplitCount, fmt::format("{} files, expected {}", parts.size(), count));
  }
  for (std::size_t idx = 1; idx < parts.size(); ++idx) {
    read_next({{}, parts[idx], 0}, fmt::format("{} (part {})", path_.string(), idx + 1));
  }
  make_index();
}

// The number of parts that there should be.
std::int64_t GgufFile::read_first(Part part) {
  header_ = parse_gguf_header(part.bytes, path_.string());
  part.data_begin = header_.data_begin;
  parts_.push_back(std::move(part));
  const std::int64_t count = integer(kSplitCount).value_or(1);
  const std::int64_t number = integer(kSplitNumber).value_or(0);
  if (count == 1 && number == 0) return count;
  if (count < 1 || number < 0 || number >= count) {
    fail(kSplitNumber, fmt::format("part {} of {} (split.count)", number + 1, count));
  }
  const auto name = GgufPartName::parse(path_.filename().string());
  if (number != 0) {
    fail(kSplitNumber, fmt::format("this is part {} of {}; give the first part{}", number + 1,
                                   count, name ? ", " + printable(name->of_part(1)) : ""));
  }
  if (!name || name->number != 1 || name->count != count) {
    fail(kSplitCount, fmt::format("the first of {} parts, expected a file name that ends in "
                                  "-00001-of-{:05}.gguf to find the others by",
                                  count, count));
  }
  return count;
}

void GgufFile::read_next(Part part, const std::string& where) {
  const auto refuse = [&where](const std::string& what) {
    throw Error(ErrorCode::kInput, fmt::format("{}: {}", where, what));
  };
  GgufHeader header = parse_gguf_header(part.bytes, where);
  for (const auto& [key, expected] : {std::pair{kSplitNumber, std::ssize(parts_)},
                                      std::pair{kSplitCount, *integer(kSplitCount)}}) {
    const auto found = header.values.find(std::string(key));
    const auto value = found == header.values.end() ? std::nullopt : integer_of(found->second);
    if (value != expected) {
      refuse(fmt::format("{}: {}, expected {} in this part", key,
                         value ? fmt::format("{}", *value) : "no integer", expected));
    }
  }
  part.data_begin = header.data_begin;
  for (GgufTensor& tensor : header.tensors) {
    tensor.part = parts_.size();
    header_.tensors.push_back(std::move(tensor));
  }
  parts_.push_back(std::move(part));
  if (header_.tensors.size() > kMaxTensorsOfParts) {
    refuse(fmt::format("more than {} tensors together with the parts before", kMaxTensorsOfParts));
  }
}

void GgufFile::make_index() {
  index_.reserve(header_.tensors.size());
  for (std::size_t idx = 0; idx < header_.tensors.size(); ++idx) {
    const GgufTensor& tensor = header_.tensors[idx];
    const auto [at, is_new] = index_.emplace(tensor.name, idx);
    if (!is_new) {
      fail(fmt::format("tensor \"{}\"", printable(tensor.name)),
           fmt::format("is in part {} and in part {}", header_.tensors[at->second].part + 1,
                       tensor.part + 1));
    }
  }
  if (parts_.size() == 1) return;
  const auto expected = integer(kSplitTensors);
  if (expected && *expected != std::ssize(header_.tensors)) {
    fail(kSplitTensors, fmt::format("{} tensors, but the {} parts hold {}", *expected,
                                    parts_.size(), header_.tensors.size()));
  }
}

const FileMap& GgufFile::map(std::size_t part) const {
  return parts_[part].map;
}

std::int64_t GgufFile::data_begin(std::size_t part) const {
  return parts_[part].data_begin;
}

std::int64_t GgufFile::size_bytes() const {
  std::int64_t sum = 0;
  for (const Part& part : parts_) sum += std::ssize(part.bytes);
  return sum;
}

void GgufFile::fail(std::string_view key, const std::string& what) const {
  throw Error(ErrorCode::kInput, fmt::format("{}: {}: {}", path().string(), printable(key), what));
}

const GgufValue* GgufFile::value(std::string_view key) const {
  const auto found = header_.values.find(std::string(key));
  return found == header_.values.end() ? nullptr : &found->second;
}

std::optional<std::int64_t> GgufFile::integer(std::string_view key) const {
  const GgufValue* found = value(key);
  if (found == nullptr) return std::nullopt;
  if (found->type == GgufValueType::kU64 &&
      load<std::uint64_t>(found->bytes) > static_cast<std::uint64_t>(INT64_MAX)) {
    fail(key, fmt::format("{} is more than any size", load<std::uint64_t>(found->bytes)));
  }
  const auto number = integer_of(*found);
  if (!number) fail(key, "expected an integer");
  return number;
}

std::optional<double> GgufFile::number(std::string_view key) const {
  const GgufValue* found = value(key);
  if (found == nullptr) return std::nullopt;
  const auto number = number_at(found->type, found->bytes, 0);
  if (!number) fail(key, "expected a number");
  return number;
}

std::optional<bool> GgufFile::boolean(std::string_view key) const {
  const GgufValue* found = value(key);
  if (found == nullptr) return std::nullopt;
  if (found->type != GgufValueType::kBool) fail(key, "expected a truth value");
  return load<std::uint8_t>(found->bytes) != 0;
}

std::optional<std::string> GgufFile::text(std::string_view key) const {
  const GgufValue* found = value(key);
  if (found == nullptr) return std::nullopt;
  if (found->type != GgufValueType::kString) fail(key, "expected a string");
  return std::string(reinterpret_cast<const char*>(found->bytes.data()), found->bytes.size());
}

std::optional<std::vector<std::string_view>> GgufFile::texts(std::string_view key) const {
  const GgufValue* found = value(key);
  if (found == nullptr) return std::nullopt;
  if (found->type != GgufValueType::kArray || found->element_type != GgufValueType::kString) {
    fail(key, "expected a list of strings");
  }
  std::vector<std::string_view> out;
  out.reserve(static_cast<std::size_t>(found->count));
  std::span<const std::byte> rest = found->bytes;  // the header reader has checked the lengths
  for (std::uint64_t i = 0; i < found->count; ++i) {
    const auto length = static_cast<std::size_t>(load<std::uint64_t>(rest));
    rest = rest.subspan(sizeof(std::uint64_t));
    out.emplace_back(reinterpret_cast<const char*>(rest.data()), length);
    rest = rest.subspan(length);
  }
  return out;
}

std::optional<std::vector<double>> GgufFile::numbers(std::string_view key) const {
  const GgufValue* found = value(key);
  if (found == nullptr) return std::nullopt;
  std::vector<double> out;
  if (found->type == GgufValueType::kArray) {
    for (std::size_t i = 0; i < found->count; ++i) {
      const auto number = number_at(found->element_type, found->bytes, i);
      if (!number) fail(key, "expected a list of numbers");
      out.push_back(*number);
    }
    return out;
  }
  const auto number = number_at(found->type, found->bytes, 0);
  if (!number) fail(key, "expected a number or a list of numbers");
  out.push_back(*number);
  return out;
}

std::optional<std::vector<bool>> GgufFile::booleans(std::string_view key) const {
  const GgufValue* found = value(key);
  if (found == nullptr || found->type != GgufValueType::kArray) return std::nullopt;
  if (found->element_type != GgufValueType::kBool) fail(key, "expected a list of truth values");
  std::vector<bool> out;
  for (std::size_t i = 0; i < found->count; ++i) {
    out.push_back(load<std::uint8_t>(found->bytes, i) != 0);
  }
  return out;
}

const GgufTensor* GgufFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &header_.tensors[found->second];
}

std::span<const std::byte> GgufFile::bytes(const GgufTensor& tensor) const {
  const Part& part = parts_[tensor.part];
  return part.bytes.subspan(static_cast<std::size_t>(part.data_begin + tensor.offset),
                            static_cast<std::size_t>(tensor.size_bytes));
}

}  // namespace moe::model
