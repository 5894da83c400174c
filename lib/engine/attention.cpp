#include <algorithm>
#include <cmath>
#include <cstring>

#include "lib/engine/layer_context.hpp"

namespace moe::engine {
namespace {

// (query, head) pairs of an item when there are many queries: as many as share one pass over the
// keys in the vector kernels.
constexpr std::int64_t kPairsPerItem = 48;

}  // namespace

void apply_norm(const Exec& exec, const model::ModelConfig& config, const NormWeights& norm,
                const float* x, float* y) {
  const std::int64_t size = config.hidden_size;
  const auto eps = static_cast<float>(config.norm_eps);
  if (config.norm == model::NormKind::kRms) {
    exec.kernels->rms_norm(x, norm.weight.data(), size, eps, y);
    return;
  }
  double sum = 0.0;
  for (std::int64_t i = 0; i < size; ++i) sum += static_cast<double>(x[i]);
  const double mean = sum / static_cast<double>(size);
  double squares = 0.0;
  for (std::int64_t i = 0; i < size; ++i) {
    const double delta = static_cast<double>(x[i]) - mean;
    squares += delta * delta;
  }
  const double scale = 1.0 / std::sqrt(squares / static_cast<double>(size) + config.norm_eps);
  for (std::int64_t i = 0; i < size; ++i) {
    const auto unit = static_cast<float>((static_cast<double>(x[i]) - mean) * scale);
    y[i] = unit * norm.weight[static_cast<std::size_t>(i)];
    if (!norm.bias.empty()) y[i] += norm.bias[static_cast<std::size_t>(i)];
  }
}

void norm_residual(Exec& exec, const model::ModelConfig& config, const NormWeights& norm,
                   std::int64_t num_rows, Workspace& ws) {
  for_each_row(exec, num_rows, std::int64_t{2} * config.hidden_size, [&](std::int64_t row) {
    apply_norm(exec, config, norm, ws.residual.f32(row), ws.normed.f32(row));
    ws.normed.round(*exec.kernels, row, 0, config.hidden_size);
  });
}

void add_block_to_residual(Exec& exec, const model::ModelConfig& config, std::int64_t num_rows,
                           Workspace& ws) {
  const auto multiplier = static_cast<float>(config.residual_multiplier);
  for_each_row(exec, num_rows, std::int64_t{2} * config.hidden_size, [&](std::int64_t row) {
    exec.kernels->axpy(multiplier, ws.block.f32(row), config.hidden_size, ws.residual.f32(row));
  });
}

void observe(const Exec& exec, std::string_view name, int layer, const float* data,
             std::int64_t rows, std::int64_t cols, std::int64_t stride) {
  if (exec.tensor_observer == nullptr) return;
  std::vector<float> dense(static_cast<std::size_t>(rows * cols));
  for (std::int64_t row = 0; row < rows; ++row) {
    std::copy_n(data + row * stride, cols, dense.data() + row * cols);
  }
  exec.tensor_observer->on_tensor(name, layer, dense.data(), rows, cols);
}

void plan_attention_items(const LayerContext& context, std::int64_t heads_per_kv,
                          std::int64_t heads_per_item) {
  std::vector<AttentionItem>& items = context.ws.attention_items;
  const std::vector<Run>& runs = context.pass.runs;
  const std::int64_t num_heads = context.config.attention.num_heads;
  const std::int64_t max_queries = std::max<std::int64_t>(1, kPairsPerItem / heads_per_item);
  // Queries of an item share their first key: they lie in one chunk.
  const std::int64_t chunk = context.config.layers[static_cast<std::size_t>(context.layer)].chunk;
  const std::int64_t num_out = context.num_out_rows();
  items.clear();
  std::size_t run = 0;
  for (std::int64_t out = 0; out < num_out;) {
    const std::int64_t row = context.pass_row(out);
    while (row >= runs[run].first_row + runs[run].num_rows) ++run;
    const std::int64_t run_end = runs[run].first_row + runs[run].num_rows;
    const std::int64_t position = context.pass.positions[static_cast<std::size_t>(row)];
    const std::int64_t most =
        chunk > 0 ? std::min(max_queries, chunk - position % chunk) : max_queries;
    std::int64_t queries = 1;
    while (queries < most && out + queries < num_out && row + queries < run_end &&
           context.pass_row(out + queries) == row + queries) {
      ++queries;
    }
    for (std::int64_t head = 0; head < num_heads; head += heads_per_item) {
      items.push_back({static_cast<std::int32_t>(run), static_cast<std::int32_t>(row),
                       static_cast<std::int32_t>(out), static_cast<std::int32_t>(queries),
                       static_cast<std::int32_t>(head / heads_per_kv),
                       static_cast<std::int32_t>(head),
                       static_cast<std::int32_t>(std::min(heads_per_item, num_heads - head))});
    }
    out += queries;
  }
}

void count_attention(const LayerContext& context, std::int64_t k_dim, std::int64_t v_dim) {
  const model::LayerConfig& layer = context.config.layers[static_cast<std::size_t>(context.layer)];
  const std::int64_t window = layer.window;
  const std::int64_t chunk = layer.chunk;
  const auto visible = [&](std::int64_t position) {
    if (chunk > 0) return position % chunk + 1;
    return window > 0 ? std::min<std::int64_t>(window, position + 1) : position + 1;
  };
  ForwardStats& stats = *context.exec.stats;
  for (const Run& run : context.pass.runs) {
    // The keys of the first query of the run and those of the run itself.
    const std::int64_t keys = visible(run.first_position) + run.num_rows - 1;
    stats.kv_bytes_read += keys * context.kv.bytes_per_position();
  }
  const std::int64_t per_pair = 2 * (k_dim + v_dim) * context.config.attention.num_heads;
  for (std::int64_t out = 0; out < context.num_out_rows(); ++out) {
    const auto row = static_cast<std::size_t>(context.pass_row(out));
    stats.flops += per_pair * visible(context.pass.positions[row]);
  }
}

namespace {

void project_input(const LayerContext& context) {
  const AttentionWeights& attention = context.weights.attention;
  Workspace& ws = context.ws;
  const std::int64_t num_rows = context.pass.num_rows();
  std::int64_t first_output = 0;
  for (const kernels::PackedMatrix& matrix : attention.input) {
    const LinearCall call{
        &matrix,
        with_int8(context.exec, matrix, ws.normed.view(), num_rows, ws.int8_x),
        nullptr,
        num_rows,
        attention.input_bias.empty() ? nullptr : attention.input_bias.data() + first_output,
        ws.input.f32(0) + first_output,
        ws.input.stride()};
    run_linear(context.exec, {&call, 1});
    first_output += padded_rows(matrix.rows);
  }
}

}  // namespace

void attention_block(const LayerContext& context) {
  const StageTimer timer(context.exec, Stage::kAttention);
  const model::ModelConfig& config = context.config;
  Workspace& ws = context.ws;
  norm_residual(context.exec, config, context.weights.input_norm, context.pass.num_rows(), ws);
  const AttentionWeights& attention = context.weights.attention;
  project_input(context);
  if (config.attention.is_mla) {
    attend_mla(context);
  } else {
    attend_gqa(context);
  }
  const std::int64_t num_out = context.num_out_rows();
  const LinearCall output{
      &attention.output,
      with_int8(context.exec, attention.output, ws.output.view(), num_out, ws.int8_x),
      nullptr,
      num_out,
      attention.output_bias.empty() ? nullptr : attention.output_bias.data(),
      ws.block.f32(0),
      ws.block.stride()};
  run_linear(context.exec, {&output, 1});
  observe(context.exec, "attn_out", context.layer, ws.block.f32(0), num_out, config.hidden_size,
          ws.block.stride());
  if (context.keeps_head_rows_only) {
    for (std::int64_t out = 0; out < num_out; ++out) {
      const std::int64_t row = context.pass_row(out);
      if (row != out) {
        std::copy_n(ws.residual.f32(row), config.hidden_size, ws.residual.f32(out));
      }
    }
  }
  add_block_to_residual(context.exec, config, num_out, ws);
}

}  // namespace moe::engine
