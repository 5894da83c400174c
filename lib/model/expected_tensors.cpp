#include "lib/model/expected_tensors.hpp"

#include <array>
#include <charconv>

#include <fmt/format.h>

#include "lib/base/check.hpp"
#include "lib/base/int_math.hpp"

namespace moe::model {
namespace {

constexpr MoeNames per_expert(std::string_view router, std::string_view experts,
                              std::string_view gate, std::string_view up, std::string_view down) {
  return {router, experts, gate, up, down, {}, {}};
}

constexpr MoeNames fused(std::string_view router, std::string_view gate_up, std::string_view down) {
  return {router, {}, {}, {}, {}, gate_up, down};
}

constexpr MoeNames kMlpFused =
    fused("mlp.gate", "mlp.experts.gate_up_proj", "mlp.experts.down_proj");
constexpr MoeNames kBlockSparse =
    per_expert("block_sparse_moe.gate", "block_sparse_moe.experts", "w1", "w3", "w2");

constexpr std::array<MoeNames, 2> kMixtralNames = {kBlockSparse, kMlpFused};
constexpr std::array<MoeNames, 2> kMlpNames = {
    per_expert("mlp.gate", "mlp.experts", "gate_proj", "up_proj", "down_proj"), kMlpFused};
constexpr std::array<MoeNames, 3> kPhimoeNames = {
    kBlockSparse, fused("mlp.router", "mlp.experts.gate_up_proj", "mlp.experts.down_proj"),
    kMlpFused};
constexpr std::array<MoeNames, 1> kGptOssNames = {
    fused("mlp.router", "mlp.experts.gate_up_proj", "mlp.experts.down_proj")};
constexpr std::array<MoeNames, 2> kGraniteNames = {
    fused("block_sparse_moe.router.layer", "block_sparse_moe.input_linear.weight",
          "block_sparse_moe.output_linear.weight"),
    fused("block_sparse_moe.router", "block_sparse_moe.experts.gate_up_proj",
          "block_sparse_moe.experts.down_proj")};

constexpr std::array<MoeNames, 1> kDbrxNames = {per_expert(
    "ffn.router.layer", {}, "ffn.experts.mlp.w1", "ffn.experts.mlp.v1", "ffn.experts.mlp.w2")};
constexpr std::array<MoeNames, 1> kLlama4Names = {fused(
    "feed_forward.router", "feed_forward.experts.gate_up_proj", "feed_forward.experts.down_proj")};

// Names outside the experts.
struct FamilyNames {
  std::string_view embedding = "model.embed_tokens.weight";
  std::string_view layers = "model.layers.";
  std::string_view input_norm = "input_layernorm";
  std::string_view post_attention_norm = "post_attention_layernorm";
  std::string_view q = "self_attn.q_proj";
  std::string_view k = "self_attn.k_proj";
  std::string_view v = "self_attn.v_proj";
  std::string_view qkv;  // where the three are one
  std::string_view o = "self_attn.o_proj";
  std::string_view mlp = "mlp";
  std::string_view shared = "mlp.shared_experts";
  std::string_view final_norm = "model.norm";
};

FamilyNames family_names(Family family) {
  FamilyNames names;
  if (family == Family::kQwen2Moe) names.shared = "mlp.shared_expert";
  if (family == Family::kLlama4) {
    names.mlp = "feed_forward";
    names.shared = "feed_forward.shared_expert";
  }
  if (family == Family::kDbrx) {
    names.embedding = "transformer.wte.weight";
    names.layers = "transformer.blocks.";
    names.input_norm = "norm_attn_norm.norm_1";
    names.post_attention_norm = "norm_attn_norm.norm_2";
    names.qkv = "norm_attn_norm.attn.Wqkv";
    names.o = "norm_attn_norm.attn.out_proj";
    names.final_norm = "transformer.norm_f";
  }
  return names;
}

// Emits the tensors of one model.
class Enumerator {
 public:
  Enumerator(const ModelConfig& config, const MoeNames* names,
             const std::function<void(const ExpectedTensor&)>& visit)
      : config_(config), names_(names), family_names_(family_names(config.family)), visit_(visit) {}

