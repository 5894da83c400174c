#pragma once

// Figures of ranks as bytes, for Communicator::exchange_texts. All ranks run the same build.

#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

namespace moe::comm {

template <typename Element>
[[nodiscard]] std::string to_text(const std::vector<Element>& elements) {
  static_assert(std::is_trivially_copyable_v<Element>);
  std::string text(elements.size() * sizeof(Element), '\0');
  if (!elements.empty()) std::memcpy(text.data(), elements.data(), text.size());
  return text;
}

template <typename Element>
[[nodiscard]] std::vector<Element> from_text(const std::string& text) {
  static_assert(std::is_trivially_copyable_v<Element>);
  std::vector<Element> elements(text.size() / sizeof(Element));
  if (!elements.empty()) {
    std::memcpy(elements.data(), text.data(), elements.size() * sizeof(Element));
  }
  return elements;
}

}  // namespace moe::comm
