#include "lib/tiering/expert_cache.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "lib/base/check.hpp"
#include "lib/base/int_math.hpp"

namespace moe::tiering {
namespace {

constexpr std::uint8_t kResident = 1;
constexpr std::uint8_t kSeen = 2;

void count_miss(bool was_seen, CacheCounts& counts) {
  ++(was_seen ? counts.num_capacity : counts.num_first_touch);
}

}  // namespace

const char* policy_name(Policy policy) {
  switch (policy) {
    case Policy::kLru:
      return "lru";
    case Policy::kLfu:
      return "lfu";
    case Policy::kStatic:
      return "static";
    case Policy::kBelady:
      return "belady";
  }
  return "";
}

std::optional<double> CacheCounts::miss_ratio() const {
  if (num_accesses == 0) return std::nullopt;
  return static_cast<double>(num_misses()) / static_cast<double>(num_accesses);
}

CacheCounts& CacheCounts::operator+=(const CacheCounts& other) {
  num_accesses += other.num_accesses;
  num_hits += other.num_hits;
  num_first_touch += other.num_first_touch;
  num_capacity += other.num_capacity;
  return *this;
}

LruCache::LruCache(std::int32_t num_experts, std::int32_t num_slots)
    : num_slots_(std::min(num_slots, num_experts)),
      next_(as_index(num_experts) + 1, num_experts),
      previous_(as_index(num_experts) + 1, num_experts),
      state_(as_index(num_experts), 0) {
  MOE_CHECK(num_experts > 0 && num_slots > 0);
}

bool LruCache::is_resident(std::int32_t expert) const {
  return (state_[as_index(expert)] & kResident) != 0;
}

void LruCache::access(std::span<const std::int32_t> experts) {
  const std::size_t anchor = state_.size();
  std::int32_t* next = next_.data();
  std::int32_t* previous = previous_.data();
  std::int64_t num_hits = 0;
  for (const std::int32_t expert : experts) {
    MOE_DCHECK(expert >= 0 && as_index(expert) < state_.size());
    const std::size_t e = as_index(expert);
    const std::uint8_t state = state_[e];
    if ((state & kResident) != 0) {
      ++num_hits;
      if (next[anchor] == expert) continue;
      next[previous[e]] = next[e];
      previous[next[e]] = previous[e];
    } else {
      count_miss((state & kSeen) != 0, counts_);
      if (num_resident_ == num_slots_) {
        const std::int32_t victim = previous[anchor];
        previous[anchor] = previous[victim];
        next[previous[victim]] = static_cast<std::int32_t>(anchor);
        state_[as_index(victim)] = kSeen;
      } else {
        ++num_resident_;
      }
      state_[e] = kResident | kSeen;
    }
    const std::int32_t first = next[anchor];
    next[e] = first;
    previous[e] = static_cast<std::int32_t>(anchor);
    previous[first] = expert;
    next[anchor] = expert;
  }
  counts_.num_hits += num_hits;
  counts_.num_accesses += static_cast<std::int64_t>(experts.size());
}

LfuCache::LfuCache(std::int32_t num_experts, std::int32_t num_slots)
    : num_slots_(std::min(num_slots, num_experts)),
      uses_(as_index(num_experts), 0),
      is_resident_(as_index(num_experts), 0) {
  MOE_CHECK(num_experts > 0 && num_slots > 0);
}

void LfuCache::access(std::span<const std::int32_t> experts) {
  for (const std::int32_t expert : experts) {
    ++counts_.num_accesses;
    const bool was_seen = uses_[as_index(expert)] > 0;
    ++uses_[as_index(expert)];
    if (is_resident_[as_index(expert)] != 0) {
      ++counts_.num_hits;
      continue;
    }
    count_miss(was_seen, counts_);
    is_resident_[as_index(expert)] = 1;
    if (static_cast<std::int32_t>(resident_.size()) < num_slots_) {
      resident_.push_back(expert);
      continue;
    }
    const auto victim =
        std::min_element(resident_.begin(), resident_.end(), [&](std::int32_t a, std::int32_t b) {
          return uses_[as_index(a)] != uses_[as_index(b)] ? uses_[as_index(a)] < uses_[as_index(b)]
                                                          : a < b;
        });
    is_resident_[as_index(*victim)] = 0;
    *victim = expert;
  }
}

StaticCache::StaticCache(std::span<const std::int64_t> profile, std::int32_t num_slots)
    : is_resident_(profile.size(), 0), seen_(profile.size(), 0) {
  MOE_CHECK(!profile.empty() && num_slots > 0);
  std::vector<std::size_t> order(profile.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return profile[a] > profile[b]; });
  for (std::size_t i = 0; i < std::min(order.size(), as_index(num_slots)); ++i) {
    is_resident_[order[i]] = 1;
  }
}

void StaticCache::access(std::span<const std::int32_t> experts) {
  for (const std::int32_t expert : experts) {
    ++counts_.num_accesses;
    if (is_resident_[as_index(expert)] != 0) {
      ++counts_.num_hits;
    } else {
      count_miss(seen_[as_index(expert)] != 0, counts_);
    }
    seen_[as_index(expert)] = 1;
  }
}

CacheCounts belady(std::span<const std::int32_t> experts, std::int32_t num_experts,
                   std::int32_t num_slots) {
  MOE_CHECK(num_experts > 0 && num_slots > 0);
  constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  std::vector<std::int64_t> next_use(experts.size());
  std::vector<std::int64_t> upcoming(as_index(num_experts), kNever);
  for (std::size_t i = experts.size(); i-- > 0;) {
    next_use[i] = upcoming[as_index(experts[i])];
    upcoming[as_index(experts[i])] = static_cast<std::int64_t>(i);
  }
  CacheCounts counts;
  counts.num_accesses = static_cast<std::int64_t>(experts.size());
  std::vector<std::int32_t> resident;
  std::vector<std::uint8_t> is_resident(as_index(num_experts), 0);
  std::vector<std::uint8_t> seen(as_index(num_experts), 0);
  // From here on upcoming[e] is the next use after the current access, for residents.
  for (std::size_t i = 0; i < experts.size(); ++i) {
    const std::int32_t expert = experts[i];
    upcoming[as_index(expert)] = next_use[i];
    if (is_resident[as_index(expert)] != 0) {
      ++counts.num_hits;
      continue;
    }
    count_miss(seen[as_index(expert)] != 0, counts);
    seen[as_index(expert)] = 1;
    is_resident[as_index(expert)] = 1;
    if (resident.size() < std::min(as_index(num_slots), as_index(num_experts))) {
      resident.push_back(expert);
      continue;
    }
    const auto victim =
        std::max_element(resident.begin(), resident.end(), [&](std::int32_t a, std::int32_t b) {
          return upcoming[as_index(a)] < upcoming[as_index(b)];
        });
    is_resident[as_index(*victim)] = 0;
    *victim = expert;
  }
  return counts;
}

}  // namespace moe::tiering
