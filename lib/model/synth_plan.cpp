#include "lib/model/synth_plan.hpp"

#include <cmath>
#include <string>
#include <utility>

#include "lib/base/check.hpp"
#include "lib/base/int_math.hpp"
#include "lib/model/accounting.hpp"
#include "lib/model/expected_tensors.hpp"
#include "lib/model/synth_router.hpp"
#include "lib/model/weight_format.hpp"

namespace moe::model {
namespace {

constexpr double kNormStdev = 0.05;
constexpr double kBiasStdev = 0.05;
// The best sigmoid scores crowd below 1: a larger correction bias would itself be a skew.
constexpr double kCorrectionBiasStdev = 0.002;
// FP8 codes are drawn with this standard deviation: 4.2 of them reach 270 of the largest 448.
constexpr double kFp8CodeStdev = 64.0;
// Mean square of the residual stream without its constant channel, in units of the embedding's: 1
// and about half of what the scaled blocks add.
constexpr double kStreamVariance = 1.05;

// Where the offsets of a skewed router go.
enum class SkewMethod { kNone, kCorrectionBias, kRouterBias, kNormBias, kConstantChannel };

SkewMethod skew_method(const ModelConfig& config, double skew) {
  if (skew == 0.0 || !config.is_moe()) return SkewMethod::kNone;
  if (config.moe.router.has_correction_bias) return SkewMethod::kCorrectionBias;
  if (config.moe.router.has_logit_bias) return SkewMethod::kRouterBias;
  if (config.norm == NormKind::kLayerNormWithBias) return SkewMethod::kNormBias;
  return SkewMethod::kConstantChannel;
}

class Planner {
 public:
  Planner(const ModelConfig& config, const SynthOptions& options)
      : config_(config),
        options_(options),
        method_(skew_method(config, options.router_skew)),
        sqrt_hidden_(std::sqrt(static_cast<double>(config.hidden_size))),
        embedding_stdev_(config.tie_word_embeddings ? 1.0 / sqrt_hidden_ : 1.0) {
    if (method_ != SkewMethod::kNone) {
      offsets_ = calibrate_router_offsets(config.moe, options.router_skew, options.seed);
    }
  }

  std::vector<PlannedTensor> run() {
    const auto schemes = moe_name_schemes(config_.family);
    visit_expected_tensors(config_, schemes.empty() ? nullptr : &schemes.front(),
                           [&](const ExpectedTensor& tensor) { plan(tensor); });
    return std::move(plans_);
  }

 private:
  void plan(const ExpectedTensor& tensor) {
    switch (tensor.storage) {
      case Storage::kPlain:
        add(tensor.name, tensor.slot == Slot::kCorrectionBias ? Dtype::kF32 : options_.dtype,
            tensor.shape, plain_fill(tensor));
        return;
      case Storage::kLinear:
      case Storage::kExpertsOutIn:
        plan_linear(tensor);
        return;
      case Storage::kExpertsInOut:
        plan_in_out(tensor, tensor.shape[1]);
        return;
      case Storage::kExpertsRows:
        if (tensor.slot == Slot::kExpertsDown) {
          plan_in_out(tensor, config_.moe.expert_intermediate_size);
        } else {
          plan_linear(tensor);
        }
        return;
      case Storage::kExpertsMxfp4:
        plan_mxfp4(tensor);
        return;
    }
  }

  void add(std::string name, Dtype dtype, const Shape& shape, FillPlan fill) {
    plans_.push_back({{std::move(name), dtype, shape}, std::move(fill)});
  }

  static FillPlan normal(double stdev, double mean = 0.0) {
    FillPlan fill;
    fill.mean = mean;
    fill.stdev = stdev;
    return fill;
  }

  static FillPlan with_first_column(FillPlan fill, std::int64_t cols, std::vector<float> column) {
    fill.patch = PatchKind::kFirstColumn;
    fill.cols = cols;
    fill.column = std::move(column);
    return fill;
  }

  [[nodiscard]] bool has_constant_channel() const {
    return method_ == SkewMethod::kConstantChannel;
  }

