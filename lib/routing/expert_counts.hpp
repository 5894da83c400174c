#pragma once

// Expert load in the one form that every analysis of load, placement and alarms uses: how many
// routed copies each expert received, by window and layer, and where the figures come from.
//
// A routed copy is one (token, expert) pair: a token with top_k 8 makes eight.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace moe::routing {

// What a file was recognised as.
enum class Format : std::uint8_t {
  kMoekitTrace,        // own token trace (trace.hpp)
  kTokenIds,           // array of chosen experts: npy [tokens, layers, k], safetensors "ids"
  kSglangStat,         // .pt, counts per step summed over ranks
  kSglangPerPass,      // .pt, counts per forward pass, one file a rank
  kSglangPerToken,     // .pt, chosen experts, one file a rank
  kSglangJson,         // {"logical_count": ...}
  kTensorRtStatistic,  // safetensors "<iteration>_<layer>" [experts], one file a rank
  kTensorRtRaw,        // the same with [tokens, k]
  kVllmRoutedExperts,  // JSON of the API, routed_experts
  kRouterLogits,       // float [tokens, experts] per layer
  kCountMatrix,        // npy, JSON or CSV
  kEsftText,           // expert_weights_<layer>.txt
  kJsonLines,
  kExpertIdCsv,  // layer_id,expert_ids
};
[[nodiscard]] const char* format_name(Format format);  // "SGLang dump (stat)"

enum class WindowUnit : std::uint8_t {
  kWhole,    // one window: everything
  kTokens,   // windows of so many tokens
  kSteps,    // of so many forward passes, iterations or recorded count rows
  kSeconds,  // of so many seconds; only where the input has time stamps
};
[[nodiscard]] const char* window_unit_name(WindowUnit unit);  // "tokens"

// One window; what the input does not tell is -1 or absent.
struct Window {
  std::int64_t first_step = -1;
  std::int64_t last_step = -1;
  std::int64_t num_tokens = 0;  // 0 when the input holds counts alone and top_k is not known
  std::optional<double> begin_s;
  std::optional<double> end_s;
};

// Where the figures come from and what they can support.
struct InputInfo {
  Format format = Format::kCountMatrix;
  std::string name;  // short name for tables: the file's stem, or the part after '#'
  std::vector<std::filesystem::path> files;
  std::string content_hash;  // "fnv1a64:..." over size and pages spread over each file
  std::string model;         // empty when the input does not say
  // Model layer number of each row; MoE layers in ascending order.
  std::vector<std::int32_t> layers;
  std::int32_t num_experts = 0;         // routed, logical
  std::int32_t num_shared_experts = 0;  // fused shared experts, counted apart
  std::int32_t top_k = 0;               // 0: not known
  bool has_tokens = false;              // chosen experts token by token, not counts alone
  bool has_weights = false;
  bool has_time = false;
  bool has_requests = false;  // sequence borders are known
  // Ranks whose figures are in the input; empty: already global or not a distributed run.
  std::vector<std::int32_t> ranks;
  std::int32_t num_gpus = 0;   // 0: not known
  std::int32_t num_nodes = 0;  // 0: not known
  // Placement while recording, [layers, slots] logical expert of each slot; empty: not known.
  std::vector<std::int32_t> physical_to_logical;
  std::int64_t num_slots = 0;

  [[nodiscard]] std::int64_t num_layers() const { return static_cast<std::int64_t>(layers.size()); }
};

struct ExpertCounts {
  InputInfo info;
  // Layers whose count is zero throughout: dense, or not recorded. They are not in info.layers.
  std::vector<std::int32_t> empty_layers;
  WindowUnit window_unit = WindowUnit::kWhole;
  double window_length = 0.0;  // in window_unit; 0 for kWhole
  std::vector<Window> windows;
  std::vector<std::int64_t> counts;  // [windows, layers, experts]

  [[nodiscard]] std::int64_t num_windows() const {
    return static_cast<std::int64_t>(windows.size());
  }
  [[nodiscard]] std::int64_t num_layers() const { return info.num_layers(); }
  [[nodiscard]] std::int64_t num_experts() const { return info.num_experts; }

  // Counts of one layer in one window, [experts].
  [[nodiscard]] std::span<const std::int64_t> at(std::int64_t window, std::int64_t layer) const {
    const std::int64_t row = window * num_layers() + layer;
    return std::span(counts).subspan(static_cast<std::size_t>(row * num_experts()),
                                     static_cast<std::size_t>(num_experts()));
  }
  // Counts of one window, [layers, experts].
  [[nodiscard]] std::span<const std::int64_t> window(std::int64_t window_idx) const {
    const std::int64_t size = num_layers() * num_experts();
    return std::span(counts).subspan(static_cast<std::size_t>(window_idx * size),
                                     static_cast<std::size_t>(size));
  }
  // Sum over all windows, [layers, experts]. Throws Error(kInput) when it passes 2^63.
  [[nodiscard]] std::vector<std::int64_t> total() const;
};

}  // namespace moe::routing
