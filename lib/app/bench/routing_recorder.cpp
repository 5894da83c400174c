#include "lib/app/bench/routing_recorder.hpp"

#include <algorithm>

#include "lib/base/check.hpp"

namespace moe::app {
namespace {

routing::TraceInfo trace_info(const std::string& model_name, const model::ModelConfig& config,
                              std::int32_t top_k) {
  routing::TraceInfo info;
  info.model = model_name;
  info.num_layers = config.num_hidden_layers;
  info.num_experts = config.moe.num_experts;
  info.top_k = top_k;
  info.extra["writer"] = "moe-bench run";
  info.extra["last_layer_of_prefill"] = "only the tokens whose logits were wanted";
  return info;
}

}  // namespace

RoutingRecorder::RoutingRecorder(const std::string& file, const std::string& model_name,
                                 const model::ModelConfig& config, std::int32_t top_k,
                                 const Clock& clock)
    : writer_(file, trace_info(model_name, config, top_k)),
      clock_(&clock),
      top_k_(top_k),
      num_moe_layers_(std::count_if(config.layers.begin(), config.layers.end(),
                                    [](const model::LayerConfig& layer) { return layer.is_moe; })),
      begin_s_(clock.now_s()) {}

void RoutingRecorder::begin_repetition(const BenchPoint& point) {
  prompt_tokens_ = point.prompt_tokens;
  num_requests_ = static_cast<std::int32_t>(point.batch);
  writer_.reserve(point.batch * (point.prompt_tokens + point.output_tokens) * num_moe_layers_);
  requests_.reserve(static_cast<std::size_t>(point.batch * point.prompt_tokens));
  last_layer_ = -1;
  ++step_;
}

void RoutingRecorder::end_repetition() {
  writer_.flush();
  request_base_ += num_requests_;
}

void RoutingRecorder::commit() {
  writer_.commit();
}

void RoutingRecorder::on_routing(int layer, std::int64_t num_tokens, int top_k,
                                 const std::int32_t* ids, const float* weights,
                                 const engine::SequenceId* sequences,
                                 const std::int64_t* positions) {
  MOE_CHECK(top_k == top_k_);
  if (layer <= last_layer_) ++step_;
  last_layer_ = layer;
  requests_.clear();
  for (std::int64_t t = 0; t < num_tokens; ++t) requests_.push_back(request_base_ + sequences[t]);
  // The phases do not mix within a pass, but a pass may start with the last prompt tokens.
  std::int64_t begin = 0;
  while (begin < num_tokens) {
    const bool is_prefill = positions[begin] < prompt_tokens_;
    std::int64_t end = begin + 1;
    while (end < num_tokens && (positions[end] < prompt_tokens_) == is_prefill) ++end;
    flush_rows(begin, end, ids, weights, positions,
               is_prefill ? routing::Phase::kPrefill : routing::Phase::kDecode, layer);
    begin = end;
  }
}

void RoutingRecorder::flush_rows(std::int64_t begin, std::int64_t end, const std::int32_t* ids,
                                 const float* weights, const std::int64_t* positions,
                                 routing::Phase phase, int layer) {
  routing::TraceWriter::Rows rows;
  rows.num_tokens = end - begin;
  rows.ids = ids + begin * top_k_;
  rows.weights = weights + begin * top_k_;
  rows.request = requests_.data() + begin;
  rows.token = positions + begin;
  rows.step = step_;
  rows.layer = layer;
  rows.phase = phase;
  rows.time_s = clock_->now_s() - begin_s_;
  writer_.append(rows);
}

}  // namespace moe::app
