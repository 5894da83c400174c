#pragma once

// Text from hostile files, made safe for a one-line message.

#include <string>
#include <string_view>

namespace moe::model {

// Control characters become \xNN; more than 300 bytes are cut and marked "...".
[[nodiscard]] std::string printable(std::string_view text);

}  // namespace moe::model
