#include "lib/model/accounting.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "lib/base/check.hpp"
#include "lib/base/int_math.hpp"
#include "lib/model/coded_matrix.hpp"
#include "lib/model/module_pattern.hpp"
#include "lib/model/weight_format.hpp"

namespace moe::model {
namespace {

constexpr std::string_view kMxfp4Name = "MXFP4";

std::int64_t elements(const ExpectedTensor& tensor) {
  const auto count = tensor.shape.num_elements();
  MOE_CHECK(count.has_value());
  return *count;
}

// Sums parameters; routed experts are kept apart per layer until the end.
class ParameterSum {
 public:
  explicit ParameterSum(const ModelConfig& config) : config_(config) {
    counts_.layers.resize(config.layers.size());
    routed_.assign(config.layers.size(), 0);
    for (std::size_t layer = 0; layer < config.layers.size(); ++layer) {
      counts_.layers[layer].is_moe = config.is_moe() && config.layers[layer].is_moe;
    }
  }

  void add(Part part, std::int32_t layer, std::int64_t count) {
    counts_.by_part[static_cast<std::size_t>(part)] += count;
    counts_.total += count;
    if (layer < 0) return;
    const auto index = static_cast<std::size_t>(layer);
    counts_.layers[index].total += count;
    if (part == Part::kRoutedExperts) routed_[index] += count;
  }

  [[nodiscard]] ParameterCounts finish() {
    std::int64_t active = counts_.total;
    for (std::size_t layer = 0; layer < routed_.size(); ++layer) {
      LayerCounts& counts = counts_.layers[layer];
      counts.active = counts.total;
      if (routed_[layer] == 0) continue;
      counts.one_expert = routed_[layer] / config_.moe.num_experts;
      const std::int64_t idle =
          routed_[layer] - counts.one_expert * std::int64_t{config_.moe.top_k};
      counts.active -= idle;
      active -= idle;
    }
    const std::int64_t embedding = counts_.of(Part::kEmbedding);
    counts_.active_with_embeddings = active;
    counts_.active_without_input_embedding =
        config_.tie_word_embeddings ? active : active - embedding;
    counts_.active_without_embeddings = active - embedding - counts_.of(Part::kHead);
    return std::move(counts_);
  }

 private:
  const ModelConfig& config_;
  ParameterCounts counts_;
  std::vector<std::int64_t> routed_;
};

class ByteSum {
 public:
  explicit ByteSum(const ModelConfig& config) : config_(config) {
    counts_.layers.assign(config.layers.size(), 0);
    first_moe_layer_ = static_cast<std::int32_t>(
        std::ranges::find_if(config.layers, [](const auto& layer) { return layer.is_moe; }) -
        config.layers.begin());
  }

  void add(Part part, std::int32_t layer, std::string_view dtype, std::int64_t bytes) {
    counts_.by_part[static_cast<std::size_t>(part)] += bytes;
    counts_.total += bytes;
    by_dtype_[std::string(dtype)] += bytes;
    if (layer >= 0) counts_.layers[static_cast<std::size_t>(layer)] += bytes;
    if (part == Part::kRoutedExperts && layer == first_moe_layer_) routed_ += bytes;
  }

  [[nodiscard]] ByteCounts finish() {
    for (const auto& [dtype, bytes] : by_dtype_) counts_.by_dtype.emplace_back(dtype, bytes);
    std::ranges::sort(counts_.by_dtype, [](const auto& a, const auto& b) {
      return a.second != b.second ? a.second > b.second : a.first < b.first;
    });
    if (config_.is_moe()) counts_.one_expert = routed_ / config_.moe.num_experts;
    return std::move(counts_);
  }

