#include "lib/tiering/residency.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/base/int_math.hpp"

namespace moe::tiering {
namespace {

bool contains(std::span<const std::int32_t> experts, std::int32_t expert) {
  return std::find(experts.begin(), experts.end(), expert) != experts.end();
}

}  // namespace

void check_transfer(const TransferModel& model) {
  const auto require = [](bool holds, const char* what, double found) {
    if (!holds) throw Error(ErrorCode::kUsage, fmt::format("expected {}, found {}", what, found));
  };
  require(std::isfinite(model.expert_bytes) && model.expert_bytes > 0.0, "expert bytes above 0",
          model.expert_bytes);
  require(std::isfinite(model.link_bytes_per_s) && model.link_bytes_per_s > 0.0,
          "a link rate above 0", model.link_bytes_per_s);
  require(std::isfinite(model.latency_s) && model.latency_s >= 0.0, "a latency of 0 or more",
          model.latency_s);
  require(std::isfinite(model.layer_s) && model.layer_s >= 0.0, "a layer time of 0 or more",
          model.layer_s);
}

double ResidencyResult::exposed_ratio() const {
  const double all_s = compute_s + exposed_s;
  return all_s > 0.0 ? exposed_s / all_s : 0.0;
}

ResidencyReplay::ResidencyReplay(const ResidencyOptions& options)
    : options_(options),
      slots_(as_index(options.num_layers) * as_index(options.num_experts)),
      num_resident_(as_index(options.num_layers), 0) {
  MOE_CHECK(options.num_layers > 0 && options.num_experts > 0 && options.num_slots > 0);
  MOE_CHECK(options.low_watermark >= 0.0 && options.low_watermark <= 1.0);
  check_transfer(options.transfer);
  options_.num_slots = std::min(options.num_slots, options.num_experts);
}

ResidencyReplay::Slot& ResidencyReplay::slot(std::int32_t layer, std::int32_t expert) {
  return slots_[as_index(layer) * as_index(options_.num_experts) + as_index(expert)];
}

void ResidencyReplay::begin_step() {
  ++step_;
}

void ResidencyReplay::preload(std::int32_t layer, std::span<const std::int32_t> experts) {
  for (const std::int32_t expert : experts) {
    Slot& entry = slot(layer, expert);
    if (entry.is_resident || num_resident_[as_index(layer)] == options_.num_slots) continue;
    entry.is_resident = true;
    ++num_resident_[as_index(layer)];
  }
}

// The least recently used expert that is not in `keep`; false when all are.
bool ResidencyReplay::evict_one(std::int32_t layer, std::span<const std::int32_t> keep) {
  std::int32_t victim = -1;
  for (std::int32_t expert = 0; expert < options_.num_experts; ++expert) {
    const Slot& entry = slot(layer, expert);
    if (!entry.is_resident || contains(keep, expert)) continue;
    if (layer == running_layer_ && contains(running_, expert)) continue;
    if (victim < 0 || entry.last_use < slot(layer, victim).last_use) victim = expert;
  }
  if (victim < 0) return false;
  Slot& entry = slot(layer, victim);
  entry.is_resident = false;
  entry.is_guess = false;
  entry.evicted_in_step = step_;
  --num_resident_[as_index(layer)];
  ++result_.num_evictions;
  return true;
}

void ResidencyReplay::make_room(std::int32_t layer, std::span<const std::int32_t> keep) {
  if (num_resident_[as_index(layer)] < options_.num_slots) return;
  const auto low = static_cast<std::int32_t>(
      std::floor(options_.low_watermark * static_cast<double>(options_.num_slots)));
  const std::int32_t target = std::min(low, options_.num_slots - 1);
  while (num_resident_[as_index(layer)] > target && evict_one(layer, keep)) {
  }
}

void ResidencyReplay::load(std::int32_t layer, std::int32_t expert, double start_s) {
  Slot& entry = slot(layer, expert);
  link_free_s_ = start_s + options_.transfer.expert_s();
  entry.ready_s = link_free_s_;
  entry.is_resident = true;
  entry.last_use = ++use_;
  ++num_resident_[as_index(layer)];
  if (step_ >= 0 && entry.evicted_in_step == step_) ++result_.num_step_reloads;
}

// Starts queued guesses whose turn on the link comes before `time_s`.
void ResidencyReplay::run_link_until(double time_s) {
  while (!queue_.empty() && link_free_s_ < time_s) {
    const Guess guess = queue_.front();
    queue_.pop_front();
    if (slot(guess.layer, guess.expert).is_resident) continue;
    make_room(guess.layer, {});
    if (num_resident_[as_index(guess.layer)] == options_.num_slots) continue;
    load(guess.layer, guess.expert, link_free_s_);
    slot(guess.layer, guess.expert).is_guess = true;
    result_.prefetch_bytes += options_.transfer.expert_bytes;
    ++result_.prefetch.num_guesses;
  }
}

void ResidencyReplay::run_layer(std::int32_t layer, std::span<const std::int32_t> wanted,
                                std::span<const std::int32_t> guesses) {
  MOE_CHECK(step_ >= 0);
  run_link_until(now_s_);
  // Guesses that did not start in time are of no use any more: a miss asks for them itself.
  queue_.clear();
  running_layer_ = layer;
  running_.assign(wanted.begin(), wanted.end());
  if (static_cast<std::int32_t>(wanted.size()) > options_.num_slots) ++result_.num_overfull;
  double ready_s = now_s_;
  result_.prefetch.num_wanted += static_cast<std::int64_t>(wanted.size());
  for (const std::int32_t expert : wanted) {
    Slot& entry = slot(layer, expert);
    ++result_.counts.num_accesses;
    if (entry.is_resident) {
      ++result_.counts.num_hits;
      if (entry.is_guess) ++result_.prefetch.num_useful;
      entry.is_guess = false;
      if (entry.ready_s > now_s_) ++result_.num_late;
    } else {
      ++(entry.was_seen ? result_.counts.num_capacity : result_.counts.num_first_touch);
      make_room(layer, {});
      // All slots hold experts of this layer's own need: one that is done with gives way.
      if (num_resident_[as_index(layer)] == options_.num_slots) {
        running_.clear();
        const std::int32_t only[] = {expert};
        (void)evict_one(layer, only);
        running_.assign(wanted.begin(), wanted.end());
      }
      load(layer, expert, std::max(now_s_, link_free_s_));
      result_.demand_bytes += options_.transfer.expert_bytes;
    }
    entry.was_seen = true;
    entry.last_use = ++use_;
    ready_s = std::max(ready_s, entry.ready_s);
  }
  result_.exposed_s += ready_s - now_s_;
  now_s_ = ready_s;
  link_free_s_ = std::max(link_free_s_, now_s_);
  for (const std::int32_t expert : guesses) queue_.push_back({layer + 1, expert});
  now_s_ += options_.transfer.layer_s;
  result_.compute_s += options_.transfer.layer_s;
  running_layer_ = -1;
}

}  // namespace moe::tiering