  void run() {
    const std::int64_t hidden = config_.hidden_size;
    emit(std::string(family_names_.embedding), Slot::kEmbedding, Part::kEmbedding, Storage::kPlain,
         {config_.vocab_size, hidden});
    for (layer_ = 0; layer_ < config_.num_hidden_layers; ++layer_) {
      prefix_ = fmt::format("{}{}.", family_names_.layers, layer_);
      norm(family_names_.input_norm, Slot::kInputNorm, Slot::kInputNormBias);
      if (config_.attention.is_mla) {
        mla();
      } else {
        gqa();
      }
      norm(family_names_.post_attention_norm, Slot::kPostAttentionNorm,
           Slot::kPostAttentionNormBias);
      if (config_.layers[static_cast<std::size_t>(layer_)].is_moe && config_.is_moe()) {
        moe();
      } else {
        ffn(family_names_.mlp, Part::kDense, config_.intermediate_size, Slot::kDenseGate,
            Slot::kDenseUp, Slot::kDenseDown);
      }
    }
    layer_ = -1;
    prefix_.clear();
    norm(family_names_.final_norm, Slot::kFinalNorm, Slot::kFinalNormBias);
    if (!config_.tie_word_embeddings) {
      emit("lm_head.weight", Slot::kLmHead, Part::kHead, Storage::kLinear,
           {config_.vocab_size, hidden});
    }
    if (config_.has_lm_head_bias) {
      emit("lm_head.bias", Slot::kLmHeadBias, Part::kHead, Storage::kPlain, {config_.vocab_size});
    }
  }

 private:
  void emit(const std::string& name, Slot slot, Part part, Storage storage, const Shape& shape,
            std::int32_t expert = -1) {
    visit_({config_.tensor_prefix + name, slot, part, storage, shape, layer_, expert});
  }

  void vector(std::string_view name, Slot slot, Part part, std::int64_t size) {
    emit(prefix_ + std::string(name), slot, part, Storage::kPlain, {size});
  }

  void linear(std::string_view name, Slot slot, std::int64_t rows, std::int64_t cols,
              Part part = Part::kAttention) {
    emit(prefix_ + std::string(name) + ".weight", slot, part, Storage::kLinear, {rows, cols});
  }

  void norm(std::string_view name, Slot weight, Slot bias) {
    vector(std::string(name) + ".weight", weight, Part::kNorm, config_.hidden_size);
    if (config_.norm == NormKind::kLayerNormWithBias) {
      vector(std::string(name) + ".bias", bias, Part::kNorm, config_.hidden_size);
    }
  }

  void gqa() {
    const AttentionConfig& attention = config_.attention;
    const std::int64_t hidden = config_.hidden_size;
    const std::int64_t q_width = std::int64_t{attention.num_heads} * attention.head_dim;
    const std::int64_t kv_width = std::int64_t{attention.num_kv_heads} * attention.head_dim;
    if (attention.has_fused_qkv) {
      linear(family_names_.qkv, Slot::kQkv, q_width + 2 * kv_width, hidden);
    } else {
      linear(family_names_.q, Slot::kQ, q_width, hidden);
      linear(family_names_.k, Slot::kK, kv_width, hidden);
      linear(family_names_.v, Slot::kV, kv_width, hidden);
    }
    linear(family_names_.o, Slot::kO, hidden, q_width);
    if (attention.has_qkv_bias) {
      vector("self_attn.q_proj.bias", Slot::kQBias, Part::kAttention, q_width);
      vector("self_attn.k_proj.bias", Slot::kKBias, Part::kAttention, kv_width);
      vector("self_attn.v_proj.bias", Slot::kVBias, Part::kAttention, kv_width);
    }
    if (attention.has_o_bias) {
      vector("self_attn.o_proj.bias", Slot::kOBias, Part::kAttention, hidden);
    }
    if (attention.qk_norm == QkNorm::kPerHead || attention.qk_norm == QkNorm::kWholeProjection) {
      const bool whole = attention.qk_norm == QkNorm::kWholeProjection;
      vector("self_attn.q_norm.weight", Slot::kQNorm, Part::kAttention,
             whole ? q_width : attention.head_dim);
      vector("self_attn.k_norm.weight", Slot::kKNorm, Part::kAttention,
             whole ? kv_width : attention.head_dim);
    }
    if (attention.has_sinks) {
      vector("self_attn.sinks", Slot::kSinks, Part::kAttention, attention.num_heads);
    }
  }

  void mla() {
    const AttentionConfig& attention = config_.attention;
    const MlaConfig& m = attention.mla;
    const std::int64_t hidden = config_.hidden_size;
    const std::int64_t heads = attention.num_heads;
    const std::int64_t q_width = heads * attention.head_dim;
    if (m.q_lora_rank > 0) {
      linear("self_attn.q_a_proj", Slot::kQA, m.q_lora_rank, hidden);
      vector("self_attn.q_a_layernorm.weight", Slot::kQANorm, Part::kAttention, m.q_lora_rank);
      linear("self_attn.q_b_proj", Slot::kQB, q_width, m.q_lora_rank);
    } else {
      linear("self_attn.q_proj", Slot::kQ, q_width, hidden);
    }
    linear("self_attn.kv_a_proj_with_mqa", Slot::kKvA,
           std::int64_t{m.kv_lora_rank} + m.qk_rope_head_dim, hidden);
    vector("self_attn.kv_a_layernorm.weight", Slot::kKvANorm, Part::kAttention, m.kv_lora_rank);
    linear("self_attn.kv_b_proj", Slot::kKvB, heads * (m.qk_nope_head_dim + m.v_head_dim),
           m.kv_lora_rank);
    linear("self_attn.o_proj", Slot::kO, hidden, heads * m.v_head_dim);
  }