 private:
  const ModelConfig& config_;
  ByteCounts counts_;
  std::map<std::string, std::int64_t> by_dtype_;
  std::int32_t first_moe_layer_ = 0;
  std::int64_t routed_ = 0;
};

void visit_ffn(const WeightVisitor& visitor, Part part, std::int32_t layer, std::int32_t expert,
               const FfnView& ffn) {
  for (const MatrixView* view : {&ffn.gate, &ffn.up, &ffn.down}) {
    if (!view->empty()) visitor.matrix(part, layer, expert, *view);
  }
  for (const VectorView* view : {&ffn.gate_bias, &ffn.up_bias, &ffn.down_bias}) {
    if (!view->empty()) visitor.vector(part, layer, expert, *view);
  }
}

void visit_layer(const WeightVisitor& visitor, std::int32_t layer, const LayerView& view) {
  const auto vectors = [&](Part part, std::initializer_list<const VectorView*> views) {
    for (const VectorView* vector : views) {
      if (!vector->empty()) visitor.vector(part, layer, -1, *vector);
    }
  };
  const AttentionView& attention = view.attention;
  vectors(Part::kNorm, {&view.input_norm.weight, &view.input_norm.bias,
                        &view.post_attention_norm.weight, &view.post_attention_norm.bias});
  for (const MatrixView* matrix :
       {&attention.q, &attention.k, &attention.v, &attention.o, &attention.q_a, &attention.q_b,
        &attention.kv_a, &attention.kv_b, &attention.k_b, &attention.v_b}) {
    if (!matrix->empty()) visitor.matrix(Part::kAttention, layer, -1, *matrix);
  }
  vectors(Part::kAttention, {&attention.q_bias, &attention.k_bias, &attention.v_bias,
                             &attention.o_bias, &attention.q_norm, &attention.k_norm,
                             &attention.sinks, &attention.q_a_norm, &attention.kv_a_norm});
  visit_ffn(visitor, Part::kDense, layer, -1, view.dense);
  if (!view.router.empty()) visitor.matrix(Part::kRouter, layer, -1, view.router);
  vectors(Part::kRouter, {&view.router_bias, &view.correction_bias});
  for (std::size_t expert = 0; expert < view.experts.size(); ++expert) {
    visit_ffn(visitor, Part::kRoutedExperts, layer, static_cast<std::int32_t>(expert),
              view.experts[expert]);
  }
  visit_ffn(visitor, Part::kSharedExperts, layer, -1, view.shared);
  vectors(Part::kSharedExperts, {&view.shared_gate});
}

// Codes, scales, zero points, and the group of each column where it is stored.
std::int64_t int_view_bytes(const MatrixView& view) {
  const std::int64_t blocks = div_ceil(view.cols, view.block_cols);
  const std::int64_t codes = view.encoding == MatrixEncoding::kIntRows
                                 ? view.rows * view.row_stride
                                 : view.rows * view.cols * view.code_bits / 8;
  const std::int64_t scales = view.scale_row_stride == 0 ? 1 : view.rows * blocks;
  const std::int64_t zeros =
      view.zeros == nullptr ? 0 : div_ceil(view.rows * view.code_bits, 8) * blocks;
  const std::int64_t order = view.column_order == nullptr ? 0 : view.cols * 4;
  return codes + scales * dtype_bits(view.scale_dtype) / 8 + zeros + order;
}

}  // namespace

bool is_left_unquantized(const ModelConfig& config, const ExpectedTensor& tensor) {
  if (tensor.slot == Slot::kLmHead) return true;
  std::string_view module = tensor.name;
  if (module.ends_with(".weight")) module.remove_suffix(7);
  return std::ranges::any_of(config.quant.modules_not_converted, [&](const std::string& pattern) {
    return matches_glob(pattern, module);
  });
}

void for_each_weight(const BoundModel& model, const WeightVisitor& visitor) {
  visitor.matrix(Part::kEmbedding, -1, -1, model.embedding);
  for (std::size_t layer = 0; layer < model.layers.size(); ++layer) {
    visit_layer(visitor, static_cast<std::int32_t>(layer), model.layers[layer]);
  }
  for (const VectorView* view : {&model.final_norm.weight, &model.final_norm.bias}) {
    if (!view->empty()) visitor.vector(Part::kNorm, -1, -1, *view);
  }
  if (!model.config.tie_word_embeddings) visitor.matrix(Part::kHead, -1, -1, model.lm_head);
  if (!model.lm_head_bias.empty()) visitor.vector(Part::kHead, -1, -1, model.lm_head_bias);
}

std::int64_t view_bytes(const MatrixView& view) {
  const std::int64_t count = view.rows * view.cols;
  switch (view.encoding) {
    case MatrixEncoding::kPlain:
      return count * dtype_bits(view.dtype) / 8;
    case MatrixEncoding::kFp8Block: {
      const std::int64_t scales =
          view.scale_row_stride == 0
              ? 1
              : div_ceil(view.rows, view.block_rows) * div_ceil(view.cols, view.block_cols);
      return count + scales * dtype_bits(view.scale_dtype) / 8;
    }
    case MatrixEncoding::kMxfp4:
      return count / 2 + count / kMxfp4Block;
    case MatrixEncoding::kIntRows:
    case MatrixEncoding::kGptq:
    case MatrixEncoding::kAwq:
      return int_view_bytes(view);
    case MatrixEncoding::kGgufQ8_0:
    case MatrixEncoding::kGgufQ4_0:
    case MatrixEncoding::kGgufQ4K:
    case MatrixEncoding::kGgufQ6K:
    case MatrixEncoding::kGgufMxfp4:
      return view.rows * gguf_row_bytes(view.encoding, view.cols);
  }
  MOE_CHECK(false);
}

std::int64_t view_bytes(const VectorView& view) {
  return view.size * dtype_bits(view.dtype) / 8;
}

ParameterCounts count_parameters(const ModelConfig& config) {
  ParameterSum sum(config);
  const auto schemes = moe_name_schemes(config.family);
  visit_expected_tensors(
      config, schemes.empty() ? nullptr : &schemes.front(),
      [&](const ExpectedTensor& tensor) { sum.add(tensor.part, tensor.layer, elements(tensor)); });
  return sum.finish();
}

ParameterCounts count_parameters(const BoundModel& model) {
  ParameterSum sum(model.config);
  for_each_weight(model, {[&](Part part, std::int32_t layer, std::int32_t, const MatrixView& view) {
                            sum.add(part, layer, view.rows * view.cols);
                          },
                          [&](Part part, std::int32_t layer, std::int32_t, const VectorView& view) {
                            sum.add(part, layer, view.size);
                          }});
  return sum.finish();
}

ByteCounts count_bytes(const ModelConfig& config, Dtype dtype) {
  ByteSum sum(config);
  const auto add = [&](const ExpectedTensor& tensor) {
    const std::int64_t count = elements(tensor);
    const bool is_fp8 =
        config.quant.method == QuantMethod::kFp8Block &&
        (tensor.storage == Storage::kLinear || tensor.storage == Storage::kExpertsOutIn) &&
        !is_left_unquantized(config, tensor);
    if (tensor.storage == Storage::kExpertsMxfp4) {
      sum.add(tensor.part, tensor.layer, kMxfp4Name, count / 2 + count / kMxfp4Block);
    } else if (is_fp8) {
      const Shape scales = fp8_scale_shape(config.quant, tensor.shape);
      sum.add(tensor.part, tensor.layer, dtype_name(Dtype::kF8E4m3), count);
      sum.add(tensor.part, tensor.layer, dtype_name(Dtype::kF32),
              4 * scales.num_elements().value());
    } else {
      const Dtype stored = tensor.slot == Slot::kCorrectionBias ? Dtype::kF32 : dtype;
      sum.add(tensor.part, tensor.layer, dtype_name(stored), count * dtype_bits(stored) / 8);
    }
  };
  const auto schemes = moe_name_schemes(config.family);
  visit_expected_tensors(config, schemes.empty() ? nullptr : &schemes.front(), add);
  return sum.finish();
}

ByteCounts count_bytes(const BoundModel& model) {
  ByteSum sum(model.config);
  for_each_weight(model, {[&](Part part, std::int32_t layer, std::int32_t, const MatrixView& view) {
                            const std::int64_t bytes = view_bytes(view);
                            if (view.encoding == MatrixEncoding::kMxfp4) {
                              sum.add(part, layer, kMxfp4Name, bytes);
                            } else if (view.encoding == MatrixEncoding::kFp8Block) {
                              const std::int64_t codes = view.rows * view.cols;
                              sum.add(part, layer, dtype_name(view.dtype), codes);
                              sum.add(part, layer, dtype_name(view.scale_dtype), bytes - codes);
                            } else {
                              sum.add(part, layer, storage_name(view), bytes);
                            }
                          },
                          [&](Part part, std::int32_t layer, std::int32_t, const VectorView& view) {
                            sum.add(part, layer, dtype_name(view.dtype), view_bytes(view));
                          }});
  return sum.finish();
}

std::vector<std::string> compare_counts(const ParameterCounts& by_config,
                                        const ParameterCounts& by_files) {
  std::vector<std::string> lines;
  for (std::size_t part = 0; part < kNumParts; ++part) {
    if (by_config.by_part[part] == by_files.by_part[part]) continue;
    lines.push_back(fmt::format("{}: {} parameters by config.json, {} in the files",
                                part_name(static_cast<Part>(part)), by_config.by_part[part],
                                by_files.by_part[part]));
  }
  return lines;
}

}  // namespace moe::model
