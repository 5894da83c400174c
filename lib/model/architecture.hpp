#pragma once

// What a planner needs to know of any model: layers, the weights of each with shape and place, how
// each weight is stored, what the cache of a sequence holds. Made from the text of a config.json;
// for the families the engine runs it is made from ModelConfig and the expected tensors, so both
// count the same weights. Touches no file, never guesses: an unknown architecture or a missing
// field is an Error that lists everything that is missing.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/model/expected_tensors.hpp"
#include "lib/model/weight_format.hpp"

namespace moe::model {

// ---- layers ----

enum class MixerKind : std::uint8_t {
  kNone,        // the layer has a feed-forward part only (Nemotron-H)
  kGqa,         // multi-head and grouped-query attention
  kMla,         // multi-head latent attention
  kCompressed,  // DeepSeek-V4: one shared KV head, window plus compressed entries
  kDeltaNet,    // gated delta net (Qwen3-Next, Qwen3.5)
  kMamba1,
  kMamba2,
  kLightning,  // linear attention with one decay per head (MiniMax-Text-01)
};

// What a sequence keeps besides a cache that grows: the recurrent state of one layer.
struct StateSpec {
  std::int64_t conv_elements = 0;  // in the activation dtype
  std::int64_t ssm_elements = 0;
  std::int32_t ssm_bits = 32;
  std::int64_t heads = 1;  // the state is split over ranks by whole heads
  [[nodiscard]] bool operator==(const StateSpec&) const = default;
};

struct MixerSpec {
  MixerKind kind = MixerKind::kGqa;
  std::int32_t num_heads = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t qk_head_dim = 0;
  std::int32_t v_head_dim = 0;
  bool has_shared_kv = false;  // one tensor serves as key and value (Gemma-4 global layers)
  std::int32_t window = 0;     // sliding window in tokens; 0: all
  std::int32_t chunk = 0;      // chunked local attention: only the current chunk; 0: none
  // kMla, kCompressed
  std::int32_t q_lora_rank = 0;
  std::int32_t kv_lora_rank = 0;
  std::int32_t qk_nope_head_dim = 0;
  std::int32_t qk_rope_head_dim = 0;
  // Sparse attention: an indexer picks index_topk tokens; 0 heads: none.
  std::int32_t index_heads = 0;
  std::int32_t index_head_dim = 0;
  std::int32_t index_topk = 0;
  std::int32_t compress_ratio = 0;   // kCompressed: tokens per compressed entry; 0: window only
  StateSpec state;                   // kDeltaNet, kMamba1, kMamba2, kLightning
  bool has_cross_attention = false;  // a decoder layer of an encoder-decoder: a second, fixed cache
  [[nodiscard]] bool operator==(const MixerSpec&) const = default;
};

enum class FfnKind : std::uint8_t { kNone, kDense, kMoe };

struct FfnSpec {
  FfnKind kind = FfnKind::kDense;
  std::int32_t num_experts = 0;   // kMoe
  std::int32_t top_k = 0;         // kMoe
  std::int32_t expert_width = 0;  // kMoe: intermediate size of one routed expert
  std::int32_t shared_width = 0;  // kMoe: summed width of the shared experts; 0: none
  std::int32_t dense_width = 0;   // kDense, or the dense part beside the experts (Arctic, Gemma-4)
  std::int32_t expert_input = 0;  // kMoe: input width of an expert (hidden, or a latent width)
  bool is_gated = true;           // three matrices, not two
  [[nodiscard]] bool operator==(const FfnSpec&) const = default;
};

struct LayerSpec {
  MixerSpec mixer;
  FfnSpec ffn;
  bool is_encoder = false;
  [[nodiscard]] bool operator==(const LayerSpec&) const = default;
};

// ---- weights ----

// How a weight is divided over the ranks of a tensor-parallel group.
enum class Split : std::uint8_t {
  kNone,     // on every rank: norms, routers, low-rank down-projections
  kVocab,    // rows = vocabulary, padded to 64
  kHeads,    // by query heads (units = heads)
  kKvHeads,  // by key-value heads, each at least once (units = heads)
  kWidth,    // by the width of a dense or shared feed-forward part (units = width)
  kExperts,  // routed experts: whole over the expert-parallel group, or by width
};

enum class SplitAxis : std::uint8_t { kRows, kCols };

// `count` equal matrices; a vector has rows = 1. Biases and norms are vectors.
struct WeightGroup {
  std::string name;  // published name of the first, without ".weight": exclusion lists name it
  Part part = Part::kAttention;
  std::int32_t layer = -1;  // -1: not of a layer
  std::int64_t count = 1;   // experts of the layer
  std::int64_t rows = 1;    // outputs
  std::int64_t cols = 0;    // inputs
  Split split = Split::kNone;
  SplitAxis axis = SplitAxis::kRows;
  std::int64_t units = 1;       // whole pieces along `axis`
  bool is_linear = false;       // a matrix that a quantizer may take
  std::int32_t fixed_bits = 0;  // stored with this width whatever the dtype (F32 biases); 0: dtype
  WeightFormat format;          // resolved by the quantisation rules