  // Embedding, router and vectors.
  FillPlan plain_fill(const ExpectedTensor& tensor) {
    const std::int64_t size = tensor.shape[tensor.shape.rank() - 1];
    switch (tensor.slot) {
      case Slot::kEmbedding:
        return has_constant_channel()
                   ? with_first_column(normal(embedding_stdev_), size,
                                       {static_cast<float>(embedding_stdev_ * sqrt_hidden_)})
                   : normal(embedding_stdev_);
      case Slot::kRouter:
        return router_fill(tensor.layer);
      case Slot::kRouterBias:
        return method_ == SkewMethod::kRouterBias ? offsets_of(tensor.layer) : normal(kBiasStdev);
      case Slot::kCorrectionBias:
        return method_ == SkewMethod::kCorrectionBias ? offsets_of(tensor.layer)
                                                      : normal(kCorrectionBiasStdev);
      case Slot::kSinks:
        return normal(1.0);
      case Slot::kSharedExpertGate:
        return without_channel(normal(1.0 / sqrt_hidden_), size);
      default:
        return vector_fill(tensor);
    }
  }

  FillPlan vector_fill(const ExpectedTensor& tensor) {
    const std::int64_t size = tensor.shape[tensor.shape.rank() - 1];
    const bool is_moe_norm = tensor.layer >= 0 && config_.is_moe() &&
                             config_.layers[static_cast<std::size_t>(tensor.layer)].is_moe;
    switch (tensor.slot) {
      case Slot::kPostAttentionNorm:
      case Slot::kPostAttentionNormBias: {
        const bool is_bias = tensor.slot == Slot::kPostAttentionNormBias;
        FillPlan fill = is_bias ? normal(kBiasStdev) : normal(kNormStdev, 1.0);
        const bool is_input_of_router = is_moe_norm && method_ != SkewMethod::kNone;
        if (is_input_of_router && method_ == SkewMethod::kNormBias) {
          return with_first_column(std::move(fill), size, {is_bias ? 1.0f : 0.0f});
        }
        if (has_constant_channel()) {
          return with_first_column(std::move(fill), size, {is_input_of_router ? 1.0f : 0.0f});
        }
        return fill;
      }
      case Slot::kInputNorm:
        return without_channel(normal(kNormStdev, 1.0), size);
      case Slot::kFinalNorm: {
        // With a tied head the current token would win every argmax; signs undo the correlation.
        FillPlan fill = normal(kNormStdev, 1.0);
        if (config_.tie_word_embeddings) fill.kind = FillKind::kSignedNormal;
        return without_channel(std::move(fill), size);
      }
      case Slot::kQNorm:
      case Slot::kKNorm:
      case Slot::kQANorm:
      case Slot::kKvANorm:
        return normal(kNormStdev, 1.0);
      case Slot::kOBias:
        return without_channel(normal(kBiasStdev), size);
      default:
        return normal(kBiasStdev);
    }
  }

  // Nothing reads or writes the constant channel here.
  FillPlan without_channel(FillPlan fill, std::int64_t cols) const {
    return has_constant_channel() ? with_first_column(std::move(fill), cols, {0.0f})
                                  : std::move(fill);
  }

  FillPlan offsets_of(std::int32_t layer) const {
    FillPlan fill;
    fill.values.assign(offsets_.size(), 0.0f);
    const auto permutation = expert_permutation(config_.moe, options_.seed, layer);
    for (std::size_t at = 0; at < offsets_.size(); ++at) {
      fill.values[static_cast<std::size_t>(permutation[at])] = offsets_[at];
    }
    return fill;
  }

  FillPlan router_fill(std::int32_t layer) const {
    const double stdev = kRouterLogitStdev / sqrt_hidden_;
    if (method_ == SkewMethod::kNormBias) {
      return with_first_column(normal(stdev), config_.hidden_size, offsets_of(layer).values);
    }
    if (!has_constant_channel()) return normal(stdev);
    // The norm divides by sqrt(1 + v): 1 from the constant channel, v from the others.
    const double rms = std::sqrt(1.0 + kStreamVariance);
    std::vector<float> column = offsets_of(layer).values;
    for (float& offset : column) offset *= static_cast<float>(rms / sqrt_hidden_);
    return with_first_column(normal(stdev * rms / std::sqrt(kStreamVariance)), config_.hidden_size,
                             std::move(column));
  }

  // What one of the blocks may add to the residual stream, in units of its own output.
  [[nodiscard]] double stream_share() const {
    return embedding_stdev_ * config_.embedding_multiplier / config_.residual_multiplier /
           std::sqrt(2.0 * config_.num_hidden_layers);
  }

