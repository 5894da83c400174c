// The JSON header of a safetensors file, read event by event: a header with a million entries never
// becomes a tree in memory.

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lib/base/error.hpp"
#include "lib/base/int_math.hpp"
#include "lib/base/name_map.hpp"
#include "lib/base/text.hpp"
#include "lib/json/events.hpp"
#include "lib/model/safetensors.hpp"

namespace moe::model {
namespace {

constexpr std::int64_t kLengthBytes = 8;

// Receives the events of the header. States by depth: 0 before the object, 1 at its names, 2 inside
// one tensor or __metadata__, 3 inside a shape or a pair of offsets.
class HeaderSink : public json::EventSink {
 public:
  HeaderSink(const std::string& where, SafetensorsHeader& header)
      : where_(where), header_(header) {}

  // After the last event.
  void finish() const {
    if (!done_) fail_input(where_, "the header is cut");
  }

 private:
  enum class Field { kNone, kDtype, kShape, kOffsets };

  [[noreturn]] void unexpected(std::string_view found) const {
    if (in_metadata_) {
      fail_input(where_, fmt::format("__metadata__: \"{}\": expected a string, found {}",
                                     printable(member_), found));
    }
    if (depth_ >= 2) {
      fail_input(where_,
                 fmt::format("tensor \"{}\": {}: did not expect {}", printable(tensor_.name),
                             member_.empty() ? "entry" : printable(member_), found));
    }
    fail_input(
        where_,
        fmt::format("the header: did not expect {}; expected a JSON object of tensors", found));
  }

  void other(std::string_view what) override { unexpected(what); }

  [[noreturn]] void fail_tensor(const std::string& what) const {
    fail_input(where_, fmt::format("tensor \"{}\": {}", printable(tensor_.name), what));
  }

  void unsigned_number(std::uint64_t value) override {
    if (depth_ != 3) unexpected(fmt::format("the number {}", value));
    if (value > static_cast<std::uint64_t>(INT64_MAX)) {
      fail_tensor(fmt::format("{}: {} does not fit 63 bits", member_, value));
    }
    const auto number = static_cast<std::int64_t>(value);
    if (field_ == Field::kShape) {
      if (!tensor_.shape.push_back(number)) {
        fail_tensor(fmt::format("more than {} dimensions", kMaxRank));
      }
    } else {
      if (num_offsets_ == 2) fail_tensor("data_offsets: expected two numbers, found more");
      (num_offsets_ == 0 ? tensor_.begin : tensor_.end) = number;
      ++num_offsets_;
    }
  }

  void string(std::string_view value) override {
    if (in_metadata_) {
      header_.metadata.emplace_back(member_, value);
      return;
    }
    if (depth_ != 2 || field_ != Field::kDtype) {
      unexpected(fmt::format("the string \"{}\"", printable(value)));
    }
    const auto dtype = parse_dtype(value);
    if (!dtype) fail_tensor(fmt::format("unknown dtype \"{}\"", printable(value)));
    tensor_.dtype = *dtype;
  }

  void begin_object() override {
    if (depth_ == 2 || depth_ == 3) unexpected("an object");
    if (depth_ == 1) {
      in_metadata_ = member_ == "__metadata__";
      if (!in_metadata_) {
        if (std::ssize(header_.tensors) == kMaxTensorsPerFile) {
          fail_input(where_, fmt::format("more than {} tensors", kMaxTensorsPerFile));
        }
        tensor_ = TensorEntry{};
        tensor_.name = member_;
        member_.clear();
        seen_dtype_ = seen_shape_ = seen_offsets_ = false;
      } else {
        metadata_keys_.clear();
      }
    }
    ++depth_;
  }

  void end_object() override {
    --depth_;
    if (depth_ == 0) {
      done_ = true;
    } else if (in_metadata_) {
      in_metadata_ = false;
    } else {
      if (!seen_dtype_) fail_tensor("dtype is missing");
      if (!seen_shape_) fail_tensor("shape is missing");
      if (!seen_offsets_) fail_tensor("data_offsets is missing");
      header_.tensors.push_back(std::move(tensor_));
    }
  }

