#include "lib/routing/id_cleaner.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace moe::routing {
namespace {

constexpr std::int32_t kMaxU8 = 255;
constexpr std::int32_t kMaxU16 = 65535;

}  // namespace

IdCleaner::IdCleaner(const InputInfo& info, std::optional<ElementType> stored_as) : info_(info) {
  limit_ = info.physical_to_logical.empty() ? info.num_experts
                                            : static_cast<std::int32_t>(info.num_slots);
  num_shared_ = info.num_shared_experts;
  if (stored_as == ElementType::kU8) sentinel_ = kMaxU8;
  if (stored_as == ElementType::kU16) sentinel_ = kMaxU16;
  is_ambiguous_type_ = sentinel_ != kUnusedSlot && sentinel_ < limit_ + num_shared_;
}

bool IdCleaner::is_clean(std::span<const std::int32_t> ids) const {
  if (!info_.physical_to_logical.empty()) return false;
  // Ids that are also how -1 is stored have to be counted.
  const std::int32_t bound = is_ambiguous_type_ ? std::min(limit_, sentinel_) : limit_;
  std::uint32_t largest = 0;  // as unsigned numbers, so that negative ids are large
  for (const std::int32_t id : ids) largest = std::max(largest, static_cast<std::uint32_t>(id));
  return largest < static_cast<std::uint32_t>(bound);
}

void IdCleaner::clean(std::int64_t layer_idx, std::span<std::int32_t> ids) {
  std::uint32_t largest = 0;  // as unsigned numbers, so that negative ids are large
  for (const std::int32_t id : ids) largest = std::max(largest, static_cast<std::uint32_t>(id));
  if (is_ambiguous_type_) {
    num_ambiguous_ += std::count(ids.begin(), ids.end(), sentinel_);
  }
  if (largest >= static_cast<std::uint32_t>(limit_)) {
    for (std::int32_t& id : ids) {
      if (static_cast<std::uint32_t>(id) < static_cast<std::uint32_t>(limit_)) continue;
      if (id == kUnusedSlot || id == sentinel_) {
        ++num_sentinels_;
      } else if (id >= 0 && id < limit_ + num_shared_) {
        ++num_shared_ids_;
      } else {
        if (num_out_of_range_++ == 0) {
          first_out_of_range_ = fmt::format("id {} in layer {}, expected 0 to {}", id,
                                            info_.layers[static_cast<std::size_t>(layer_idx)],
                                            limit_ + num_shared_ - 1);
        }
      }
      id = kUnusedSlot;
    }
  }
  if (info_.physical_to_logical.empty()) return;
  const std::int32_t* map = info_.physical_to_logical.data() + layer_idx * info_.num_slots;
  for (std::int32_t& id : ids) {
    if (id >= 0) id = map[id];
  }
}

void IdCleaner::report(std::vector<Observation>& observations) {
  const auto flush = [&](const char* code, std::int64_t& count, const std::string& detail) {
    if (count > 0) add_observation(observations, code, count, detail);
    count = 0;
  };
  flush("ids.sentinel", num_sentinels_,
        "slots without an expert (-1, or the type's largest value)");
  flush("ids.shared_expert", num_shared_ids_,
        fmt::format("ids {} to {} name fused shared experts", limit_, limit_ + num_shared_ - 1));
  flush("ids.out_of_range", num_out_of_range_, first_out_of_range_);
  flush("ids.sentinel_ambiguous", num_ambiguous_,
        fmt::format("{} is an expert and also how this type stores -1", sentinel_));
}

void add_observation(std::vector<Observation>& observations, const std::string& code,
                     std::int64_t count, const std::string& detail) {
  const auto same = std::find_if(observations.begin(), observations.end(),
                                 [&](const Observation& o) { return o.code == code; });
  if (same == observations.end()) {
    observations.push_back({code, count, detail});
  } else {
    same->count += count;
  }
}

}  // namespace moe::routing
