#pragma once

// A replay with time: experts move over one link while layers compute, guesses for the next layer
// are loaded ahead, and what is not there when it is needed is waited for. One cache a layer, least
// recently used goes first; what the running layer needs is not evicted while other experts are
// there.
//
// The link carries one expert at a time. A miss is loaded before guesses that have not started;
// one under way is finished first. Time is modelled: layer_s of computing per layer, transfers of
// latency + bytes / bandwidth.

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "lib/tiering/expert_cache.hpp"
#include "lib/tiering/prefetch.hpp"

namespace moe::tiering {

struct TransferModel {
  double expert_bytes = 0.0;
  double link_bytes_per_s = 0.0;
  double latency_s = 0.0;
  double layer_s = 0.0;

  [[nodiscard]] double expert_s() const { return latency_s + expert_bytes / link_bytes_per_s; }
};

// Throws Error(kUsage): sizes and rates above 0, times 0 or more, all finite.
void check_transfer(const TransferModel& model);

struct ResidencyOptions {
  std::int32_t num_layers = 0;
  std::int32_t num_experts = 0;
  std::int32_t num_slots = 0;  // a layer
  // A full cache is emptied down to this share of its slots in one go; 1: one expert at a time.
  double low_watermark = 1.0;
  TransferModel transfer;
};

struct ResidencyResult {
  CacheCounts counts;         // a hit was resident or on its way
  std::int64_t num_late = 0;  // hits that had to be waited for: still on their way
  PredictionCounts prefetch;  // guesses loaded, of which asked for in the layer they were for
  double demand_bytes = 0.0;
  double prefetch_bytes = 0.0;  // completed loads only
  double compute_s = 0.0;
  double exposed_s = 0.0;             // waited for the link
  std::int64_t num_overfull = 0;      // layers of a step that needed more experts than slots
  std::int64_t num_step_reloads = 0;  // experts loaded again within the step that evicted them
  std::int64_t num_evictions = 0;

  // exposed / (compute + exposed); 0 when no time passed.
  [[nodiscard]] double exposed_ratio() const;
};

class ResidencyReplay {
 public:
  explicit ResidencyReplay(const ResidencyOptions& options);

  void begin_step();
  // Before anything is asked for: what starts out resident, at no cost.
  void preload(std::int32_t layer, std::span<const std::int32_t> experts);
  // One layer of the step: distinct experts it needs, and guesses for the layer after it (empty:
  // none).
  void run_layer(std::int32_t layer, std::span<const std::int32_t> wanted,
                 std::span<const std::int32_t> guesses);

  [[nodiscard]] const ResidencyResult& result() const { return result_; }

 private:
  struct Slot {
    bool is_resident = false;
    bool is_guess = false;  // loaded ahead and not asked for yet
    bool was_seen = false;
    double ready_s = 0.0;
    std::int64_t last_use = 0;
    std::int64_t evicted_in_step = -1;
  };
  struct Guess {
    std::int32_t layer = 0;
    std::int32_t expert = 0;
  };

  [[nodiscard]] Slot& slot(std::int32_t layer, std::int32_t expert);
  void make_room(std::int32_t layer, std::span<const std::int32_t> keep);
  bool evict_one(std::int32_t layer, std::span<const std::int32_t> keep);
  void load(std::int32_t layer, std::int32_t expert, double start_s);
  void run_link_until(double time_s);

  ResidencyOptions options_;
  ResidencyResult result_;
  std::vector<Slot> slots_;  // [layers, experts]
  std::vector<std::int32_t> num_resident_;
  std::deque<Guess> queue_;
  std::vector<std::int32_t> running_;  // what the layer that runs needs
  std::int32_t running_layer_ = -1;
  std::int64_t step_ = -1;
  std::int64_t use_ = 0;
  double now_s_ = 0.0;
  double link_free_s_ = 0.0;
};

}  // namespace moe::tiering