  void ffn(std::string_view name, Part part, std::int64_t width, Slot gate, Slot up, Slot down) {
    const std::string base(name);
    linear(base + ".gate_proj", gate, width, config_.hidden_size, part);
    linear(base + ".up_proj", up, width, config_.hidden_size, part);
    linear(base + ".down_proj", down, config_.hidden_size, width, part);
  }

  void moe() {
    MOE_CHECK(names_ != nullptr);
    const MoeConfig& m = config_.moe;
    emit(prefix_ + std::string(names_->router) + ".weight", Slot::kRouter, Part::kRouter,
         Storage::kPlain, {m.num_experts, config_.hidden_size});
    if (m.router.has_logit_bias) {
      vector(std::string(names_->router) + ".bias", Slot::kRouterBias, Part::kRouter,
             m.num_experts);
    }
    if (m.router.has_correction_bias) {
      vector(std::string(names_->router) + ".e_score_correction_bias", Slot::kCorrectionBias,
             Part::kRouter, m.num_experts);
    }
    if (!names_->fused_down.empty()) {
      fused_experts();
    } else if (names_->experts.empty()) {
      stacked_experts();
    } else {
      separate_experts();
    }
    if (m.shared_intermediate_size > 0) {
      ffn(family_names_.shared, Part::kSharedExperts, m.shared_intermediate_size, Slot::kSharedGate,
          Slot::kSharedUp, Slot::kSharedDown);
    }
    if (m.has_shared_gate) {
      emit(prefix_ + "mlp.shared_expert_gate.weight", Slot::kSharedExpertGate, Part::kSharedExperts,
           Storage::kPlain, {1, config_.hidden_size});
    }
  }

  void separate_experts() {
    const std::int64_t hidden = config_.hidden_size;
    const std::int64_t width = config_.moe.expert_intermediate_size;
    for (std::int32_t expert = 0; expert < config_.moe.num_experts; ++expert) {
      const std::string base = fmt::format("{}{}.{}.", prefix_, names_->experts, expert);
      const auto matrix = [&](std::string_view name, Slot slot, const Shape& shape) {
        emit(fmt::format("{}{}.weight", base, name), slot, Part::kRoutedExperts, Storage::kLinear,
             shape, expert);
      };
      matrix(names_->gate, Slot::kExpertGate, {width, hidden});
      matrix(names_->up, Slot::kExpertUp, {width, hidden});
      matrix(names_->down, Slot::kExpertDown, {hidden, width});
    }
  }

  void stacked_experts() {
    const MoeConfig& m = config_.moe;
    const Shape shape{std::int64_t{m.num_experts} * m.expert_intermediate_size,
                      config_.hidden_size};
    const auto matrix = [&](std::string_view name, Slot slot) {
      emit(prefix_ + std::string(name), slot, Part::kRoutedExperts, Storage::kExpertsRows, shape);
    };
    matrix(names_->gate, Slot::kExpertsGate);
    matrix(names_->up, Slot::kExpertsUp);
    matrix(names_->down, Slot::kExpertsDown);
  }

  void fused_experts() {
    const std::int64_t hidden = config_.hidden_size;
    const std::int64_t experts = config_.moe.num_experts;
    const std::int64_t width = config_.moe.expert_intermediate_size;
    const std::string gate_up = prefix_ + std::string(names_->fused_gate_up);
    const std::string down = prefix_ + std::string(names_->fused_down);
    if (config_.family == Family::kLlama4 ||
        (config_.family == Family::kGptOss && config_.quant.method == QuantMethod::kNone)) {
      emit(gate_up, Slot::kExpertsGateUp, Part::kRoutedExperts, Storage::kExpertsInOut,
           {experts, hidden, 2 * width});
      emit(down, Slot::kExpertsDown, Part::kRoutedExperts, Storage::kExpertsInOut,
           {experts, width, hidden});
    } else {
      const bool is_mxfp4 = config_.quant.method == QuantMethod::kMxfp4;
      const Storage storage = is_mxfp4 ? Storage::kExpertsMxfp4 : Storage::kExpertsOutIn;
      emit(gate_up, Slot::kExpertsGateUp, Part::kRoutedExperts, storage,
           {experts, 2 * width, hidden});
      emit(down, Slot::kExpertsDown, Part::kRoutedExperts, storage, {experts, hidden, width});
    }
    if (config_.moe.has_expert_bias) {
      emit(gate_up + "_bias", Slot::kExpertsGateUpBias, Part::kRoutedExperts, Storage::kPlain,
           {experts, 2 * width});
      emit(down + "_bias", Slot::kExpertsDownBias, Part::kRoutedExperts, Storage::kPlain,
           {experts, hidden});
    }
  }