  void begin_array() override {
    if (depth_ != 2 || in_metadata_ || (field_ != Field::kShape && field_ != Field::kOffsets)) {
      unexpected("an array");
    }
    num_offsets_ = 0;
    ++depth_;
  }

  void end_array() override {
    --depth_;
    if (field_ == Field::kOffsets && num_offsets_ != 2) {
      fail_tensor("data_offsets: expected two numbers");
    }
  }

  void key(std::string_view name) override {
    if (depth_ == 1) {
      if (name.size() > kMaxTensorNameBytes) {
        fail_input(where_,
                   fmt::format("tensor \"{}\": a name of {} bytes, more than the limit of {}",
                               printable(name), name.size(), kMaxTensorNameBytes));
      }
      member_ = name;
      return;
    }
    member_ = name;
    if (in_metadata_) {
      if (!metadata_keys_.insert(member_).second) {
        fail_input(where_, fmt::format("__metadata__: \"{}\" is there twice", printable(member_)));
      }
      return;
    }
    bool* seen = nullptr;
    if (member_ == "dtype") {
      field_ = Field::kDtype;
      seen = &seen_dtype_;
    } else if (member_ == "shape") {
      field_ = Field::kShape;
      seen = &seen_shape_;
    } else if (member_ == "data_offsets") {
      field_ = Field::kOffsets;
      seen = &seen_offsets_;
    } else {
      fail_tensor(fmt::format("unknown field \"{}\"", printable(member_)));
    }
    if (*seen) fail_tensor(fmt::format("{} is there twice", member_));
    *seen = true;
  }

