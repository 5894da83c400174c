#pragma once

// A map from names to numbers for tables of a hundred thousand names: one flat array, no node and
// no copy of a name. It only grows.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace moe {

class NameMap {
 public:
  NameMap() = default;
  // Room for so many names without growing. It is a hint: growing costs time, nothing else.
  explicit NameMap(std::size_t num_names) { reserve(num_names); }

  void reserve(std::size_t num_names);
  // The value of the name, and whether it is new; a name that is there keeps its value. The bytes
  // of the name are not copied and must outlive the map.
  std::pair<std::uint64_t, bool> insert(std::string_view name, std::uint64_t value);
  [[nodiscard]] std::optional<std::uint64_t> find(std::string_view name) const;
  // The value of a name, to be changed; nullptr when the name is not there.
  [[nodiscard]] std::uint64_t* find_value(std::string_view name);
  [[nodiscard]] bool contains(std::string_view name) const { return find(name).has_value(); }
  [[nodiscard]] std::size_t size() const { return size_; }

  // visit(std::string_view name, std::uint64_t value) for each, in no particular order.
  template <typename Visit>
  void for_each(Visit&& visit) const {
    for (const Slot& slot : slots_) {
      if (slot.data != nullptr) visit(std::string_view(slot.data, slot.size), slot.value);
    }
  }

 private:
  struct Slot {
    const char* data = nullptr;  // nullptr: empty
    std::size_t size = 0;
    std::size_t hash = 0;  // other names are told apart without their bytes
    std::uint64_t value = 0;
  };

  // Where the name is, or the empty slot where it belongs. The table has an empty slot.
  [[nodiscard]] std::size_t slot_of(std::string_view name, std::size_t hash) const;
  void grow(std::size_t num_slots);

  std::vector<Slot> slots_;  // a power of two, at most half of them used
  std::size_t size_ = 0;
};

}  // namespace moe
