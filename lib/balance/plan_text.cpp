#include "lib/balance/plan_text.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "lib/balance/plan_rows.hpp"
#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/base/int_math.hpp"

namespace moe::balance {
namespace {

std::string list_of(std::span<const std::int32_t> values, const char* separator) {
  return fmt::format("{}", fmt::join(values.begin(), values.end(), separator));
}

std::string write_sglang(const Plan& plan) {
  std::string text = "{\"physical_to_logical_map\": [\n";
  std::size_t row = 0;
  const std::int32_t last = plan.layers.back();
  for (std::int32_t layer = 0; layer <= last; ++layer) {
    std::vector<std::int32_t> slots;
    if (plan.layers[row] == layer) {
      const auto planned = plan.placement.layer(static_cast<std::int32_t>(row++));
      slots.assign(planned.begin(), planned.end());
    } else {
      for (std::int32_t slot = 0; slot < plan.placement.num_slots(); ++slot) {
        slots.push_back(slot % plan.placement.num_experts);
      }
    }
    text += fmt::format("  [{}]{}\n", list_of(slots, ", "), layer == last ? "" : ",");
  }
  return text + "]}\n";
}

std::string write_tensorrt(const Plan& plan) {
  std::string text =
      fmt::format("num_slots: {}\nlayer_updates_per_iter: 0\ninitial_global_assignments:\n",
                  plan.placement.num_slots());
  for (std::size_t row = 0; row < plan.layers.size(); ++row) {
    text += fmt::format("  {}: [{}]\n", plan.layers[row],
                        list_of(plan.placement.layer(static_cast<std::int32_t>(row)), ", "));
  }
  return text;
}

std::string write_csv(const Plan& plan) {
  std::string text = "layer,gpu,slot,expert\n";
  for (std::size_t row = 0; row < plan.layers.size(); ++row) {
    const auto slots = plan.placement.layer(static_cast<std::int32_t>(row));
    for (std::int32_t gpu = 0; gpu < plan.placement.num_gpus(); ++gpu) {
      for (std::int32_t slot = plan.placement.slot_begin[as_index(gpu)];
           slot < plan.placement.slot_begin[as_index(gpu) + 1]; ++slot) {
        text += fmt::format("{},{},{},{}\n", plan.layers[row], gpu, slot, slots[as_index(slot)]);
      }
    }
  }
  return text;
}

// GPUs of equal size unless the text told them.
std::vector<std::int32_t> slot_borders(const PlanRows& rows, const std::string& where,
                                       const ReadPlanOptions& options) {
  if (!rows.gpu_slots.empty()) {
    std::vector<std::int32_t> borders = {0};
    for (const std::int32_t slots : rows.gpu_slots) borders.push_back(borders.back() + slots);
    return borders;
  }
  if (options.num_gpus == 0) {
    throw Error(
        ErrorCode::kInput,
        fmt::format("{}: the format does not say which slot is on which GPU; give --gpus", where));
  }
  const auto num_slots = static_cast<std::int32_t>(rows.rows.front().size());
  if (num_slots < options.num_gpus) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: {} slots for {} GPUs", where, num_slots, options.num_gpus));
  }
  std::vector<std::int32_t> borders = {0};
  for (std::int32_t gpu = 0; gpu < options.num_gpus; ++gpu) {
    const std::int32_t more = gpu < num_slots % options.num_gpus ? 1 : 0;
    borders.push_back(borders.back() + num_slots / options.num_gpus + more);
  }
  return borders;
}

}  // namespace

std::optional<PlanFormat> plan_format_of(std::string_view name) {
  for (const PlanFormat format :
       {PlanFormat::kSglangJson, PlanFormat::kTensorRtYaml, PlanFormat::kCsv}) {
    if (name == plan_format_name(format)) return format;
  }
  return std::nullopt;
}

const char* plan_format_name(PlanFormat format) {
  switch (format) {
    case PlanFormat::kSglangJson:
      return "sglang";
    case PlanFormat::kTensorRtYaml:
      return "tensorrt";
    case PlanFormat::kCsv:
      return "csv";
  }
  return "";
}

std::string write_plan(const Plan& plan, PlanFormat format) {
  MOE_CHECK(!plan.layers.empty() &&
            plan.layers.size() == static_cast<std::size_t>(plan.placement.num_layers));
  switch (format) {
    case PlanFormat::kSglangJson:
      return write_sglang(plan);
    case PlanFormat::kTensorRtYaml:
      return write_tensorrt(plan);
    case PlanFormat::kCsv:
      return write_csv(plan);
  }
  return "";
}

Plan read_plan(std::string_view text, const std::string& where, const ReadPlanOptions& options) {
  const PlanRows rows = read_plan_rows(text, where);
  if (rows.rows.empty() || rows.rows.front().empty()) {
    throw Error(ErrorCode::kInput, fmt::format("{}: the plan places nothing", where));
  }
  Plan plan;
  plan.layers = rows.layers;
  plan.placement.num_layers = static_cast<std::int32_t>(rows.rows.size());
  plan.placement.slot_begin = slot_borders(rows, where, options);
  plan.placement.num_experts = options.num_experts;
  for (std::size_t row = 0; row < rows.rows.size(); ++row) {
    if (rows.rows[row].size() != rows.rows.front().size()) {
      throw Error(ErrorCode::kInput, fmt::format("{}: layer {} has {} slots, layer {} has {}",
                                                 where, rows.layers[row], rows.rows[row].size(),
                                                 rows.layers.front(), rows.rows.front().size()));
    }
    for (const std::int32_t expert : rows.rows[row]) {
      if (options.num_experts == 0) {
        plan.placement.num_experts = std::max(plan.placement.num_experts, expert + 1);
      }
      plan.placement.slot_expert.push_back(expert);
    }
  }
  check_placement(plan.placement, where);
  return plan;
}

Placement rows_of(const Plan& plan, const std::vector<std::int32_t>& layers,
                  const std::string& where) {
  Placement rows;
  rows.num_layers = static_cast<std::int32_t>(layers.size());
  rows.num_experts = plan.placement.num_experts;
  rows.slot_begin = plan.placement.slot_begin;
  for (const std::int32_t layer : layers) {
    const auto found = std::lower_bound(plan.layers.begin(), plan.layers.end(), layer);
    if (found == plan.layers.end() || *found != layer) {
      throw Error(ErrorCode::kInput,
                  fmt::format("{}: the plan has no layer {}, which the trace has; it places "
                              "layers {} to {}",
                              where, layer, plan.layers.front(), plan.layers.back()));
    }
    const auto slots = plan.placement.layer(static_cast<std::int32_t>(found - plan.layers.begin()));
    rows.slot_expert.insert(rows.slot_expert.end(), slots.begin(), slots.end());
  }
  return rows;
}

}  // namespace moe::balance
