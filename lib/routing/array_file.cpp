#include "lib/routing/array_file.hpp"

#include <charconv>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/base/text.hpp"
#include "lib/json/read.hpp"
#include "lib/routing/zip_file.hpp"

namespace moe::routing {
namespace {

constexpr std::size_t kMaxRank = 8;
constexpr std::int64_t kMaxSafetensorsHeader = 100'000'000;
constexpr std::string_view kNpyMagic = "\x93NUMPY";

// The header of a .npy file is a Python dictionary of three entries; this reads no other Python.
class NpyHeader {
 public:
  NpyHeader(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  void parse() {
    expect('{');
    while (!accept('}')) {
      const std::string key = quoted();
      expect(':');
      if (key == "descr") {
        descr = quoted();
      } else if (key == "fortran_order") {
        is_fortran = boolean();
      } else if (key == "shape") {
        read_shape();
      } else {
        refuse();
      }
      if (!accept(',') && peek() != '}') refuse();
    }
    if (descr.empty() || !has_shape) refuse();
  }

  std::string descr;
  bool is_fortran = false;
  bool has_shape = false;
  std::vector<std::int64_t> shape;

 private:
  [[noreturn]] void refuse() const {
    fail_input(where_,
               "expected a .npy header {'descr': ..., 'fortran_order': ..., 'shape': (...)}, "
               "found " +
                   printable(text_));
  }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  char peek() {
    skip_space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) refuse();
  }
  std::string quoted() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') refuse();
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) refuse();
    std::string value(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return value;
  }
  bool boolean() {
    for (const std::string_view word : {std::string_view("True"), std::string_view("False")}) {
      skip_space();
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      return word == "True";
    }
    refuse();
  }
  void read_shape() {
    has_shape = true;
    expect('(');
    while (!accept(')')) {
      skip_space();
      std::int64_t size = 0;
      const auto [end, error] =
          std::from_chars(text_.data() + at_, text_.data() + text_.size(), size);
      if (error != std::errc() || size < 0 || shape.size() == kMaxRank) refuse();
      at_ = static_cast<std::size_t>(end - text_.data());
      shape.push_back(size);
      if (!accept(',') && peek() != ')') refuse();
    }
  }

  std::string_view text_;
  const std::string& where_;
  std::size_t at_ = 0;
};

void check_reach(const ArrayView& view, const std::string& where) {
  const auto bytes = reached_bytes(view.type, view.shape, view.strides);
  if (!bytes.has_value() || *bytes > static_cast<std::int64_t>(view.bytes.size())) {
    fail_input(where, fmt::format("expected {} {} numbers, found {} bytes; is the file whole?",
                                  view.shape_text(), element_name(view.type), view.bytes.size()));
  }
}

std::int64_t whole(const json::Json& value, const std::string& where) {
  if (!value.is_number_integer() || value.get<std::int64_t>() < 0) {
    fail_input(where, "expected whole numbers of 0 or more in shape and data_offsets");
  }
  return value.get<std::int64_t>();
}

ArrayView safetensors_entry(const std::string& name, const json::Json& entry,
                            std::span<const std::byte> data, const std::string& where) {
  const std::string place = fmt::format("{}: tensor {}", where, printable(name));
  if (!entry.is_object() || !entry.contains("dtype") || !entry["dtype"].is_string() ||
      !entry.contains("shape") || !entry["shape"].is_array() || !entry.contains("data_offsets") ||
      !entry["data_offsets"].is_array() || entry["data_offsets"].size() != 2) {
    fail_input(place, "expected dtype, shape and data_offsets");
  }
  const auto type = element_of_safetensors(entry["dtype"].get<std::string>());
  if (!type.has_value()) fail_input(place, "its dtype holds no plain numbers");
  ArrayView view;
  view.name = name;
  view.type = *type;
  if (entry["shape"].size() > kMaxRank) fail_input(place, "too many dimensions");
  for (const json::Json& size : entry["shape"]) view.shape.push_back(whole(size, place));
  // Sizes first: strides of an unchecked shape could overflow.
  std::int64_t elements = 1;
  for (const std::int64_t size : view.shape) {
    if (size > 0 && elements > (std::int64_t{1} << 48) / size)
      fail_input(place, "its shape overflows");
    elements *= size;
  }
  view.strides = dense_strides(view.shape);
  const std::int64_t begin = whole(entry["data_offsets"][0], place);
  const std::int64_t end = whole(entry["data_offsets"][1], place);
  if (begin > end || end > static_cast<std::int64_t>(data.size()) ||
      end - begin != elements * element_bytes(view.type)) {
    fail_input(place, fmt::format("expected {} bytes inside the file, found [{}, {}) of {}",
                                  elements * element_bytes(view.type), begin, end, data.size()));
  }
  view.bytes = data.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
  return view;
}

}  // namespace

