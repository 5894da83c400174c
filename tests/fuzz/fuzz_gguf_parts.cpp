// A GGUF model in several files from arbitrary bytes: refused with a one-line Error, or every row
// of every matrix can be read. Input: the number of parts (one byte), the size of each part but the
// last (32 bits, little-endian), the parts.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "lib/model/gguf_binder.hpp"
#include "lib/model/gguf_file.hpp"
#include "tests/fuzz/use_model.hpp"

namespace {

constexpr std::size_t kMaxParts = 8;

std::vector<std::span<const std::byte>> cut(std::span<const std::byte> input) {
  std::vector<std::span<const std::byte>> parts;
  if (input.empty()) return parts;
  const std::size_t count = std::to_integer<std::size_t>(input.front()) % kMaxParts + 1;
  std::size_t at = 1 + (count - 1) * 4;
  if (at > input.size()) return parts;
  for (std::size_t part = 0; part + 1 < count; ++part) {
    std::size_t size = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      size |= std::to_integer<std::size_t>(input[1 + part * 4 + i]) << (8 * i);
    }
    if (size > input.size() - at) return {};
    parts.push_back(input.subspan(at, size));
    at += size;
  }
  parts.push_back(input.subspan(at));
  return parts;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto parts = cut(std::as_bytes(std::span(data, size)));
  if (parts.empty()) return 0;
  try {
    const auto file = std::make_shared<const moe::model::GgufFile>(
        parts, fmt::format("model-00001-of-{:05}.gguf", parts.size()));
    MOE_CHECK(file->num_parts() == parts.size());
    moe::fuzz::read_everything(moe::model::bind_gguf(file, {}));
  } catch (const moe::Error& error) {
    moe::fuzz::expect_one_line(error);
  }
  return 0;
}