  // Experts stored [in, out] with `inputs` rows each.
  void plan_in_out(const ExpectedTensor& tensor, std::int64_t inputs) {
    FillPlan fill = normal(1.0 / std::sqrt(static_cast<double>(inputs)));
    const std::int64_t cols = tensor.shape[tensor.shape.rank() - 1];
    fill.cols = cols;
    if (has_constant_channel()) {
      if (tensor.slot == Slot::kExpertsDown) {
        fill.stdev *= stream_share();
        fill = without_channel(std::move(fill), cols);
      } else {
        fill.patch = PatchKind::kFirstRowZero;
        fill.period = inputs;
      }
    }
    add(tensor.name, options_.dtype, tensor.shape, std::move(fill));
  }

  // A matrix, or the matrices of all experts.
  void plan_linear(const ExpectedTensor& tensor) {
    const std::size_t rank = tensor.shape.rank();
    const std::int64_t rows = tensor.shape[rank - 2];
    const std::int64_t cols = tensor.shape[rank - 1];
    double stdev = 1.0 / std::sqrt(static_cast<double>(cols));
    FillPlan fill;
    fill.cols = cols;
    const bool reads_channel = tensor.slot == Slot::kExpertGate || tensor.slot == Slot::kExpertUp ||
                               tensor.slot == Slot::kExpertsGateUp ||
                               tensor.slot == Slot::kExpertsGate ||
                               tensor.slot == Slot::kExpertsUp ||
                               tensor.slot == Slot::kSharedGate || tensor.slot == Slot::kSharedUp;
    const bool writes_stream = tensor.slot == Slot::kO || tensor.slot == Slot::kDenseDown ||
                               tensor.slot == Slot::kExpertDown ||
                               tensor.slot == Slot::kExpertsDown ||
                               tensor.slot == Slot::kSharedDown;
    if (reads_channel && (has_constant_channel() || method_ == SkewMethod::kNormBias)) {
      fill.patch = PatchKind::kFirstColumn;
      fill.column = {0.0f};
    } else if (writes_stream && has_constant_channel()) {
      fill.patch = PatchKind::kFirstRowZero;
      fill.period = rows;
      stdev *= stream_share();
    }
    fill.stdev = stdev;
    const bool is_fp8 =
        config_.quant.method == QuantMethod::kFp8Block && !is_left_unquantized(config_, tensor);
    if (!is_fp8) {
      add(tensor.name, options_.dtype, tensor.shape, std::move(fill));
      return;
    }
    fill.stdev = kFp8CodeStdev;
    add(tensor.name, Dtype::kF8E4m3, tensor.shape, std::move(fill));
    FillPlan scale_fill;
    scale_fill.kind = FillKind::kUniform;
    scale_fill.stdev = stdev / kFp8CodeStdev;
    add(fp8_scale_name(config_.quant, tensor.name), Dtype::kF32,
        fp8_scale_shape(config_.quant, tensor.shape), std::move(scale_fill));
  }

  void plan_mxfp4(const ExpectedTensor& tensor) {
    const std::int64_t experts = tensor.shape[0];
    const std::int64_t rows = tensor.shape[1];
    const std::int64_t cols = tensor.shape[2];
    const std::int64_t blocks = div_exact(cols, kMxfp4Block);
    FillPlan codes;
    codes.kind = FillKind::kMxfp4Codes;
    add(tensor.name + "_blocks", Dtype::kU8, {experts, rows, blocks, kMxfp4Block / 2},
        std::move(codes));
    FillPlan scales;
    scales.kind = FillKind::kMxfp4Scales;
    scales.stdev = 1.0 / std::sqrt(static_cast<double>(cols));
    add(tensor.name + "_scales", Dtype::kU8, {experts, rows, blocks}, std::move(scales));
  }

  const ModelConfig& config_;
  const SynthOptions& options_;
  SkewMethod method_;
  double sqrt_hidden_;
  double embedding_stdev_;
  std::vector<float> offsets_;
  std::vector<PlannedTensor> plans_;
};

}  // namespace

std::vector<PlannedTensor> plan_synthetic_tensors(const ModelConfig& config,
                                                  const SynthOptions& options) {
  return Planner(config, options).run();
}

}  // namespace moe::model
