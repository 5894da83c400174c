#pragma once

// Names of formats in reports and messages.

#include "kernels/api.hpp"

namespace moe::kernels {

[[nodiscard]] constexpr const char* weight_format_name(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return "f32";
    case WeightFormat::kF16:
      return "f16";
    case WeightFormat::kBf16:
      return "bf16";
    case WeightFormat::kFp8:
      return "fp8";
    case WeightFormat::kMxfp4:
      return "mxfp4";
    case WeightFormat::kInt8:
      return "int8";
    case WeightFormat::kInt4:
      return "int4";
  }
  return "";
}

[[nodiscard]] constexpr const char* activation_format_name(ActivationFormat format) {
  switch (format) {
    case ActivationFormat::kF32:
      return "f32";
    case ActivationFormat::kBf16:
      return "bf16";
    case ActivationFormat::kInt8:
      return "int8";
  }
  return "";
}

}  // namespace moe::kernels
