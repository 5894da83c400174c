// Feed-forward blocks: routed experts with an optional shared one, and dense layers.

#include <algorithm>
#include <cmath>

#include "lib/engine/layer_context.hpp"
#include "lib/engine/router.hpp"

namespace moe::engine {
namespace {

using kernels::ActivationFormat;
using model::ModelConfig;

// Gathers the feed-forward blocks of a layer, each with the rows it works on, then runs all of them
// in two parallel regions: gate and up, and down.
class FfnBatch {
 public:
  explicit FfnBatch(const LayerContext& context)
      : context_(context), glu_(context.ws.glu.data()), down_(context.ws.down.data()) {
    context.ws.gate_up_calls.clear();
    context.ws.linear_calls.clear();
    context.ws.int8_h.clear();
    context.ws.int8_first_row.clear();
  }

  // Results go to the next `num_rows` rows of ws.down. x_rows as in GemmArgs.
  void add(const FfnWeights& weights, const Activations& x, const std::int32_t* x_rows,
           std::int64_t num_rows) {
    const ModelConfig& config = context_.config;
    Exec& exec = context_.exec;
    // The product of gate and up is written in the format that down reads. Rows of odd length have
    // no clean partner for their last column in the bf16 kernels.
    const bool use_bf16 = reads_bf16(exec, weights.gate_up) && reads_bf16(exec, weights.down) &&
                          weights.intermediate % 2 == 0;
    const std::int64_t stride = ActivationBuffer::padded_cols(weights.intermediate);
    auto* const h_f32 = reinterpret_cast<float*>(glu_);
    auto* const h_bf16 = reinterpret_cast<std::uint16_t*>(glu_);
    GateUpCall gate_up;
    gate_up.weight = &weights.gate_up;
    gate_up.x = x;
    gate_up.x_rows = x_rows;
    gate_up.num_rows = num_rows;
    gate_up.activations = use_bf16 ? ActivationFormat::kBf16
                          : reads_int8(exec, weights.gate_up) && x.int8.fit(weights.gate_up)
                              ? ActivationFormat::kInt8
                              : ActivationFormat::kF32;
    gate_up.glu = config.activation == model::Activation::kGptOssGlu ? kernels::GluKind::kGptOss
                                                                     : kernels::GluKind::kSilu;
    gate_up.limit = static_cast<float>(config.swiglu_limit);
    gate_up.alpha = static_cast<float>(config.swiglu_alpha);
    gate_up.gate_bias = weights.gate_bias.empty() ? nullptr : weights.gate_bias.data();
    gate_up.up_bias = weights.up_bias.empty() ? nullptr : weights.up_bias.data();
    gate_up.h_f32 = h_f32;
    gate_up.h_bf16 = h_bf16;
    gate_up.h_stride = stride;
    gate_up.intermediate = weights.intermediate;
    context_.ws.gate_up_calls.push_back(gate_up);
    Activations h{h_f32, use_bf16 ? h_bf16 : nullptr, stride};
    if (exec.activations == ActivationFormat::kInt8) {
      if (reads_int8(exec, weights.down)) h.int8 = context_.ws.int8_h.take(num_rows, weights.down);
      context_.ws.int8_first_row.push_back(num_rows_);
      num_rows_ += num_rows;
      widest_ = std::max(widest_, weights.intermediate);
    }
    context_.ws.linear_calls.push_back(
        {&weights.down, h, nullptr, num_rows,
         weights.down_bias.empty() ? nullptr : weights.down_bias.data(), down_,
         config.hidden_size});
    glu_ += num_rows * stride * static_cast<std::int64_t>(sizeof(float));
    down_ += num_rows * config.hidden_size;
  }

  void run() {
    run_gate_up(context_.exec, context_.ws.gate_up_calls);
    if (num_rows_ > 0) quantize_hidden();
    run_linear(context_.exec, context_.ws.linear_calls);
  }

