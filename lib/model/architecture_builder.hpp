#pragma once

// Puts an Architecture together layer by layer: each call adds the weights of one part with their
// published names. Internal to the architecture reader.

#include <cstdint>
#include <string>
#include <string_view>

#include "lib/model/architecture.hpp"

namespace moe::model {

// What the projections of an attention block have beside the matrices.
struct AttentionExtras {
  bool has_qkv_bias = false;
  bool has_o_bias = false;
  bool has_output_gate = false;  // the query projection is twice as wide (Qwen3-Next)
  bool has_sinks = false;
  // Elements of the q and k norms: 0, head_dim each (per head), or the whole projection.
  std::int64_t q_norm = 0;
  std::int64_t k_norm = 0;
};

struct MoeExtras {
  bool has_correction_bias = false;
  bool has_router_bias = false;
  bool has_shared_gate = false;
  bool has_bias = false;         // of every linear of an expert (NLLB)
  std::int32_t router_bits = 0;  // stored width of the router; 0: as everything else
  std::string_view router = "mlp.gate";
  std::string_view experts = "mlp.experts.0";
  std::string_view shared = "mlp.shared_experts";
};

struct DeltaNetDims {
  std::int64_t key_heads = 0;
  std::int64_t key_dim = 0;
  std::int64_t value_heads = 0;
  std::int64_t value_dim = 0;
  std::int64_t conv_kernel = 0;
  std::int32_t state_bits = 32;
};

struct MambaDims {
  std::int64_t inner = 0;
  std::int64_t state = 0;
  std::int64_t conv_kernel = 0;
  std::int64_t dt_rank = 0;  // Mamba-1
  std::int64_t heads = 0;    // Mamba-2
  std::int64_t groups = 0;   // Mamba-2
  bool has_conv_bias = true;
  bool has_proj_bias = false;
  bool has_inner_norms = false;  // Mamba-1 of Jamba: norms of dt, B and C
  std::int32_t state_bits = 32;
};

class ArchitectureBuilder {
 public:
  explicit ArchitectureBuilder(Architecture& architecture) : architecture_(architecture) {}

  // Opens a layer: weights added from here belong to it. `prefix` is its published name
  // ("model.layers.3.").
  void begin_layer(const LayerSpec& spec, std::string prefix);
  void end_layers();
  // The spec of the open layer, to be filled as parts are added.
  [[nodiscard]] LayerSpec& layer();

  void embedding(std::string_view name = "model.embed_tokens");
  void head(std::string_view name = "lm_head");
  void final_norm(std::string_view name = "model.norm", std::int64_t vectors = 1);

  void norm(std::string_view name, std::int64_t vectors = 1);  // vectors of hidden_size
  void gqa(const MixerSpec& mixer, const AttentionExtras& extras = {},
           std::string_view name = "self_attn");
  void cross_attention(const MixerSpec& mixer, const AttentionExtras& extras,
                       std::string_view name);
  void mla(const MixerSpec& mixer);
  // The indexer of a layer that was built before.
  void indexer_of(std::int32_t layer);
  void delta_net(const DeltaNetDims& dims, bool has_split_projections);
  void mamba1(const MambaDims& dims);
  void mamba2(const MambaDims& dims);
  void lightning(std::int32_t heads, std::int32_t head_dim);
  void dense(std::int32_t width, bool is_gated, std::string_view name = "mlp",
             bool has_bias = false);
  void moe(const FfnSpec& ffn, const MoeExtras& extras = {});

  // One weight of the open layer (or of none).
  void matrix(std::string_view name, Part part, std::int64_t rows, std::int64_t cols,
              Split split = Split::kNone, SplitAxis axis = SplitAxis::kRows,
              std::int64_t units = 1);
  void vector(std::string_view name, Part part, std::int64_t size, Split split = Split::kNone,
              std::int64_t units = 1);
  void add(WeightGroup group);

  // `num` modules that each hold a copy of the last decoder layer, two norms, a projection of
  // 2 * hidden, a norm, and where `has_copies` embedding and head once more.
  void mtp(std::int32_t num, bool has_copies);

 private:
  void projections(const MixerSpec& mixer, const AttentionExtras& extras, const std::string& base);

  Architecture& architecture_;
  std::int32_t layer_ = -1;
  std::string prefix_;
};

}  // namespace moe::model
