#include "lib/base/name_map.hpp"

#include <bit>
#include <functional>
#include <limits>

#include "lib/base/check.hpp"

namespace moe {
namespace {

constexpr std::size_t kMinSlots = 16;

std::size_t hash_of(std::string_view name) {
  return std::hash<std::string_view>{}(name);
}

}  // namespace

void NameMap::reserve(std::size_t num_names) {
  MOE_CHECK(num_names <= std::numeric_limits<std::size_t>::max() / 4);
  const std::size_t num_slots = std::bit_ceil(2 * num_names + kMinSlots);
  if (num_slots > slots_.size()) grow(num_slots);
}

std::pair<std::uint64_t, bool> NameMap::insert(std::string_view name, std::uint64_t value) {
  if (2 * (size_ + 1) > slots_.size()) reserve(2 * size_ + 1);
  const std::size_t hash = hash_of(name);
  Slot& slot = slots_[slot_of(name, hash)];
  if (slot.data != nullptr) return {slot.value, false};
  // An empty name may come without bytes; an empty slot is known by not having any.
  slot = {name.data() != nullptr ? name.data() : "", name.size(), hash, value};
  ++size_;
  return {value, true};
}

std::optional<std::uint64_t> NameMap::find(std::string_view name) const {
  if (size_ == 0) return std::nullopt;
  const Slot& slot = slots_[slot_of(name, hash_of(name))];
  if (slot.data == nullptr) return std::nullopt;
  return slot.value;
}

std::uint64_t* NameMap::find_value(std::string_view name) {
  if (size_ == 0) return nullptr;
  Slot& slot = slots_[slot_of(name, hash_of(name))];
  return slot.data != nullptr ? &slot.value : nullptr;
}

std::size_t NameMap::slot_of(std::string_view name, std::size_t hash) const {
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t at = hash & mask;; at = (at + 1) & mask) {
    const Slot& slot = slots_[at];
    if (slot.data == nullptr) return at;
    if (slot.hash == hash && std::string_view(slot.data, slot.size) == name) return at;
  }
}

void NameMap::grow(std::size_t num_slots) {
  std::vector<Slot> old(num_slots);
  old.swap(slots_);
  const std::size_t mask = num_slots - 1;
  for (const Slot& slot : old) {
    if (slot.data == nullptr) continue;
    std::size_t at = slot.hash & mask;
    while (slots_[at].data != nullptr) at = (at + 1) & mask;
    slots_[at] = slot;
  }
}

}  // namespace moe
