#include "lib/model/value_scan.hpp"

#include <cstring>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/base/text.hpp"

namespace moe::model {
namespace {

[[noreturn]] void fail(const TensorRef& tensor, const std::filesystem::path& file,
                       std::size_t element, std::string_view found) {
  throw Error(ErrorCode::kInput, fmt::format("{}: tensor \"{}\": element {} is {}", file.string(),
                                             printable(tensor.name), element, found));
}

// Index of the first element whose exponent bits are all ones, else the count.
template <typename Bits>
std::size_t first_non_finite(const TensorRef& tensor, Bits exponent) {
  constexpr std::size_t kChunk = 4096;
  const std::size_t count = tensor.bytes.size() / sizeof(Bits);
  const std::byte* data = tensor.bytes.data();
  for (std::size_t begin = 0; begin < count; begin += kChunk) {
    const std::size_t end = begin + kChunk < count ? begin + kChunk : count;
    unsigned found = 0;
    for (std::size_t at = begin; at < end; ++at) {
      Bits bits;
      std::memcpy(&bits, data + at * sizeof(Bits), sizeof(Bits));
      found |= static_cast<unsigned>((bits & exponent) == exponent);
    }
    if (found == 0) continue;
    for (std::size_t at = begin; at < end; ++at) {
      Bits bits;
      std::memcpy(&bits, data + at * sizeof(Bits), sizeof(Bits));
      if ((bits & exponent) == exponent) return at;
    }
  }
  return count;
}

template <typename Bits>
void scan(const TensorRef& tensor, const std::filesystem::path& file, Bits exponent,
          Bits mantissa) {
  const std::size_t count = tensor.bytes.size() / sizeof(Bits);
  const std::size_t at = first_non_finite(tensor, exponent);
  if (at == count) return;
  Bits bits;
  std::memcpy(&bits, tensor.bytes.data() + at * sizeof(Bits), sizeof(Bits));
  fail(tensor, file, at, (bits & mantissa) != 0 ? "NaN" : "infinite");
}

}  // namespace

void require_finite(const TensorRef& tensor, const std::filesystem::path& file) {
  switch (tensor.dtype) {
    case Dtype::kF32:
      scan<std::uint32_t>(tensor, file, 0x7f800000u, 0x007fffffu);
      break;
    case Dtype::kBf16:
      scan<std::uint16_t>(tensor, file, 0x7f80u, 0x007fu);
      break;
    case Dtype::kF16:
      scan<std::uint16_t>(tensor, file, 0x7c00u, 0x03ffu);
      break;
    default:
      break;  // the binder admits no other dtype here
  }
}

void require_mxfp4_scales(const TensorRef& tensor, const std::filesystem::path& file) {
  const void* found =
      tensor.bytes.empty() ? nullptr : std::memchr(tensor.bytes.data(), 0xff, tensor.bytes.size());
  if (found == nullptr) return;
  fail(tensor, file,
       static_cast<std::size_t>(static_cast<const std::byte*>(found) - tensor.bytes.data()),
       "255, the NaN of block exponents");
}

}  // namespace moe::model