  [[nodiscard]] std::int64_t elements() const { return count * rows * cols; }
  [[nodiscard]] std::int64_t bytes() const;
};

// ---- quantisation ----

// Which weights are stored how. Published lists name modules: whole or in part
// ("model.layers.0.mlp.gate", "self_attn"), with "*", or as "re:" and an expression.
struct QuantOverride {
  std::string pattern;
  WeightFormat format;
};

struct QuantRules {
  std::string method;   // "none", "fp8", "gptq", "awq", "compressed-tensors", "mxfp4", "given", ...
  WeightFormat dense;   // what is not quantised
  WeightFormat linear;  // what is
  WeightFormat expert;  // routed experts; equal to linear in most checkpoints
  bool is_experts_only = false;
  bool is_everything = false;  // GGUF: every matrix but the router, embedding and head included
  bool has_quantized_head = false;
  std::vector<QuantOverride> overrides;  // before everything else, first match
  std::vector<std::string> exclusions;
  std::string kv_cache_dtype;  // asked for by the checkpoint ("fp8"); empty: none
};

// ---- the whole ----

struct ParameterSummary {
  std::array<std::int64_t, kNumParts> by_part{};  // index: Part
  std::int64_t total = 0;
  std::int64_t active_with_embeddings = 0;          // Mixtral's convention
  std::int64_t active_without_input_embedding = 0;  // OpenAI's and DeepSeek's
  std::int64_t active_without_embeddings = 0;       // MiniMax's
  std::int64_t mtp = 0;                             // multi-token-prediction module, not in total
  std::int64_t mtp_copies = 0;                      // copies of embedding and head beside it

  [[nodiscard]] std::int64_t of(Part part) const { return by_part[static_cast<std::size_t>(part)]; }
};

struct Architecture {
  std::string model_type;  // as the file says
  std::string name;        // architectures[0], or model_type
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t max_position_embeddings = 0;
  bool has_tied_head = false;
  bool is_encoder_decoder = false;
  bool is_engine_family = false;  // lib/engine runs it
  std::vector<LayerSpec> layers;  // encoder layers first
  std::vector<WeightGroup> weights;
  std::vector<WeightGroup> mtp_weights;  // in the files, loaded for speculative decoding only
  QuantRules quant;
  std::vector<std::string> notes;  // what was left out or read in a particular way, one line each

  [[nodiscard]] bool is_moe() const;
  [[nodiscard]] std::int32_t num_moe_layers() const;
  [[nodiscard]] std::int64_t weight_bytes() const;  // main model, as stored
  [[nodiscard]] std::int64_t mtp_bytes() const;
};

[[nodiscard]] ParameterSummary count_parameters(const Architecture& architecture);

struct ArchitectureOptions {
  std::string quant_config_json;  // text of hf_quant_config.json; empty: none
  std::string weight_format;      // overrides the checkpoint: parse_weight_format(); empty: none
};

// `where` names the file in messages. Throws Error(kInput).
[[nodiscard]] Architecture parse_architecture(std::string_view config_json,
                                              const std::string& where,
                                              const ArchitectureOptions& options = {});

// model_type values that parse_architecture() knows.
[[nodiscard]] std::vector<std::string> known_model_types();

[[nodiscard]] std::string_view mixer_name(MixerKind kind);

}  // namespace moe::model
