#pragma once

// Looks at the values of small tensors: NaN and infinity there poison every token silently.

#include <filesystem>

#include "lib/model/safetensors.hpp"

namespace moe::model {

// F32, F16, BF16. Throws Error(kInput) naming file, tensor and element.
void require_finite(const TensorRef& tensor, const std::filesystem::path& file);

// U8 exponents of MXFP4 blocks: 255 is NaN.
void require_mxfp4_scales(const TensorRef& tensor, const std::filesystem::path& file);

}  // namespace moe::model
