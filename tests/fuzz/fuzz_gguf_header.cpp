// A GGUF header from arbitrary bytes: refused with a one-line Error, or every tensor lies in the
// file and every value is inside it.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/base/text.hpp"
#include "lib/model/gguf_header.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  try {
    const moe::model::GgufHeader header = moe::model::parse_gguf_header(file, "input");
    for (const moe::model::GgufTensor& tensor : header.tensors) {
      MOE_CHECK(tensor.offset >= 0 && tensor.size_bytes >= 0);
      MOE_CHECK(header.data_begin + tensor.offset + tensor.size_bytes <=
                    static_cast<std::int64_t>(size) ||
                tensor.size_bytes == 0);
    }
    for (const auto& [key, value] : header.values) {
      if (value.bytes.empty()) continue;
      MOE_CHECK(value.bytes.data() >= file.data());
      MOE_CHECK(value.bytes.data() + value.bytes.size() <= file.data() + file.size());
    }
  } catch (const moe::Error& error) {
    const std::string_view message = error.what();
    MOE_CHECK(message.find('\n') == std::string_view::npos);
    MOE_CHECK(moe::first_invalid_utf8(message) == message.size());
  }
  return 0;
}
