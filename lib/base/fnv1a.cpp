#include "lib/base/fnv1a.hpp"

#include <fmt/format.h>

namespace moe {

std::string Fnv1a64::to_string() const {
  return fmt::format("fnv1a64:{:016x}", hash_);
}

}  // namespace moe
