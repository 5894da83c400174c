#include "lib/sysinfo/variables.hpp"

#include <algorithm>
#include <array>

namespace moe::sysinfo {

bool is_reportable_variable(std::string_view name) {
  constexpr std::array<std::string_view, 7> kSecrets = {
      "TOKEN", "KEY", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "AUTH"};
  const bool is_allowed = name.starts_with("NCCL_") || name.starts_with("UCX_") ||
                          name.starts_with("OMP_") || name.starts_with("MOE_") ||
                          name == "CUDA_VISIBLE_DEVICES";
  std::string upper(name);
  std::transform(upper.begin(), upper.end(), upper.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  return is_allowed && std::none_of(kSecrets.begin(), kSecrets.end(), [&](std::string_view word) {
           return upper.find(word) != std::string::npos;
         });
}

std::map<std::string, std::string> reportable_variables(const char* const* environment) {
  std::map<std::string, std::string> kept;
  if (environment == nullptr) return kept;
  for (; *environment != nullptr; ++environment) {
    const std::string_view entry(*environment);
    const std::size_t equals = entry.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view name = entry.substr(0, equals);
    if (is_reportable_variable(name)) {
      kept.emplace(name, entry.substr(equals + 1));
    }
  }
  return kept;
}

}  // namespace moe::sysinfo
