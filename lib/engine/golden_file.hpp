#pragma once

// A golden file with its tensors checked against the shapes that the model produces.

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lib/model/safetensors.hpp"

namespace moe::engine {

class GoldenFile {
 public:
  // Throws Error(kInput) when the file is missing or damaged.
  explicit GoldenFile(const std::filesystem::path& path);

  [[nodiscard]] bool has(const std::string& name) const { return file_.find(name).has_value(); }

  // The tensor as [rows, cols], whatever its inner axes are. Throws Error(kInput) when it is
  // missing, of another type or size, or holds a value that is not finite.
  [[nodiscard]] std::vector<float> floats(const std::string& name, std::int64_t rows,
                                          std::int64_t cols);
  [[nodiscard]] std::vector<std::int32_t> ids(const std::string& name, std::int64_t rows,
                                              std::int64_t cols);
  // A vector of any length, at least one.
  [[nodiscard]] std::vector<std::int32_t> ids(const std::string& name);

  [[nodiscard]] std::vector<std::pair<std::string, std::string>> metadata() const;
  // Tensors that nobody asked for.
  [[nodiscard]] std::vector<std::string> unread() const;

 private:
  [[nodiscard]] model::TensorRef checked(const std::string& name, model::Dtype dtype,
                                         std::int64_t rows, std::int64_t cols);
  [[noreturn]] void refuse(const std::string& name, const std::string& what) const;

  model::SafetensorsFile file_;
  std::set<std::string> read_;
};

}  // namespace moe::engine
