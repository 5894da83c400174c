#include "lib/planner/throughput_anchors.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/base/text.hpp"
#include "lib/json/read.hpp"
#include "lib/planner/measured_json.hpp"

namespace moe::planner {
namespace {

std::int32_t ranks_at(const json::Json& entry, const char* key, const std::string& where) {
  return static_cast<std::int32_t>(number_or(entry, key, 1.0, 1.0, 65536.0, where));
}

ThroughputAnchor parse_anchor(const json::Json& entry, const std::string& where) {
  ThroughputAnchor anchor;
  anchor.id = text_at(entry, "id", where);
  const std::string kind = text_at(entry, "kind", where);
  if (kind != "decode" && kind != "prefill") {
    throw Error(ErrorCode::kInput, fmt::format("{}: expected kind decode or prefill, found \"{}\"",
                                               where, printable(kind)));
  }
  anchor.kind = kind == "decode" ? AnchorKind::kDecode : AnchorKind::kPrefill;
  anchor.model = text_at(entry, "model", where);
  anchor.weights = text_or(entry, "weights", "", where);
  anchor.gpu = text_at(entry, "gpu", where);
  anchor.engine = text_at(entry, "engine", where);
  anchor.layout.tp = ranks_at(entry, "tp", where);
  anchor.layout.dp = ranks_at(entry, "dp", where);
  anchor.layout.ep = ranks_at(entry, "ep", where);
  anchor.layout.redundant_experts =
      static_cast<std::int32_t>(number_or(entry, "redundant_experts", 0.0, 0.0, 65536.0, where));
  anchor.layout.has_replicated_shared = anchor.layout.dp > 1;
  anchor.context_tokens = number_at(entry, "context_tokens", 1.0, 1e8, where);
  if (anchor.kind == AnchorKind::kDecode) {
    anchor.batch_per_rank = number_at(entry, "batch_per_rank", 1.0, 1e6, where);
  } else {
    anchor.pass_tokens = number_at(entry, "pass_tokens", 1.0, 1e8, where);
  }
  anchor.tokens_per_s_per_gpu = number_at(entry, "tokens_per_s_per_gpu", 1e-3, 1e9, where);
  anchor.scale_out_bytes_per_s = number_or(entry, "scale_out_bytes_per_s", 50e9, 1e6, 1e13, where);
  anchor.source = text_at(entry, "source", where);
  anchor.outside_reason = text_or(entry, "outside_reason", "", where);
  if (entry.contains("assumptions")) {
    for (const json::Json& line : array_at(entry, "assumptions", where)) {
      if (!line.is_string()) {
        throw Error(ErrorCode::kInput, where + ": expected \"assumptions\" to hold texts");
      }
      anchor.assumptions.push_back(line.get<std::string>());
    }
  }
  return anchor;
}

}  // namespace

std::vector<ThroughputAnchor> parse_throughput_anchors(std::string_view json_text,
                                                       const std::string& where) {
  const json::Json document = json::parse(json_text, where);
  std::vector<ThroughputAnchor> anchors;
  std::size_t index = 0;
  for (const json::Json& entry : array_at(document, "anchors", where)) {
    anchors.push_back(parse_anchor(entry, fmt::format("{}: anchors[{}]", where, index++)));
  }
  return anchors;
}

AnchorResult check_anchor(const ThroughputAnchor& anchor, const model::Architecture& architecture,
                          const Accelerator& gpu, const MeasuredTimes& measured) {
  StepSetup setup;
  setup.engine = parse_engine(anchor.engine);
  setup.network.bytes_per_s = anchor.scale_out_bytes_per_s;
  setup.network.is_assumed = false;
  const StepModel model(architecture, anchor.layout, gpu, setup, measured);
  AnchorResult result;
  result.anchor = &anchor;
  result.defaults = model.defaults();
  const double attention_ranks_per_gpu = 1.0 / anchor.layout.tp;
  StepTime time;
  double tokens = 0.0;
  if (anchor.kind == AnchorKind::kDecode) {
    time = model.decode(anchor.batch_per_rank, anchor.context_tokens);
    tokens = anchor.batch_per_rank * attention_ranks_per_gpu;
  } else {
    // A pass holds whole prompts, each of which attends to itself only.
    const double prompts = std::max(1.0, anchor.pass_tokens / anchor.context_tokens);
    time = model.prefill(anchor.pass_tokens / prompts, 1.0 / prompts);
    tokens = anchor.pass_tokens / prompts * attention_ranks_per_gpu;
  }
  result.limiting = time.limiting();
  result.predicted = tokens / time.value_s;
  result.low = tokens / time.no_overlap_s;
  result.high = tokens / time.full_overlap_s;
  result.is_inside =
      anchor.tokens_per_s_per_gpu >= result.low && anchor.tokens_per_s_per_gpu <= result.high;
  return result;
}

}  // namespace moe::planner
