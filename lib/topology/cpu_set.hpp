#pragma once

// Sets of CPU or NUMA node numbers, as lists ("0-47,96-143"), as NCCL's masks of 32-bit words and
// as hwloc's masks.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moe::topology {

// Inclusive.
struct NumberRange {
  std::int32_t first = 0;
  std::int32_t last = 0;
  friend bool operator==(const NumberRange&, const NumberRange&) = default;
};

// Ascending, apart from each other, merged where they touch.
class NumberSet {
 public:
  NumberSet() = default;
  // Any order; overlaps are merged.
  explicit NumberSet(std::vector<NumberRange> ranges);

  [[nodiscard]] bool empty() const { return ranges_.empty(); }
  [[nodiscard]] std::int64_t size() const;
  [[nodiscard]] std::int32_t first() const { return ranges_.front().first; }
  [[nodiscard]] bool intersects(const NumberSet& other) const;
  [[nodiscard]] const std::vector<NumberRange>& ranges() const { return ranges_; }
  [[nodiscard]] std::string to_string() const;  // "0-47,96-143"

  friend bool operator==(const NumberSet&, const NumberSet&) = default;

 private:
  std::vector<NumberRange> ranges_;
};

// Numbers above this are refused: no machine has them, and a mask of them would be huge.
inline constexpr std::int32_t kMaxNumber = 65535;

// nullopt when the text is no list.
[[nodiscard]] std::optional<NumberSet> parse_number_list(std::string_view text);

// "00000000,0000ffff,ffffffff" -> 0-47: 32-bit words, most significant first. An empty word between
// commas is 0, a prefix 0x is passed over, as hwloc writes them. nullopt when it is no mask.
[[nodiscard]] std::optional<NumberSet> parse_mask(std::string_view text);

}  // namespace moe::topology
