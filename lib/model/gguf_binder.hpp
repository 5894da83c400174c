#pragma once

#include <filesystem>
#include <memory>

#include "lib/model/bound_model.hpp"

namespace moe::model {

// Binds the tensors of a GGUF file; see bind_checkpoint(). Throws Error(kInput).
[[nodiscard]] BoundModel bind_gguf(const std::filesystem::path& file, const BindOptions& options);
[[nodiscard]] BoundModel bind_gguf(std::shared_ptr<const GgufFile> file,
                                   const BindOptions& options);

}  // namespace moe::model