const ArrayView* ArrayFile::find(const std::string& name) const {
  for (const ArrayView& array : arrays) {
    if (array.name == name) return &array;
  }
  return nullptr;
}

std::string ArrayFile::metadata_text(const std::string& key) const {
  for (const auto& [name, value] : metadata) {
    if (name == key) return value;
  }
  return {};
}

ArrayView parse_npy(std::span<const std::byte> bytes, const std::string& where) {
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  const std::string_view all(text, bytes.size());
  if (!all.starts_with(kNpyMagic) || all.size() < 12) fail_input(where, "expected a .npy file");
  const auto version = static_cast<unsigned char>(all[6]);
  std::size_t header_bytes = 0;
  std::size_t begin = 0;
  if (version == 1) {
    std::uint16_t length = 0;
    std::memcpy(&length, text + 8, sizeof(length));
    header_bytes = length;
    begin = 10;
  } else if (version == 2 || version == 3) {
    std::uint32_t length = 0;
    std::memcpy(&length, text + 8, sizeof(length));
    header_bytes = length;
    begin = 12;
  } else {
    fail_input(where, fmt::format(".npy version {}, known are 1 to 3", version));
  }
  if (header_bytes > all.size() - begin) fail_input(where, "the .npy header is cut off");
  NpyHeader header(all.substr(begin, header_bytes), where);
  header.parse();
  const auto type = element_of_numpy(header.descr);
  if (!type.has_value()) {
    fail_input(where,
               fmt::format("numbers of type {} are not read (little-endian bool, integers and "
                           "floats are)",
                           printable(header.descr)));
  }
  ArrayView view;
  view.type = *type;
  view.shape = header.shape;
  std::int64_t elements = 1;
  for (const std::int64_t size : view.shape) {
    if (size > 0 && elements > (std::int64_t{1} << 48) / size)
      fail_input(where, "the shape overflows");
    elements *= size;
  }
  if (header.is_fortran) {
    view.strides.assign(view.shape.size(), 1);
    for (std::size_t axis = 1; axis < view.shape.size(); ++axis) {
      view.strides[axis] = view.strides[axis - 1] * std::max<std::int64_t>(view.shape[axis - 1], 1);
    }
  } else {
    view.strides = dense_strides(view.shape);
  }
  view.bytes = bytes.subspan(begin + header_bytes);
  check_reach(view, where);
  return view;
}

ArrayFile open_npy(std::shared_ptr<const FileMap> map) {
  ArrayFile file;
  file.arrays.push_back(parse_npy(map->bytes(), map->path().string()));
  file.map = std::move(map);
  return file;
}

ArrayFile open_npz(std::shared_ptr<const FileMap> map) {
  ArrayFile file;
  const std::string where = map->path().string();
  for (const ZipMember& member : read_zip(map->bytes(), where)) {
    if (!member.name.ends_with(".npy")) continue;
    ArrayView view = parse_npy(member.bytes, where + ": " + printable(member.name));
    view.name = member.name.substr(0, member.name.size() - 4);
    file.arrays.push_back(std::move(view));
  }
  if (file.arrays.empty()) fail_input(where, "a zip archive without .npy members");
  file.map = std::move(map);
  return file;
}

ArrayFile open_safetensors(std::shared_ptr<const FileMap> map) {
  ArrayFile file;
  const std::string where = map->path().string();
  const std::span<const std::byte> bytes = map->bytes();
  std::uint64_t header_bytes = 0;
  if (bytes.size() < 8) fail_input(where, "expected a safetensors file, found fewer than 8 bytes");
  std::memcpy(&header_bytes, bytes.data(), 8);
  if (header_bytes > static_cast<std::uint64_t>(kMaxSafetensorsHeader) ||
      header_bytes > bytes.size() - 8) {
    fail_input(where,
               fmt::format("a safetensors header of {} bytes does not fit the file", header_bytes));
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data() + 8), header_bytes);
  json::ReadLimits limits;
  limits.max_bytes = kMaxSafetensorsHeader;
  const json::Json header = json::parse(text, where + ": header", limits);
  if (!header.is_object()) fail_input(where, "expected a JSON object as header");
  const std::span<const std::byte> data = bytes.subspan(8 + header_bytes);
  for (const auto& [name, entry] : header.items()) {
    if (name != "__metadata__") {
      file.arrays.push_back(safetensors_entry(name, entry, data, where));
      continue;
    }
    if (!entry.is_object()) fail_input(where, "expected an object __metadata__");
    for (const auto& [key, value] : entry.items()) {
      if (!value.is_string()) fail_input(where, "expected texts in __metadata__");
      file.metadata.emplace_back(key, value.get<std::string>());
    }
  }
  file.map = std::move(map);
  return file;
}

}  // namespace moe::routing
