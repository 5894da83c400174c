#pragma once

// Which experts of one layer are resident when only some fit: demand loading, one expert a slot. An
// access of an expert that is not there loads it and evicts by the policy once the cache is full.
//
// Counts obey: hits + first-touch misses + capacity misses = accesses. Belady's rule (evict what is
// needed again last) needs the future; no policy that loads on demand has more hits.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace moe::tiering {

enum class Policy : std::uint8_t { kLru, kLfu, kStatic, kBelady };

// "lru", "lfu", "static", "belady".
[[nodiscard]] const char* policy_name(Policy policy);

struct CacheCounts {
  std::int64_t num_accesses = 0;
  std::int64_t num_hits = 0;
  std::int64_t num_first_touch = 0;  // misses no cache can avoid without prefetching
  std::int64_t num_capacity = 0;     // misses of an expert that was there before

  [[nodiscard]] std::int64_t num_misses() const { return num_first_touch + num_capacity; }
  [[nodiscard]] std::optional<double> miss_ratio() const;
  CacheCounts& operator+=(const CacheCounts& other);
};

// Least recently used. A list threaded through arrays: constant time an access.
class LruCache {
 public:
  // num_slots >= 1; more slots than experts are as many as experts.
  LruCache(std::int32_t num_experts, std::int32_t num_slots);

  // Accesses in order; each 0 <= expert < num_experts.
  void access(std::span<const std::int32_t> experts);
  [[nodiscard]] const CacheCounts& counts() const { return counts_; }
  [[nodiscard]] bool is_resident(std::int32_t expert) const;

 private:
  std::int32_t num_slots_;
  std::int32_t num_resident_ = 0;
  std::vector<std::int32_t> next_;  // [experts + 1], towards least recent; the last is the anchor
  std::vector<std::int32_t> previous_;
  std::vector<std::uint8_t> state_;  // [experts]: bit 0 resident, bit 1 seen before
  CacheCounts counts_;
};

// Least frequently used: every access counts, resident or not; the lowest (count, expert) of those
// resident goes.
class LfuCache {
 public:
  LfuCache(std::int32_t num_experts, std::int32_t num_slots);
  void access(std::span<const std::int32_t> experts);
  [[nodiscard]] const CacheCounts& counts() const { return counts_; }

 private:
  std::int32_t num_slots_;
  std::vector<std::int64_t> uses_;
  std::vector<std::int32_t> resident_;
  std::vector<std::uint8_t> is_resident_;
  CacheCounts counts_;
};

// The same experts always: the hottest of a profile. Misses are loaded into a staging buffer and
// not kept.
class StaticCache {
 public:
  // The num_slots experts with the largest profile, lower index first where equal.
  StaticCache(std::span<const std::int64_t> profile, std::int32_t num_slots);
  void access(std::span<const std::int32_t> experts);
  [[nodiscard]] const CacheCounts& counts() const { return counts_; }

 private:
  std::vector<std::uint8_t> is_resident_;
  std::vector<std::uint8_t> seen_;
  CacheCounts counts_;
};

// Needs all accesses of the layer at once.
[[nodiscard]] CacheCounts belady(std::span<const std::int32_t> experts, std::int32_t num_experts,
                                 std::int32_t num_slots);

}  // namespace moe::tiering
