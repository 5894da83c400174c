#pragma once

// The columns of a trace file, in the order in which they are written. Shared by reader and writer.

#include <array>
#include <cstdint>
#include <string_view>

namespace moe::routing {

struct TraceColumn {
  std::string_view name;
  std::string_view dtype;  // as safetensors spells it
  std::int64_t element_bytes;
  bool is_per_expert;  // [rows, top_k] instead of [rows]
};

enum TraceColumnIdx : std::size_t {
  kTime = 0,
  kIds = 1,
  kWeights = 2,
  kStep = 3,
  kLayer = 4,
  kToken = 5,
  kRequest = 6,
  kPhase = 7,
};

// Widest elements first, so that every column is aligned.
inline constexpr std::array<TraceColumn, 8> kTraceColumns = {{{"time_s", "F64", 8, false},
                                                              {"ids", "I32", 4, true},
                                                              {"weights", "F32", 4, true},
                                                              {"step", "I32", 4, false},
                                                              {"layer", "I32", 4, false},
                                                              {"token", "I32", 4, false},
                                                              {"request", "I32", 4, false},
                                                              {"phase", "U8", 1, false}}};

}  // namespace moe::routing
