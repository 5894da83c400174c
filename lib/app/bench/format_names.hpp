#pragma once

// Names of kernel formats in reports.

#include "kernels/api.hpp"

namespace moe::app {

[[nodiscard]] constexpr const char* weight_format_name(kernels::WeightFormat format) {
  switch (format) {
    case kernels::WeightFormat::kF32:
      return "f32";
    case kernels::WeightFormat::kF16:
      return "f16";
    case kernels::WeightFormat::kBf16:
      return "bf16";
    case kernels::WeightFormat::kFp8:
      return "fp8";
    case kernels::WeightFormat::kMxfp4:
      return "mxfp4";
    case kernels::WeightFormat::kInt8:
      return "int8";
    case kernels::WeightFormat::kInt4:
      return "int4";
  }
  return "";
}

[[nodiscard]] constexpr const char* activation_format_name(kernels::ActivationFormat format) {
  switch (format) {
    case kernels::ActivationFormat::kF32:
      return "f32";
    case kernels::ActivationFormat::kBf16:
      return "bf16";
    case kernels::ActivationFormat::kInt8:
      return "int8";
  }
  return "";
}

}  // namespace moe::app
