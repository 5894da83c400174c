#include "lib/model/model_slots.hpp"

#include "lib/base/check.hpp"

namespace moe::model {

LayerView& layer_at(BoundModel& model, const ExpectedTensor& expected) {
  MOE_CHECK(expected.layer >= 0);
  return model.layers[static_cast<std::size_t>(expected.layer)];
}

std::vector<FfnView>& experts_at(BoundModel& model, const ExpectedTensor& expected) {
  std::vector<FfnView>& views = layer_at(model, expected).experts;
  views.resize(static_cast<std::size_t>(model.config.moe.num_experts));
  return views;
}

MatrixView& matrix_at(BoundModel& model, const ExpectedTensor& expected) {
  if (expected.slot == Slot::kLmHead) return model.lm_head;
  LayerView& layer = layer_at(model, expected);
  AttentionView& attention = layer.attention;
  const auto expert = [&]() -> FfnView& {
    return experts_at(model, expected)[static_cast<std::size_t>(expected.expert)];
  };
  switch (expected.slot) {
    case Slot::kQ:
      return attention.q;
    case Slot::kK:
      return attention.k;
    case Slot::kV:
      return attention.v;
    case Slot::kO:
      return attention.o;
    case Slot::kQA:
      return attention.q_a;
    case Slot::kQB:
      return attention.q_b;
    case Slot::kKvA:
      return attention.kv_a;
    case Slot::kKvB:
      return attention.kv_b;
    case Slot::kDenseGate:
      return layer.dense.gate;
    case Slot::kDenseUp:
      return layer.dense.up;
    case Slot::kDenseDown:
      return layer.dense.down;
    case Slot::kExpertGate:
      return expert().gate;
    case Slot::kExpertUp:
      return expert().up;
    case Slot::kExpertDown:
      return expert().down;
    case Slot::kSharedGate:
      return layer.shared.gate;
    case Slot::kSharedUp:
      return layer.shared.up;
    case Slot::kSharedDown:
      return layer.shared.down;
    default:
      MOE_CHECK(false);
  }
}

VectorView& vector_at(BoundModel& model, const ExpectedTensor& expected) {
  if (expected.slot == Slot::kFinalNorm) return model.final_norm.weight;
  if (expected.slot == Slot::kFinalNormBias) return model.final_norm.bias;
  if (expected.slot == Slot::kLmHeadBias) return model.lm_head_bias;
  LayerView& layer = layer_at(model, expected);
  AttentionView& attention = layer.attention;
  switch (expected.slot) {
    case Slot::kInputNorm:
      return layer.input_norm.weight;
    case Slot::kInputNormBias:
      return layer.input_norm.bias;
    case Slot::kPostAttentionNorm:
      return layer.post_attention_norm.weight;
    case Slot::kPostAttentionNormBias:
      return layer.post_attention_norm.bias;
    case Slot::kQBias:
      return attention.q_bias;
    case Slot::kKBias:
      return attention.k_bias;
    case Slot::kVBias:
      return attention.v_bias;
    case Slot::kOBias:
      return attention.o_bias;
    case Slot::kQNorm:
      return attention.q_norm;
    case Slot::kKNorm:
      return attention.k_norm;
    case Slot::kSinks:
      return attention.sinks;
    case Slot::kQANorm:
      return attention.q_a_norm;
    case Slot::kKvANorm:
      return attention.kv_a_norm;
    case Slot::kRouterBias:
      return layer.router_bias;
    case Slot::kCorrectionBias:
      return layer.correction_bias;
    case Slot::kSharedExpertGate:
      return layer.shared_gate;
    default:
      MOE_CHECK(false);
  }
}

}  // namespace moe::model
