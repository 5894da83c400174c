#pragma once

// Published byte and parameter figures (scenarios/anchors/bytes.json) and what the model says of
// each: the list that `moe-plan verify` prints and the tests hold.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/model/architecture.hpp"
#include "lib/planner/kv.hpp"
#include "lib/planner/layout.hpp"
#include "lib/planner/weights.hpp"

namespace moe::planner {

enum class ByteAnchorKind : std::uint8_t {
  kParametersTotal,
  kParametersFiles,  // with the multi-token-prediction module and its copies
  kParametersMtp,
  kActiveWithEmbeddings,
  kActiveWithoutInputEmbedding,
  kActiveWithoutEmbeddings,
  kWeightBytes,
  kRankWeightBytes,
  kKvBytesPerToken,         // every layer keeps every token
  kKvGrowingBytesPerToken,  // layers that see the whole sequence
  kKvPoolTokens,            // tokens of a vLLM pool of `pool_bytes`
  kKvTokensBytes,           // bytes of `tokens` tokens on a rank
  kKvLlamaCppFull,          // bytes of `sequences` sequences in layers that see everything
  kKvLlamaCppWindow,        // and in window layers
  kStateBytes,
  kDeepEpBytes,
};
[[nodiscard]] std::string_view kind_name(ByteAnchorKind kind);

struct ByteAnchor {
  std::string id;
  ByteAnchorKind kind = ByteAnchorKind::kWeightBytes;
  std::string model;    // name in scenarios/models
  std::string weights;  // weight format instead of the checkpoint's; empty: the checkpoint's
  Layout layout;
  KernelPad pad = KernelPad::kNone;
  KvOptions kv;
  std::int64_t tokens = 0;
  std::int64_t pool_bytes = 0;
  double published = 0.0;
  double tolerance = 0.0;  // relative
  std::string unit;        // "bytes" or "1"
  std::string source;
};

// Throws Error(kInput) naming the anchor and the field.
[[nodiscard]] std::vector<ByteAnchor> parse_byte_anchors(std::string_view json_text,
                                                         const std::string& where);

struct ByteAnchorResult {
  double predicted = 0.0;
  double error = 0.0;  // predicted / published - 1
  bool is_inside = false;
};
// `architecture` is that of anchor.model with anchor.weights.
[[nodiscard]] ByteAnchorResult check_byte_anchor(const ByteAnchor& anchor,
                                                 const model::Architecture& architecture);

}  // namespace moe::planner
