#pragma once

// Published throughput of whole systems (scenarios/anchors/throughput.json) beside what the model
// says: a band from no overlap to full overlap, and whether the published figure lies inside.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/planner/hardware.hpp"
#include "lib/planner/step_time.hpp"

namespace moe::planner {

enum class AnchorKind : std::uint8_t { kDecode, kPrefill };

struct ThroughputAnchor {
  std::string id;
  AnchorKind kind = AnchorKind::kDecode;
  std::string model;    // name in scenarios/models
  std::string weights;  // a format that replaces the checkpoint's; empty: its own
  std::string gpu;
  std::string engine;
  Layout layout;
  double batch_per_rank = 0.0;        // decode
  double context_tokens = 0.0;        // decode: cached; prefill: length of a prompt
  double pass_tokens = 0.0;           // prefill: tokens of a rank in one pass
  double tokens_per_s_per_gpu = 0.0;  // published
  double scale_out_bytes_per_s = 50e9;
  std::string source;
  std::vector<std::string> assumptions;  // what the source does not state
  // Why the figure may lie outside the band; empty: it must lie inside.
  std::string outside_reason;
};

struct AnchorResult {
  const ThroughputAnchor* anchor = nullptr;
  double predicted = 0.0;  // tokens/s/GPU
  double low = 0.0;        // no overlap
  double high = 0.0;       // full overlap
  bool is_inside = false;
  Resource limiting = Resource::kMemory;
  std::vector<std::string> defaults;  // what stands in for measurements
  [[nodiscard]] double error() const { return predicted / anchor->tokens_per_s_per_gpu - 1.0; }
};

// Throws Error(kInput) naming the entry and the field.
[[nodiscard]] std::vector<ThroughputAnchor> parse_throughput_anchors(std::string_view json_text,
                                                                     const std::string& where);

[[nodiscard]] AnchorResult check_anchor(const ThroughputAnchor& anchor,
                                        const model::Architecture& architecture,
                                        const Accelerator& gpu, const MeasuredTimes& measured);

}  // namespace moe::planner
