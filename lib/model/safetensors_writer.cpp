#include "lib/model/safetensors_writer.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "lib/base/check.hpp"
#include "lib/base/int_math.hpp"

namespace moe::model {
namespace {

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump();
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     const std::vector<TensorDeclaration>& tensors,
                                     const SafetensorsMetadata& metadata)
    : file_(path) {
  std::vector<std::string> members;
  if (!metadata.empty()) {
    std::vector<std::string> pairs;
    for (const auto& [key, value] : metadata) {
      pairs.push_back(quoted(key) + ":" + quoted(value));
    }
    members.push_back(fmt::format("\"__metadata__\":{{{}}}", fmt::join(pairs, ",")));
  }
  for (const TensorDeclaration& tensor : tensors) {
    const auto bytes = tensor_bytes(tensor.dtype, tensor.shape);
    MOE_CHECK(bytes.has_value());
    members.push_back(fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                                  quoted(tensor.name), dtype_name(tensor.dtype),
                                  fmt::join(tensor.shape.sizes(), ","), remaining_bytes_,
                                  remaining_bytes_ + *bytes));
    remaining_bytes_ += *bytes;
  }
  std::string header = fmt::format("{{{}}}", fmt::join(members, ","));
  header.resize(static_cast<std::size_t>(align_up(std::ssize(header), 8)), ' ');
  MOE_CHECK(std::ssize(header) <= kMaxHeaderBytes);
  const std::uint64_t length = header.size();
  file_.write(std::as_bytes(std::span(&length, 1)));
  file_.write(header);
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  MOE_CHECK(std::ssize(bytes) <= remaining_bytes_);
  file_.write(bytes);
  remaining_bytes_ -= std::ssize(bytes);
}

void SafetensorsWriter::finish() {
  MOE_CHECK(remaining_bytes_ == 0);
  file_.commit();
}

}  // namespace moe::model
