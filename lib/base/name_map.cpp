#include "lib/base/name_map.hpp"

#include <bit>
#include <functional>
#include <limits>

#include "lib/base/check.hpp"

namespace moe {
namespace {

constexpr std::size_t kMinSlots = 16;

std::uint32_t tag_of(std::size_t hash) {
  return static_cast<std::uint32_t>(hash >> 32);
}

}  // namespace

void NameMap::reserve(std::size_t num_names) {
  MOE_CHECK(num_names <= std::numeric_limits<std::size_t>::max() / 4);
  const std::size_t num_slots = std::bit_ceil(2 * num_names + kMinSlots);
  if (num_slots > slots_.size()) grow(num_slots);
}

std::pair<std::uint64_t, bool> NameMap::insert(std::string_view name, std::uint64_t value) {
  MOE_CHECK(name.size() <= std::numeric_limits<std::uint32_t>::max());
  if (2 * (size_ + 1) > slots_.size()) reserve(2 * size_ + 1);
  const std::size_t hash = std::hash<std::string_view>{}(name);
  Slot& slot = slots_[slot_of(name, hash)];
  if (slot.data != nullptr) return {slot.value, false};
  // An empty name may come without bytes; an empty slot is known by not having any.
  slot.data = name.data() != nullptr ? name.data() : "";
  slot.size = static_cast<std::uint32_t>(name.size());
  slot.tag = tag_of(hash);
  slot.value = value;
  ++size_;
  return {value, true};
}

std::optional<std::uint64_t> NameMap::find(std::string_view name) const {
  if (size_ == 0) return std::nullopt;
  const Slot& slot = slots_[slot_of(name, std::hash<std::string_view>{}(name))];
  if (slot.data == nullptr) return std::nullopt;
  return slot.value;
}

std::size_t NameMap::slot_of(std::string_view name, std::size_t hash) const {
  const std::size_t mask = slots_.size() - 1;
  const std::uint32_t tag = tag_of(hash);
  for (std::size_t at = hash & mask;; at = (at + 1) & mask) {
    const Slot& slot = slots_[at];
    if (slot.data == nullptr) return at;
    if (slot.tag == tag && std::string_view(slot.data, slot.size) == name) return at;
  }
}

void NameMap::grow(std::size_t num_slots) {
  std::vector<Slot> old(num_slots);
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.data == nullptr) continue;
    const std::string_view name(slot.data, slot.size);
    slots_[slot_of(name, std::hash<std::string_view>{}(name))] = slot;
  }
}

}  // namespace moe
