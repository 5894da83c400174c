#pragma once

// Figures of ranks as bytes, for Communicator::exchange_texts. All ranks run the same build.

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "lib/comm/communicator.hpp"

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

// Of each figure the largest of all ranks, which for a time is that of the slowest. Collective; the
// same answer at every rank.
[[nodiscard]] inline std::vector<double> slowest(Communicator& communicator,
                                                 const std::vector<double>& times_s) {
  std::vector<double> worst(times_s.size(), 0.0);
  for (const std::string& text : communicator.exchange_texts(to_text(times_s))) {
    const std::vector<double> theirs = from_text<double>(text);
    for (std::size_t i = 0; i < worst.size(); ++i) worst[i] = std::max(worst[i], theirs.at(i));
  }
  return worst;
}

}  // namespace moe::comm
