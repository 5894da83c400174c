#pragma once

// How a model is spread over GPUs, and whether that is possible.

#include <cstdint>
#include <string>

#include "lib/model/architecture.hpp"

namespace moe::planner {

// One deployment (an engine instance): tp * dp GPUs in each of pp stages. Attention and dense parts
// are split over tp and repeated dp times (DP attention); routed experts are spread over the same
// tp * dp GPUs: whole experts over ep groups, the width of each over the remaining
// expert_tp() = tp * dp / ep.
struct Layout {
  std::int32_t tp = 1;
  std::int32_t dp = 1;
  std::int32_t pp = 1;
  std::int32_t ep = 1;                 // 1: every rank holds a slice of every expert
  std::int32_t redundant_experts = 0;  // copies of hot experts a layer, in addition to its own
  // Shared experts on every rank whole (DeepSeek's way under EP), instead of split over tp.
  bool has_replicated_shared = false;

  [[nodiscard]] std::int32_t stage_gpus() const { return tp * dp; }
  [[nodiscard]] std::int32_t gpus() const { return tp * dp * pp; }
  [[nodiscard]] std::int32_t expert_tp() const { return tp * dp / ep; }
  [[nodiscard]] bool operator==(const Layout&) const = default;
};

// "TP4 EP8 DP2"; "1 GPU" when nothing is split.
[[nodiscard]] std::string describe(const Layout& layout);

// Empty when engines run this; otherwise the first reason why not: heads that do not divide, FP8
// blocks cut by the split, more stages than layers, ...
[[nodiscard]] std::string layout_problem(const model::Architecture& architecture,
                                         const Layout& layout);

// First layer of a stage and one past its last. Remainder layers go to the stages before the last,
// from the end (vLLM's rule).
struct StageRange {
  std::int32_t begin = 0;
  std::int32_t end = 0;
};
[[nodiscard]] StageRange stage_layers(std::int32_t num_layers, std::int32_t pp, std::int32_t stage);

}  // namespace moe::planner