  // One block after another, the activation apart: see MoePath.
  void run_unfused() {
    Workspace& ws = context_.ws;
    for (std::size_t i = 0; i < ws.gate_up_calls.size(); ++i) {
      const GateUpCall& call = ws.gate_up_calls[i];
      const std::int64_t stride = call.weight->rows;
      Activations x = call.x;
      if (call.activations != ActivationFormat::kBf16) x.bf16 = nullptr;
      if (call.activations != ActivationFormat::kInt8) x.int8 = {};
      const LinearCall product{call.weight,       x,     call.x_rows, call.num_rows, nullptr,
                               ws.gate_up.data(), stride};
      run_linear(context_.exec, {&product, 1});
      for_each_row(context_.exec, call.num_rows, 4 * call.intermediate, [&](std::int64_t row) {
        activate(call, row, ws.gate_up.data() + row * stride);
      });
      const LinearCall& down = ws.linear_calls[i];
      if (down.x.int8.codes != nullptr) {
        for_each_row(context_.exec, down.num_rows, 2 * call.intermediate,
                     [&](std::int64_t row) { quantize_row(down, row); });
      }
      run_linear(context_.exec, {&down, 1});
    }
  }

 private:
  void quantize_row(const LinearCall& down, std::int64_t row) const {
    down.x.int8.quantize(*context_.exec.kernels, row, down.x.f32 + row * down.x.stride);
  }

  // The rows of all calls that the down projections read as int8.
  void quantize_hidden() const {
    const Workspace& ws = context_.ws;
    for_each_row(context_.exec, num_rows_, 2 * widest_, [&](std::int64_t row) {
      const auto after = std::upper_bound(ws.int8_first_row.begin(), ws.int8_first_row.end(), row);
      const auto idx = static_cast<std::size_t>(after - ws.int8_first_row.begin()) - 1;
      const LinearCall& down = ws.linear_calls[idx];
      if (down.x.int8.codes != nullptr) quantize_row(down, row - ws.int8_first_row[idx]);
    });
  }

  // h of one row. `products` holds 16 of gate and 16 of up by turns; the result is made in its
  // place, which never overtakes what is still to be read.
  void activate(const GateUpCall& call, std::int64_t row, float* products) const {
    constexpr std::int64_t kLanes = kernels::kPanelRows;
    for (std::int64_t i = 0; i < call.intermediate; ++i) {
      const std::int64_t at = i / kLanes * 2 * kLanes + i % kLanes;
      const float gate = products[at] + (call.gate_bias == nullptr ? 0.0F : call.gate_bias[i]);
      const float up = products[at + kLanes] + (call.up_bias == nullptr ? 0.0F : call.up_bias[i]);
      products[i] = glu(call, gate, up);
    }
    if (call.activations == ActivationFormat::kBf16) {
      context_.exec.kernels->f32_to_bf16(products, call.intermediate,
                                         call.h_bf16 + row * call.h_stride);
    } else {
      std::copy_n(products, call.intermediate, call.h_f32 + row * call.h_stride);
    }
  }

  static float glu(const GateUpCall& call, float gate, float up) {
    if (call.glu == kernels::GluKind::kSilu) return gate / (1.0F + std::exp(-gate)) * up;
    const float clamped = std::min(gate, call.limit);
    return clamped / (1.0F + std::exp(-call.alpha * clamped)) *
           (std::clamp(up, -call.limit, call.limit) + 1.0F);
  }

