#pragma once

// A routing trace: which experts the router chose, token by token, layer by layer. The file is a
// safetensors file, so that any tool of the field can read it:
//
//   ids      I32 [rows, top_k]   chosen experts, best first
//   weights  F32 [rows, top_k]   what multiplies their outputs
//   step     I32 [rows]          forward pass, counted from 0
//   layer    I32 [rows]          decoder layer, dense layers counted too
//   token    I32 [rows]          position in its sequence
//   request  I32 [rows]
//   phase    U8  [rows]          0 prefill, 1 decode
//   time_s   F64 [rows]          when the layer had routed, seconds since the trace began
//   __metadata__: format "moekit-routing-trace", schema_version, model, num_layers, num_experts,
//                 top_k, and what the writer adds
//
// A row is one token in one layer. Rows stand in the order of the computation: steps ascend, within
// a step layers ascend, within a layer tokens keep the order of the batch.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace moe::routing {

inline constexpr const char* kTraceFormat = "moekit-routing-trace";
inline constexpr int kTraceSchemaVersion = 1;

enum class Phase : std::uint8_t { kPrefill = 0, kDecode = 1 };

struct TraceInfo {
  std::string model;
  std::int32_t num_layers = 0;
  std::int32_t num_experts = 0;
  std::int32_t top_k = 0;
  // Further metadata of the file: the tool, the point measured.
  std::map<std::string, std::string> extra;
};

// All rows in memory, one vector per column.
struct Trace {
  TraceInfo info;
  std::vector<std::int32_t> ids;  // [rows, top_k]
  std::vector<float> weights;     // [rows, top_k]
  std::vector<std::int32_t> step;
  std::vector<std::int32_t> layer;
  std::vector<std::int32_t> token;
  std::vector<std::int32_t> request;
  std::vector<Phase> phase;
  std::vector<double> time_s;

  [[nodiscard]] std::int64_t num_rows() const { return static_cast<std::int64_t>(step.size()); }
  // counts[layer][expert] over all rows of the phase.
  [[nodiscard]] std::vector<std::vector<std::int64_t>> expert_counts(Phase of) const;
};

struct TraceLimits {
  std::int64_t max_header_bytes = 1 << 20;
  std::int64_t max_rows = std::int64_t{1} << 31;
};

// Reads and checks everything: ids inside the model and distinct within a row, finite weights,
// layers inside the model, ascending steps. Throws Error(kInput) with the file and the tensor or
// row at fault.
[[nodiscard]] Trace read_trace(const std::filesystem::path& file, const TraceLimits& limits = {});

}  // namespace moe::routing
