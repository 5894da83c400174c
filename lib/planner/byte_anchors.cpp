#include "lib/planner/byte_anchors.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/base/text.hpp"
#include "lib/json/read.hpp"
#include "lib/planner/overhead.hpp"

namespace moe::planner {
namespace {

using json::Json;

struct NamedKind {
  std::string_view name;
  ByteAnchorKind kind;
  std::string_view unit;
};

constexpr auto kKinds = std::to_array<NamedKind>({
    {"parameters_total", ByteAnchorKind::kParametersTotal, "1"},
    {"parameters_files", ByteAnchorKind::kParametersFiles, "1"},
    {"parameters_mtp", ByteAnchorKind::kParametersMtp, "1"},
    {"parameters_active_with_embeddings", ByteAnchorKind::kActiveWithEmbeddings, "1"},
    {"parameters_active_without_input_embedding", ByteAnchorKind::kActiveWithoutInputEmbedding,
     "1"},
    {"parameters_active_without_embeddings", ByteAnchorKind::kActiveWithoutEmbeddings, "1"},
    {"weight_bytes", ByteAnchorKind::kWeightBytes, "bytes"},
    {"rank_weight_bytes", ByteAnchorKind::kRankWeightBytes, "bytes"},
    {"kv_bytes_per_token", ByteAnchorKind::kKvBytesPerToken, "bytes"},
    {"kv_growing_bytes_per_token", ByteAnchorKind::kKvGrowingBytesPerToken, "bytes"},
    {"kv_pool_tokens", ByteAnchorKind::kKvPoolTokens, "1"},
    {"kv_tokens_bytes", ByteAnchorKind::kKvTokensBytes, "bytes"},
    {"kv_llamacpp_full_bytes", ByteAnchorKind::kKvLlamaCppFull, "bytes"},
    {"kv_llamacpp_window_bytes", ByteAnchorKind::kKvLlamaCppWindow, "bytes"},
    {"state_bytes", ByteAnchorKind::kStateBytes, "bytes"},
    {"deepep_bytes", ByteAnchorKind::kDeepEpBytes, "bytes"},
});

[[noreturn]] void fail(const std::string& where, std::string_view field, std::string_view what) {
  throw Error(ErrorCode::kInput, fmt::format("{}: {}: {}", where, field, what));
}

std::string text(const Json& object, const char* name, const std::string& where, bool is_required) {
  const auto found = object.find(name);
  if (found == object.end() && !is_required) return {};
  if (found == object.end() || !found->is_string()) fail(where, name, "missing; expected a text");
  return found->get<std::string>();
}

double number(const Json& object, const char* name, const std::string& where, double fallback) {
  const auto found = object.find(name);
  if (found == object.end()) {
    if (fallback >= 0.0) return fallback;
    fail(where, name, "missing; expected a number");
  }
  const double value = found->is_number() ? found->get<double>() : -1.0;
  if (!(value >= 0.0) || value > 1e16) fail(where, name, "expected a number from 0 to 1e16");
  return value;
}

std::int32_t count(const Json& object, const char* name, const std::string& where,
                   std::int32_t fallback) {
  const double value = number(object, name, where, fallback);
  if (value != std::floor(value) || value > 1e9) fail(where, name, "expected a whole number");
  return static_cast<std::int32_t>(value);
}

ByteAnchor read_anchor(const Json& object, const std::string& where) {
  ByteAnchor anchor;
  anchor.id = text(object, "id", where, true);
  const std::string named = fmt::format("{} \"{}\"", where, printable(anchor.id));
  const std::string kind = text(object, "kind", named, true);
  const auto found = std::ranges::find(kKinds, kind, &NamedKind::name);
  if (found == kKinds.end())
    fail(named, "kind", fmt::format("\"{}\" is not known", printable(kind)));
  anchor.kind = found->kind;
  anchor.unit = found->unit;
  anchor.model = text(object, "model", named, true);
  anchor.weights = text(object, "weights", named, false);
  anchor.source = text(object, "source", named, true);
  anchor.published = number(object, "published", named, -1.0);
  if (!(anchor.published > 0.0)) fail(named, "published", "expected more than 0");
  anchor.tolerance = number(object, "tolerance", named, -1.0);
  anchor.layout.tp = count(object, "tp", named, 1);
  anchor.layout.dp = count(object, "dp", named, 1);
  anchor.layout.pp = count(object, "pp", named, 1);
  anchor.layout.ep = count(object, "ep", named, 1);
  anchor.layout.redundant_experts = count(object, "redundant_experts", named, 0);
  anchor.tokens = static_cast<std::int64_t>(number(object, "tokens", named, 0.0));
  anchor.pool_bytes = static_cast<std::int64_t>(number(object, "pool_bytes", named, 0.0));
  if (const std::string pad = text(object, "kernel_pad", named, false); !pad.empty()) {
    anchor.pad = parse_kernel_pad(pad);
  }
  if (const std::string dtype = text(object, "kv_dtype", named, false); !dtype.empty()) {
    anchor.kv.dtype = parse_kv_dtype(dtype);
  }
  const auto expanded = object.find("mla_expanded");
  anchor.kv.is_mla_expanded =
      expanded != object.end() && expanded->is_boolean() && expanded->get<bool>();
  anchor.kv.num_sequences = count(object, "sequences", named, 1);
  anchor.kv.max_batched_tokens = count(object, "max_batched_tokens", named, 8192);
  return anchor;
}

StageRange all_layers(const model::Architecture& architecture) {
  return {0, static_cast<std::int32_t>(architecture.layers.size())};
}

double llamacpp_bytes(const ByteAnchor& anchor, const model::Architecture& architecture,
                      bool is_window) {
  KvOptions options = anchor.kv;
  options.manager = KvManager::kLlamaCpp;
  double bytes = 0.0;
  for (std::int32_t at = 0; at < static_cast<std::int32_t>(architecture.layers.size()); ++at) {
    const bool has_window = architecture.layers[static_cast<std::size_t>(at)].mixer.window > 0;
    if (has_window != is_window) continue;
    bytes += static_cast<double>(
        request_bytes(architecture, anchor.layout, options, {at, at + 1}, anchor.tokens));
  }
  return bytes * static_cast<double>(anchor.kv.num_sequences);
}

std::int32_t num_experts(const model::Architecture& architecture) {
  std::int32_t experts = 0;
  for (const model::LayerSpec& layer : architecture.layers) {
    experts = std::max(experts, layer.ffn.num_experts);
  }
  return experts;
}

double weights_of(const ByteAnchor& anchor, const model::Architecture& architecture) {
  WeightOptions options;
  options.pad = anchor.pad;
  std::int64_t worst = 0;
  for (const StageWeights& stage : stage_weights(architecture, anchor.layout, options)) {
    worst = std::max(worst, stage.worst_rank);
  }
  return static_cast<double>(worst);
}

double predict(const ByteAnchor& anchor, const model::Architecture& architecture) {
  const model::ParameterSummary counts = model::count_parameters(architecture);
  const KvPerToken kv =
      kv_per_token(architecture, anchor.layout, anchor.kv, all_layers(architecture));
  switch (anchor.kind) {
    case ByteAnchorKind::kParametersTotal:
      return static_cast<double>(counts.total);
    case ByteAnchorKind::kParametersFiles:
      return static_cast<double>(counts.total + counts.mtp + counts.mtp_copies);
    case ByteAnchorKind::kParametersMtp:
      return static_cast<double>(counts.mtp);
    case ByteAnchorKind::kActiveWithEmbeddings:
      return static_cast<double>(counts.active_with_embeddings);
    case ByteAnchorKind::kActiveWithoutInputEmbedding:
      return static_cast<double>(counts.active_without_input_embedding);
    case ByteAnchorKind::kActiveWithoutEmbeddings:
      return static_cast<double>(counts.active_without_embeddings);
    case ByteAnchorKind::kWeightBytes:
      return static_cast<double>(architecture.weight_bytes());
    case ByteAnchorKind::kRankWeightBytes:
      return weights_of(anchor, architecture);
    case ByteAnchorKind::kKvBytesPerToken:
      return kv.uniform();
    case ByteAnchorKind::kKvGrowingBytesPerToken:
      return kv.growing;
    case ByteAnchorKind::kKvPoolTokens:
      return std::floor(static_cast<double>(anchor.pool_bytes) /
                        (kv.uniform() * anchor.kv.block_tokens)) *
             anchor.kv.block_tokens;
    case ByteAnchorKind::kKvTokensBytes:
      return kv.uniform() * static_cast<double>(anchor.tokens);
    case ByteAnchorKind::kKvLlamaCppFull:
      return llamacpp_bytes(anchor, architecture, false);
    case ByteAnchorKind::kKvLlamaCppWindow:
      return llamacpp_bytes(anchor, architecture, true);
    case ByteAnchorKind::kStateBytes:
      return static_cast<double>(kv.state);
    case ByteAnchorKind::kDeepEpBytes:
      return static_cast<double>(deepep_low_latency_bytes(
          architecture.hidden_size, num_experts(architecture) + anchor.layout.redundant_experts,
          anchor.tokens));
  }
  MOE_CHECK(false);
}

}  // namespace

std::string_view kind_name(ByteAnchorKind kind) {
  const auto found = std::ranges::find(kKinds, kind, &NamedKind::kind);
  MOE_CHECK(found != kKinds.end());
  return found->name;
}

std::vector<ByteAnchor> parse_byte_anchors(std::string_view json_text, const std::string& where) {
  const Json document = json::parse(json_text, where);
  const auto list = document.is_object() ? document.find("anchors") : document.end();
  if (list == document.end() || !list->is_array()) {
    throw Error(ErrorCode::kInput, where + ": expected an object with a list \"anchors\"");
  }
  std::vector<ByteAnchor> anchors;
  for (std::size_t at = 0; at < list->size(); ++at) {
    const std::string entry = fmt::format("{}: anchor {}", where, at);
    if (!(*list)[at].is_object()) throw Error(ErrorCode::kInput, entry + ": expected an object");
    anchors.push_back(read_anchor((*list)[at], entry));
  }
  return anchors;
}

ByteAnchorResult check_byte_anchor(const ByteAnchor& anchor,
                                   const model::Architecture& architecture) {
  ByteAnchorResult result;
  result.predicted = predict(anchor, architecture);
  result.error = result.predicted / anchor.published - 1.0;
  result.is_inside =
      std::abs(result.predicted - anchor.published) <= anchor.tolerance * anchor.published;
  return result;
}

}  // namespace moe::planner
