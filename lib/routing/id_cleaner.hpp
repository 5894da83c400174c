#pragma once

// Expert ids as files hold them, made canonical: logical, routed, in range, or unused.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/routing/array_view.hpp"
#include "lib/routing/token_source.hpp"

namespace moe::routing {

class IdCleaner {
 public:
  // Ids name slots when the info has a placement; they become logical experts. Unsigned files hold
  // -1 as their largest value: pass the type they were stored in.
  IdCleaner(const InputInfo& info, std::optional<ElementType> stored_as);

  // True when clean() would change none of these ids, of any layers.
  [[nodiscard]] bool is_clean(std::span<const std::int32_t> ids) const;

  // Ids of one layer, in place. -1 and the type's largest value mean "unused"; an id of a shared
  // expert or out of range is counted and becomes unused.
  void clean(std::int64_t layer_idx, std::span<std::int32_t> ids);

  // What was seen so far, added to the list; counters start afresh.
  void report(std::vector<Observation>& observations);

 private:
  std::int32_t limit_ = 0;  // experts, or slots
  std::int32_t num_shared_ = 0;
  std::int32_t sentinel_ = kUnusedSlot;
  bool is_ambiguous_type_ = false;  // uint8 with more than 255 experts
  const InputInfo& info_;
  std::int64_t num_sentinels_ = 0;
  std::int64_t num_shared_ids_ = 0;
  std::int64_t num_out_of_range_ = 0;
  std::int64_t num_ambiguous_ = 0;
  std::string first_out_of_range_;
};

// Adds to the observation of the same code, or makes one.
void add_observation(std::vector<Observation>& observations, const std::string& code,
                     std::int64_t count, const std::string& detail);

}  // namespace moe::routing