  const std::string& where_;
  SafetensorsHeader& header_;
  std::unordered_set<std::string> metadata_keys_;
  TensorEntry tensor_;
  std::string member_;
  Field field_ = Field::kNone;
  int depth_ = 0;
  int num_offsets_ = 0;
  bool in_metadata_ = false;
  bool seen_dtype_ = false;
  bool seen_shape_ = false;
  bool seen_offsets_ = false;
  bool done_ = false;
};

// Names well-known other formats by their first bytes; empty when none matches.
std::string_view foreign_format(std::span<const std::byte> file) {
  const std::string_view start(reinterpret_cast<const char*>(file.data()),
                               std::min<std::size_t>(file.size(), 64));
  if (start.starts_with("PK\x03\x04") || start.starts_with("PK\x05\x06")) {
    return "a zip archive (a PyTorch checkpoint?)";
  }
  if (start.size() >= 2 && start[0] == '\x80' && start[1] >= 2 && start[1] <= 5) {
    return "a pickle, which is never opened because it can run code";
  }
  if (start.starts_with("GGUF")) return "a GGUF file";
  if (start.starts_with("\x89HDF\r\n")) return "an HDF5 file";
  if (start.starts_with("\x93NUMPY")) return "a NumPy file";
  if (start.starts_with("version https://git-lfs")) {
    return "a Git LFS pointer, not the file itself (fetch it with: git lfs pull)";
  }
  if (start.starts_with("<!DOCTYPE") || start.starts_with("<html")) return "an HTML page";
  return {};
}

// A file whose header does not stand the first checks: another format by its first bytes, which the
// length of a true header may also happen to have, or else what failed.
[[noreturn]] void fail_header(std::span<const std::byte> file, const std::string& where,
                              const std::string& what) {
  const std::string_view found = foreign_format(file);
  fail_input(where,
             found.empty() ? what : fmt::format("expected a safetensors file, found {}", found));
}

// The header text, after the checks of its length.
std::string_view header_text(std::span<const std::byte> file, const std::string& where) {
  const auto size = static_cast<std::int64_t>(file.size());
  if (size < kLengthBytes) {
    fail_header(file, where, fmt::format("{} bytes, too short for a safetensors file", size));
  }
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof(length));  // little-endian, as is the machine
  if (length > static_cast<std::uint64_t>(kMaxHeaderBytes)) {
    fail_header(file, where,
                fmt::format("a header of {} bytes, more than the format's limit of {}; the file is "
                            "damaged or not a safetensors file",
                            length, kMaxHeaderBytes));
  }
  if (static_cast<std::int64_t>(length) > size - kLengthBytes) {
    fail_header(file, where,
                fmt::format("a header of {} bytes in a file of {}; the file is truncated (download "
                            "it again)",
                            length, size));
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kLengthBytes,
                              static_cast<std::size_t>(length));
  const std::size_t start = text.find_first_not_of(" \t\r\n");
  if (start == std::string_view::npos || text[start] != '{') {
    fail_header(
        file, where,
        "the header does not begin with '{'; the file is damaged or not a safetensors file");
  }
  return text;
}

// Throws when a name is there twice.
void index_names(SafetensorsHeader& header, const std::string& where) {
  header.index = NameMap(header.tensors.size());
  for (std::size_t at = 0; at < header.tensors.size(); ++at) {
    const std::string& name = header.tensors[at].name;
    if (!header.index.insert(name, at).second) {
      fail_input(where, fmt::format("tensor \"{}\" is in the header twice", printable(name)));
    }
  }
}

// Writers mostly keep the order of the offsets; then the index stays as it is.
void sort_by_offset(SafetensorsHeader& header, const std::string& where) {
  const auto is_before = [](const TensorEntry& a, const TensorEntry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  };
  if (std::is_sorted(header.tensors.begin(), header.tensors.end(), is_before)) return;
  std::sort(header.tensors.begin(), header.tensors.end(), is_before);
  index_names(header, where);
}

// Sizes against bytes, and the tensors against the data: no hole, no overlap, exact end.
void check_layout(SafetensorsHeader& header, std::int64_t data_bytes, const std::string& where) {
  for (const TensorEntry& tensor : header.tensors) {
    const auto fail_tensor = [&](const std::string& what) {
      fail_input(where, fmt::format("tensor \"{}\": {}", printable(tensor.name), what));
    };
    if (tensor.end < tensor.begin) {
      fail_tensor(
          fmt::format("data_offsets [{}, {}] end before they begin", tensor.begin, tensor.end));
    }
    const auto bytes = tensor_bytes(tensor.dtype, tensor.shape);
    if (!bytes) {
      fail_tensor(fmt::format("the size of shape {} overflows or is not a whole number of bytes",
                              tensor.shape.to_string()));
    }
    if (*bytes != tensor.end - tensor.begin) {
      fail_tensor(fmt::format("shape {} of {} needs {} bytes, data_offsets [{}, {}] give {}",
                              tensor.shape.to_string(), dtype_name(tensor.dtype), *bytes,
                              tensor.begin, tensor.end, tensor.end - tensor.begin));
    }
    if (tensor.end > data_bytes) {
      fail_tensor(
          fmt::format("data_offsets [{}, {}] end after the {} data bytes of the file; the "
                      "file is truncated (download it again)",
                      tensor.begin, tensor.end, data_bytes));
    }
  }
  sort_by_offset(header, where);
  std::int64_t previous_end = 0;
  for (const TensorEntry& tensor : header.tensors) {
    if (tensor.begin != previous_end) {
      fail_input(where, fmt::format("tensor \"{}\" begins at byte {} of the data, expected {}: {}",
                                    printable(tensor.name), tensor.begin, previous_end,
                                    tensor.begin < previous_end ? "two tensors overlap"
                                                                : "there is a hole before it"));
    }
    previous_end = tensor.end;
  }
  if (previous_end != data_bytes) {
    fail_input(where, fmt::format("{} bytes follow the last tensor", data_bytes - previous_end));
  }
}

}  // namespace

SafetensorsHeader parse_safetensors(std::span<const std::byte> file, const std::string& where) {
  const std::string_view text = header_text(file, where);
  SafetensorsHeader header;
  HeaderSink sink(where, header);
  json::read_events(text, where + ": the header", sink);
  sink.finish();
  index_names(header, where);
  header.data_begin = kLengthBytes + static_cast<std::int64_t>(text.size());
  check_layout(header, static_cast<std::int64_t>(file.size()) - header.data_begin, where);
  return header;
}

}  // namespace moe::model