  const LayerContext& context_;
  std::byte* glu_;
  float* down_;
  // int8 activations: rows of all calls, and the longest.
  std::int64_t num_rows_ = 0;
  std::int64_t widest_ = 0;
};

// Router logits and choices of every row.
void choose_experts(const LayerContext& context, std::int64_t num_rows) {
  Exec& exec = context.exec;
  Workspace& ws = context.ws;
  const model::MoeConfig& moe = context.config.moe;
  const std::int64_t num_experts = moe.num_experts;
  // The router reads unrounded activations whatever the mode.
  const Activations x{ws.normed.view().f32, nullptr, ws.normed.stride()};
  const std::vector<float>& bias = context.weights.router_bias;
  const LinearCall call{
      &context.weights.router, x,          nullptr, num_rows, bias.empty() ? nullptr : bias.data(),
      ws.router_logits.data(), num_experts};
  run_linear(exec, {&call, 1});
  const std::vector<float>& correction = context.weights.correction_bias;
  for_each_row(exec, num_rows, 8 * num_experts, [&](std::int64_t row) {
    route(moe.router,
          {ws.router_logits.data() + row * num_experts, static_cast<std::size_t>(num_experts)},
          correction.empty() ? nullptr : correction.data(), context.top_k,
          ws.router_scratch.data() + row * ws.router_scratch_stride,
          ws.expert_ids.data() + row * context.top_k,
          ws.expert_weights.data() + row * context.top_k);
  });
}

// Counting sort of the choices by expert; rows of an expert stay in token order.
void sort_by_expert(const LayerContext& context, std::int64_t num_rows) {
  Workspace& ws = context.ws;
  const std::int64_t num_choices = num_rows * context.top_k;
  std::vector<std::int32_t>& begin = ws.expert_begin;
  std::fill(begin.begin(), begin.end(), 0);
  for (std::int64_t i = 0; i < num_choices; ++i) {
    ++begin[static_cast<std::size_t>(ws.expert_ids[i]) + 1];
  }
  ForwardStats& stats = *context.exec.stats;
  std::vector<std::int32_t>& expert_tokens =
      stats.expert_tokens[static_cast<std::size_t>(context.layer)];
  std::int32_t num_distinct = 0;
  for (std::size_t expert = 0; expert + 1 < begin.size(); ++expert) {
    const std::int32_t count = begin[expert + 1];
    expert_tokens[expert] += count;
    num_distinct += count > 0 ? 1 : 0;
    begin[expert + 1] += begin[expert];
    ws.expert_cursor[expert] = begin[expert];
  }
  stats.distinct_experts[static_cast<std::size_t>(context.layer)] = num_distinct;
  for (std::int64_t i = 0; i < num_choices; ++i) {
    const std::int32_t sorted = ws.expert_cursor[static_cast<std::size_t>(ws.expert_ids[i])]++;
    ws.sorted_rows[sorted] = static_cast<std::int32_t>(i / context.top_k);
    ws.sorted_slot[i] = sorted;
  }
}

// The inputs of the experts in sorted order, each times its weight.
void weight_inputs(const LayerContext& context, std::int64_t num_rows) {
  Exec& exec = context.exec;
  Workspace& ws = context.ws;
  const std::int64_t hidden = context.config.hidden_size;
  for_each_row(exec, num_rows * context.top_k, 2 * hidden, [&](std::int64_t choice) {
    const std::int64_t sorted = ws.sorted_slot[choice];
    const float* const x = ws.normed.f32(choice / context.top_k);
    float* const out = ws.weighted.f32(sorted);
    const float weight = ws.expert_weights[choice];
    for (std::int64_t i = 0; i < hidden; ++i) out[i] = weight * x[i];
    ws.weighted.round(*exec.kernels, sorted, 0, hidden);
  });
}

void run_experts(const LayerContext& context, std::int64_t num_rows) {
  Workspace& ws = context.ws;
  const bool is_weighted = context.config.moe.weight_on_input;
  if (is_weighted) weight_inputs(context, num_rows);
  const FfnWeights& shared = context.weights.shared;
  const Activations x = with_int8(context.exec, context.weights.experts.front().gate_up,
                                  is_weighted ? ws.weighted.view() : ws.normed.view(),
                                  is_weighted ? num_rows * context.top_k : num_rows, ws.int8_x);
  FfnBatch batch(context);
  for (std::size_t expert = 0; expert < context.weights.experts.size(); ++expert) {
    const std::int64_t begin = ws.expert_begin[expert];
    const std::int64_t count = ws.expert_begin[expert + 1] - begin;
    if (count == 0) continue;
    const FfnWeights& weights = context.weights.experts[expert];
    if (is_weighted) {
      batch.add(weights, x.from_row(begin), nullptr, count);
    } else {
      batch.add(weights, x, ws.sorted_rows.data() + begin, count);
    }
    context.exec.stats->expert_weight_bytes_read +=
        packed_bytes(weights.gate_up) + packed_bytes(weights.down);
  }
  if (shared.intermediate > 0) {
    const bool shares_x = !is_weighted && x.int8.fit(shared.gate_up);
    batch.add(shared,
              shares_x ? x
                       : with_int8(context.exec, shared.gate_up, ws.normed.view(), num_rows,
                                   ws.int8_shared),
              nullptr, num_rows);
  }
  if (context.exec.moe_path == MoePath::kUnfused) {
    batch.run_unfused();
  } else {
    batch.run();
  }
}

// Weighted sum over a row's choices, best first, then the shared expert; always in this order. The
// residual takes it in while it is in the cache.
void combine(const LayerContext& context, std::int64_t num_rows) {
  Exec& exec = context.exec;
  Workspace& ws = context.ws;
  const std::int64_t hidden = context.config.hidden_size;
  const std::int32_t top_k = context.top_k;
  const bool has_shared = context.weights.shared.intermediate > 0;
  const bool is_weighted = context.config.moe.weight_on_input;  // already
  const std::vector<float>& gate = context.weights.shared_gate;
  const auto multiplier = static_cast<float>(context.config.residual_multiplier);
  for_each_row(exec, num_rows, (top_k + 1) * hidden, [&](std::int64_t row) {
    float* const out = ws.block.f32(row);
    std::fill_n(out, hidden, 0.0F);
    for (std::int64_t choice = row * top_k; choice < (row + 1) * top_k; ++choice) {
      exec.kernels->axpy(is_weighted ? 1.0F : ws.expert_weights[choice],
                         ws.down.data() + ws.sorted_slot[choice] * hidden, hidden, out);
    }
    if (has_shared) {
      float scale = 1.0F;
      if (!gate.empty()) {
        const float logit = exec.kernels->dot(gate.data(), ws.normed.f32(row), hidden);
        scale = 1.0F / (1.0F + std::exp(-logit));
      }
      exec.kernels->axpy(scale, ws.down.data() + (num_rows * top_k + row) * hidden, hidden, out);
    }
    exec.kernels->axpy(multiplier, out, hidden, ws.residual.f32(row));
  });
}

}  // namespace

void moe_block(const LayerContext& context, std::int64_t num_rows) {
  Exec& exec = context.exec;
  Workspace& ws = context.ws;
  const std::int64_t hidden = context.config.hidden_size;
  {
    const StageTimer timer(exec, Stage::kRouter);
    norm_residual(exec, context.config, context.weights.post_attention_norm, num_rows, ws);
    choose_experts(context, num_rows);
    sort_by_expert(context, num_rows);
  }
  observe(exec, "router_in", context.layer, ws.normed.f32(0), num_rows, hidden, ws.normed.stride());
  observe(exec, "router_logits", context.layer, ws.router_logits.data(), num_rows,
          context.config.moe.num_experts, context.config.moe.num_experts);
  if (exec.routing_observer != nullptr) {
    exec.routing_observer->on_routing(context.layer, num_rows, context.top_k, ws.expert_ids.data(),
                                      ws.expert_weights.data(), context.pass.sequences.data(),
                                      context.pass.positions.data());
  }
  {
    const StageTimer timer(exec, Stage::kExperts);
    run_experts(context, num_rows);
  }
  {
    const StageTimer timer(exec, Stage::kCombine);
    combine(context, num_rows);
    observe(exec, "moe_out", context.layer, ws.block.f32(0), num_rows, hidden, ws.block.stride());
  }
}

void dense_block(const LayerContext& context, std::int64_t num_rows) {
  Exec& exec = context.exec;
  Workspace& ws = context.ws;
  const std::int64_t hidden = context.config.hidden_size;
  const StageTimer timer(exec, Stage::kDense);
  norm_residual(exec, context.config, context.weights.post_attention_norm, num_rows, ws);
  FfnBatch batch(context);
  batch.add(context.weights.dense,
            with_int8(exec, context.weights.dense.gate_up, ws.normed.view(), num_rows, ws.int8_x),
            nullptr, num_rows);
  batch.run();
  observe(exec, "mlp_out", context.layer, ws.down.data(), num_rows, hidden, hidden);
  const auto multiplier = static_cast<float>(context.config.residual_multiplier);
  for_each_row(exec, num_rows, 2 * hidden, [&](std::int64_t row) {
    exec.kernels->axpy(multiplier, ws.down.data() + row * hidden, hidden, ws.residual.f32(row));
  });
}

}  // namespace moe::engine
