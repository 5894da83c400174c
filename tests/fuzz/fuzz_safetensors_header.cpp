// A safetensors file from arbitrary bytes: refused with an Error, or every view lies inside the
// file and has the bytes of its shape.

#include <cstddef>
#include <cstdint>
#include <span>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/base/text.hpp"
#include "lib/model/safetensors.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moe::model;
  const std::span file(reinterpret_cast<const std::byte*>(data), size);
  try {
    const SafetensorsHeader header = parse_safetensors(file, "input");
    std::int64_t end = 0;
    unsigned sum = 0;
    for (const TensorEntry& tensor : header.tensors) {
      MOE_CHECK(tensor.begin == end);
      end = tensor.end;
      MOE_CHECK(tensor_bytes(tensor.dtype, tensor.shape) == tensor.end - tensor.begin);
      for (std::int64_t at = tensor.begin; at < tensor.end; ++at) {
        sum += std::to_integer<unsigned>(file[static_cast<std::size_t>(header.data_begin + at)]);
      }
    }
    MOE_CHECK(header.data_begin + end == static_cast<std::int64_t>(size));
    MOE_CHECK(sum != 1 || size > 0);  // keeps the reads
  } catch (const moe::Error& error) {
    const std::string_view message = error.what();
    MOE_CHECK(message.find('\n') == std::string_view::npos);
    MOE_CHECK(moe::first_invalid_utf8(message) == message.size());
  }
  return 0;
}
