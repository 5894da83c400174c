#pragma once

// Plans as serving engines read them. A plan names the model layers that it places; an engine that
// wants rows for all layers gets the linear placement for the dense ones.
//
//   SGLang         {"physical_to_logical_map": [[expert of slot 0, ...] per layer]}, for
//                  --init-expert-location; a row for every layer from 0, dense layers too
//   TensorRT-LLM   YAML: num_slots, layer_updates_per_iter, initial_global_assignments
//                  {layer: [expert of slot 0, ...]}
//   CSV            layer,gpu,slot,expert with that header; the only one that tells GPUs apart
//
// Text in, plan out, and back; files are the caller's business.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/balance/placement.hpp"

namespace moe::balance {

enum class PlanFormat : std::uint8_t { kSglangJson, kTensorRtYaml, kCsv };

// "sglang", "tensorrt", "csv"; nullopt otherwise.
[[nodiscard]] std::optional<PlanFormat> plan_format_of(std::string_view name);
[[nodiscard]] const char* plan_format_name(PlanFormat format);

struct Plan {
  Placement placement;
  // Model layer number of each row of the placement, ascending.
  std::vector<std::int32_t> layers;
};

[[nodiscard]] std::string write_plan(const Plan& plan, PlanFormat format);

struct ReadPlanOptions {
  // GPUs, over which the slots are spread evenly; not needed for CSV, which says so itself. 0: not
  // given.
  std::int32_t num_gpus = 0;
  // Experts of the model; 0: the largest that the plan names.
  std::int32_t num_experts = 0;
};

// The format is told by the content. Throws Error(kInput) with `where`, the line or the layer, and
// what was expected: every expert has a replica, every slot an expert, all layers equally many
// slots.
[[nodiscard]] Plan read_plan(std::string_view text, const std::string& where,
                             const ReadPlanOptions& options = {});

// The rows of `plan` for these model layers, in this order. Throws Error(kInput) when one is not
// there.
[[nodiscard]] Placement rows_of(const Plan& plan, const std::vector<std::int32_t>& layers,
                                const std::string& where);

}  // namespace moe::balance