  const ModelConfig& config_;
  const MoeNames* names_;
  FamilyNames family_names_;
  const std::function<void(const ExpectedTensor&)>& visit_;
  std::string prefix_;
  std::int32_t layer_ = -1;
};

}  // namespace

std::string_view part_name(Part part) {
  constexpr std::array<std::string_view, kNumParts> kNames = {
      "embedding",      "attention", "router", "routed experts",
      "shared experts", "dense",     "norm",   "head"};
  return kNames[static_cast<std::size_t>(part)];
}

std::span<const MoeNames> moe_name_schemes(Family family) {
  switch (family) {
    case Family::kMixtral:
      return kMixtralNames;
    case Family::kQwen2Moe:
    case Family::kQwen3Moe:
    case Family::kOlmoe:
    case Family::kDeepseekV2:
    case Family::kDeepseekV3:
    case Family::kGlm4Moe:
      return kMlpNames;
    case Family::kGptOss:
      return kGptOssNames;
    case Family::kGraniteMoe:
      return kGraniteNames;
    case Family::kPhimoe:
      return kPhimoeNames;
    case Family::kDbrx:
      return kDbrxNames;
    case Family::kLlama4:
      return kLlama4Names;
    case Family::kLlama:
    case Family::kQwen3:
      return {};
  }
  MOE_CHECK(false);
}

const MoeNames* choose_moe_names(const ModelConfig& config,
                                 const std::function<bool(const std::string&)>& has_tensor) {
  const auto schemes = moe_name_schemes(config.family);
  if (schemes.empty()) return nullptr;
  if (schemes.size() == 1) return &schemes.front();
  std::size_t first = 0;
  while (first < config.layers.size() && !config.layers[first].is_moe) ++first;
  const std::string prefix = fmt::format("{}model.layers.{}.", config.tensor_prefix, first);
  const MoeNames* with_experts = nullptr;
  for (const MoeNames& names : schemes) {
    const std::string probe =
        names.experts.empty() ? prefix + std::string(names.fused_gate_up)
                              : fmt::format("{}{}.0.{}.weight", prefix, names.experts, names.gate);
    if (!has_tensor(probe)) continue;
    if (has_tensor(fmt::format("{}{}.weight", prefix, names.router))) return &names;
    if (with_experts == nullptr) with_experts = &names;
  }
  return with_experts != nullptr ? with_experts : &schemes.front();
}

void visit_expected_tensors(const ModelConfig& config, const MoeNames* names,
                            const std::function<void(const ExpectedTensor&)>& visit) {
  Enumerator(config, names, visit).run();
}

std::string_view ignore_rule(const ModelConfig& config, std::string_view name) {
  constexpr std::string_view kLayers = "model.layers.";
  if (name.ends_with(".rotary_emb.inv_freq")) return "RoPE frequencies are computed";
  if (!config.tensor_prefix.empty() &&
      (name.starts_with("vision_model.") || name.starts_with("multi_modal_projector."))) {
    return "not of the text model";
  }
  if (name.starts_with(kLayers) && config.num_nextn_predict_layers > 0) {
    std::int64_t layer = -1;
    const char* const end = name.data() + name.size();
    const auto [rest, error] = std::from_chars(name.data() + kLayers.size(), end, layer);
    if (error == std::errc{} && rest != end && *rest == '.' && layer >= config.num_hidden_layers &&
        layer < std::int64_t{config.num_hidden_layers} + config.num_nextn_predict_layers) {
      return "multi-token prediction layer (num_nextn_predict_layers)";
    }
  }
  return {};
}

std::string fp8_scale_name(const QuantConfig& quant, std::string_view tensor) {
  return std::string(tensor) + quant.fp8_scale_suffix;
}

Shape fp8_scale_shape(const QuantConfig& quant, const Shape& tensor) {
  const std::size_t rank = tensor.rank();
  if (rank == 2 && quant.block_rows == 0 && quant.block_cols == 0) return {1};
  const auto blocks = [](std::int64_t size, std::int32_t block) {
    return block == 0 ? 1 : div_ceil(size, block);
  };
  Shape shape;
  for (std::size_t axis = 0; axis + 2 < rank; ++axis) MOE_CHECK(shape.push_back(tensor[axis]));
  MOE_CHECK(shape.push_back(blocks(tensor[rank - 2], quant.block_rows)));
  MOE_CHECK(shape.push_back(blocks(tensor[rank - 1], quant.block_cols)));
  return shape;
}

}  // namespace moe::model
