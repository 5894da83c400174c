#include "lib/model/gguf_binder.hpp"

#include <array>
#include <optional>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/base/text.hpp"
#include "lib/model/coded_matrix.hpp"
#include "lib/model/gguf_config.hpp"
#include "lib/model/gguf_file.hpp"
#include "lib/model/gguf_types.hpp"
#include "lib/model/safetensors.hpp"
#include "lib/model/value_scan.hpp"

namespace moe::model {
namespace {

struct GgufStorage {
  std::uint32_t type_id;
  MatrixEncoding encoding;
  Dtype dtype;  // of a plain one
};

constexpr std::array<GgufStorage, 8> kStorages = {{
    {0, MatrixEncoding::kPlain, Dtype::kF32},
    {1, MatrixEncoding::kPlain, Dtype::kF16},
    {2, MatrixEncoding::kGgufQ4_0, Dtype::kU8},
    {8, MatrixEncoding::kGgufQ8_0, Dtype::kU8},
    {12, MatrixEncoding::kGgufQ4K, Dtype::kU8},
    {14, MatrixEncoding::kGgufQ6K, Dtype::kU8},
    {30, MatrixEncoding::kPlain, Dtype::kBf16},
    {39, MatrixEncoding::kGgufMxfp4, Dtype::kU8},
}};

std::string dims_text(const std::vector<std::int64_t>& dims) {
  std::string text;
  for (const std::int64_t size : dims) text += fmt::format("{}{}", text.empty() ? "" : ", ", size);
  return "[" + text + "]";
}

class GgufBinder {
 public:
  GgufBinder(const GgufFile& file, const BindOptions& options, BoundModel& model)
      : file_(file), options_(options), model_(model), config_(model.config) {}

  void run() {
    const std::int64_t hidden = config_.hidden_size;
    model_.embedding = matrix("token_embd.weight", config_.vocab_size, hidden);
    model_.final_norm = norm("output_norm", hidden);
    model_.lm_head = config_.tie_word_embeddings
                         ? model_.embedding
                         : matrix("output.weight", config_.vocab_size, hidden);
    if (config_.has_lm_head_bias) model_.lm_head_bias = vector("output.bias", config_.vocab_size);
    model_.layers.resize(config_.layers.size());
    for (std::size_t layer = 0; layer < model_.layers.size(); ++layer) {
      prefix_ = fmt::format("blk.{}.", layer);
      bind_layer(config_.layers[layer], model_.layers[layer]);
    }
    check_rest();
  }

 private:
  [[noreturn]] void fail(std::string_view name, const std::string& what) const {
    file_.fail(fmt::format("tensor \"{}\"", printable(name)), what);
  }

  const GgufTensor& take(const std::string& name, const std::vector<std::int64_t>& dims) {
    const GgufTensor* tensor = file_.find(name);
    if (tensor == nullptr) {
      fail(name, fmt::format("missing; a {} model of these keys needs it with dimensions {}",
                             family_name(config_.family), dims_text(dims)));
    }
    if (tensor->dims != dims) {
      fail(name, fmt::format("dimensions {}, expected {} by the keys of the file",
                             dims_text(tensor->dims), dims_text(dims)));
    }
    used_.insert(tensor->name);
    return *tensor;
  }

  const GgufStorage& storage_of(const GgufTensor& tensor) const {
    for (const GgufStorage& storage : kStorages) {
      if (storage.type_id == tensor.type_id) return storage;
    }
    const auto type = find_gguf_block_type(tensor.type_id);  // the header reader knows it
    fail(tensor.name, fmt::format("type {} is not supported; supported: F32, F16, BF16, Q8_0, "
                                  "Q4_0, Q4_K, Q6_K, MXFP4",
                                  type ? type->name : "unknown"));
  }

  void scan(const GgufTensor& tensor, const GgufStorage& storage) const {
    if (!options_.scan_values || storage.encoding != MatrixEncoding::kPlain) return;
    TensorRef ref;
    ref.name = tensor.name;
    ref.dtype = storage.dtype;
    ref.bytes = file_.bytes(tensor);
    require_finite(ref, file_.path());
  }

  // Rows [first_row, first_row + rows) of the tensor's rows of `cols`.
  MatrixView rows_of(const GgufTensor& tensor, std::int64_t first_row, std::int64_t rows,
                     std::int64_t cols) const {
    const GgufStorage& storage = storage_of(tensor);
    MatrixView view;
    view.name = tensor.name;
    view.encoding = storage.encoding;
    view.dtype = storage.dtype;
    view.rows = rows;
    view.cols = cols;
    view.data = file_.bytes(tensor).data();
    if (storage.encoding == MatrixEncoding::kPlain) {
      view.row_stride = cols;
      view.data += first_row * cols * dtype_bits(storage.dtype) / 8;
    } else {
      view.row_stride = gguf_row_bytes(storage.encoding, cols);
      view.data += first_row * view.row_stride;
    }
    return view;
  }

  MatrixView matrix(const std::string& name, std::int64_t rows, std::int64_t cols) {
    return rows_of(take(name, {cols, rows}), 0, rows, cols);
  }

  VectorView vector(const std::string& name, std::int64_t size) {
    return whole_vector(take(name, {size}), size);
  }

  VectorView whole_vector(const GgufTensor& tensor, std::int64_t size) const {
    const GgufStorage& storage = storage_of(tensor);
    if (storage.encoding != MatrixEncoding::kPlain) {
      fail(tensor.name, "a vector in a block type is not supported; expected F32, F16 or BF16");
    }
    scan(tensor, storage);
    return {tensor.name, storage.dtype, size, file_.bytes(tensor).data(), 1};
  }

  NormView norm(const std::string& name, std::int64_t size) {
    NormView view;
    view.weight = vector(name + ".weight", size);
    if (config_.norm == NormKind::kLayerNormWithBias) view.bias = vector(name + ".bias", size);
    return view;
  }

  MatrixView layer_matrix(std::string_view name, std::int64_t rows, std::int64_t cols) {
    return matrix(fmt::format("{}{}.weight", prefix_, name), rows, cols);
  }
  VectorView layer_vector(std::string_view name, std::int64_t size) {
    return vector(prefix_ + std::string(name), size);
  }

  void bind_attention(AttentionView& view) {
    const AttentionConfig& attention = config_.attention;
    const std::int64_t q_width = std::int64_t{attention.num_heads} * attention.head_dim;
    const std::int64_t kv_width = std::int64_t{attention.num_kv_heads} * attention.head_dim;
    if (attention.is_mla) {
      bind_mla(view);
      return;
    }
    bind_qkv(view, q_width, kv_width);
    view.o = layer_matrix("attn_output", config_.hidden_size, q_width);
    if (attention.has_o_bias) view.o_bias = layer_vector("attn_output.bias", config_.hidden_size);
    if (attention.has_sinks) view.sinks = layer_vector("attn_sinks.weight", attention.num_heads);
    if (attention.qk_norm == QkNorm::kPerHead || attention.qk_norm == QkNorm::kWholeProjection) {
      const bool whole = attention.qk_norm == QkNorm::kWholeProjection;
      view.q_norm = layer_vector("attn_q_norm.weight", whole ? q_width : attention.head_dim);
      view.k_norm = layer_vector("attn_k_norm.weight", whole ? kv_width : attention.head_dim);
    }
  }

  // Three tensors, or one with the rows of q, of k and of v, one after another.
  void bind_qkv(AttentionView& view, std::int64_t q_width, std::int64_t kv_width) {
    const std::int64_t hidden = config_.hidden_size;
    const bool has_bias = config_.attention.has_qkv_bias;
    const std::string fused = prefix_ + "attn_qkv.weight";
    if (file_.find(fused) == nullptr) {
      view.q = layer_matrix("attn_q", q_width, hidden);
      view.k = layer_matrix("attn_k", kv_width, hidden);
      view.v = layer_matrix("attn_v", kv_width, hidden);
      if (!has_bias) return;
      view.q_bias = layer_vector("attn_q.bias", q_width);
      view.k_bias = layer_vector("attn_k.bias", kv_width);
      view.v_bias = layer_vector("attn_v.bias", kv_width);
      return;
    }
    const GgufTensor& tensor = take(fused, {hidden, q_width + 2 * kv_width});
    view.q = rows_of(tensor, 0, q_width, hidden);
    view.k = rows_of(tensor, q_width, kv_width, hidden);
    view.v = rows_of(tensor, q_width + kv_width, kv_width, hidden);
    if (!has_bias) return;
    const VectorView bias = layer_vector("attn_qkv.bias", q_width + 2 * kv_width);
    view.q_bias = part_of(bias, 0, q_width);
    view.k_bias = part_of(bias, q_width, kv_width);
    view.v_bias = part_of(bias, q_width + kv_width, kv_width);
  }

  static VectorView part_of(const VectorView& whole, std::int64_t begin, std::int64_t size) {
    VectorView view = whole;
    view.data += begin * dtype_bits(whole.dtype) / 8;
    view.size = size;
    return view;
  }

  void bind_mla(AttentionView& view) {
    const AttentionConfig& attention = config_.attention;
    const MlaConfig& mla = attention.mla;
    const std::int64_t hidden = config_.hidden_size;
    const std::int64_t heads = attention.num_heads;
    const std::int64_t q_width = heads * attention.head_dim;
    const std::int64_t lora = mla.kv_lora_rank;
    if (mla.q_lora_rank > 0) {
      view.q_a = layer_matrix("attn_q_a", mla.q_lora_rank, hidden);
      view.q_a_norm = layer_vector("attn_q_a_norm.weight", mla.q_lora_rank);
      view.q_b = layer_matrix("attn_q_b", q_width, mla.q_lora_rank);
    } else {
      view.q = layer_matrix("attn_q", q_width, hidden);
    }
    view.kv_a = layer_matrix("attn_kv_a_mqa", lora + mla.qk_rope_head_dim, hidden);
    view.kv_a_norm = layer_vector("attn_kv_a_norm.weight", lora);
    view.o = layer_matrix("attn_output", hidden, heads * mla.v_head_dim);
    if (file_.find(prefix_ + "attn_kv_b.weight") != nullptr) {
      view.kv_b = layer_matrix("attn_kv_b", heads * (mla.qk_nope_head_dim + mla.v_head_dim), lora);
      for (const std::string_view part : {"attn_k_b.weight", "attn_v_b.weight"}) {
        ignore(prefix_ + std::string(part), "attn_kv_b holds the same");
      }
      return;
    }
    const std::int64_t nope = mla.qk_nope_head_dim;
    view.k_b =
        rows_of(take(prefix_ + "attn_k_b.weight", {nope, lora, heads}), 0, heads * lora, nope);
    view.v_b = rows_of(take(prefix_ + "attn_v_b.weight", {lora, mla.v_head_dim, heads}), 0,
                       heads * mla.v_head_dim, lora);
  }

  // A tensor that may be there and is not part of the model.
  void ignore(const std::string& name, std::string_view rule) {
    const GgufTensor* tensor = file_.find(name);
    if (tensor == nullptr || !used_.insert(tensor->name).second) return;
    model_.ignored_tensors.push_back(fmt::format("{} ({})", printable(name), rule));
  }

  FfnView ffn(std::string_view suffix, std::int64_t width) {
    const std::int64_t hidden = config_.hidden_size;
    FfnView view;
    view.gate = layer_matrix(fmt::format("ffn_gate{}", suffix), width, hidden);
    view.up = layer_matrix(fmt::format("ffn_up{}", suffix), width, hidden);
    view.down = layer_matrix(fmt::format("ffn_down{}", suffix), hidden, width);
    return view;
  }

  // All experts of a layer in one tensor, or, in old files, a tensor each.
  void bind_experts(std::vector<FfnView>& experts) {
    const std::int64_t hidden = config_.hidden_size;
    const std::int64_t width = config_.moe.expert_intermediate_size;
    const std::int64_t count = config_.moe.num_experts;
    experts.resize(static_cast<std::size_t>(count));
    if (file_.find(prefix_ + "ffn_gate_exps.weight") == nullptr &&
        file_.find(prefix_ + "ffn_gate.0.weight") != nullptr) {
      for (std::size_t expert = 0; expert < experts.size(); ++expert) {
        experts[expert].gate = layer_matrix(fmt::format("ffn_gate.{}", expert), width, hidden);
        experts[expert].up = layer_matrix(fmt::format("ffn_up.{}", expert), width, hidden);
        experts[expert].down = layer_matrix(fmt::format("ffn_down.{}", expert), hidden, width);
      }
      return;
    }
    const GgufTensor& down = take(prefix_ + "ffn_down_exps.weight", {width, hidden, count});
    const std::string fused = prefix_ + "ffn_gate_up_exps.weight";  // rows of gate, then of up
    const bool is_fused = file_.find(fused) != nullptr;
    const GgufTensor& gate = is_fused
                                 ? take(fused, {hidden, 2 * width, count})
                                 : take(prefix_ + "ffn_gate_exps.weight", {hidden, width, count});
    const GgufTensor& up =
        is_fused ? gate : take(prefix_ + "ffn_up_exps.weight", {hidden, width, count});
    const std::int64_t step = is_fused ? 2 * width : width;
    for (std::int64_t expert = 0; expert < count; ++expert) {
      FfnView& view = experts[static_cast<std::size_t>(expert)];
      view.gate = rows_of(gate, expert * step, width, hidden);
      view.up = rows_of(up, expert * step + (is_fused ? width : 0), width, hidden);
      view.down = rows_of(down, expert * hidden, hidden, width);
    }
    if (config_.moe.has_expert_bias) bind_expert_biases(experts);
  }

  void bind_expert_biases(std::vector<FfnView>& experts) {
    const std::int64_t count = std::ssize(experts);
    const auto bind = [&](std::string_view name, std::int64_t size, VectorView FfnView::*member) {
      const GgufTensor& tensor = take(prefix_ + std::string(name), {size, count});
      const VectorView all = whole_vector(tensor, size * count);
      for (std::int64_t expert = 0; expert < count; ++expert) {
        experts[static_cast<std::size_t>(expert)].*member = part_of(all, expert * size, size);
      }
    };
    bind("ffn_gate_exps.bias", config_.moe.expert_intermediate_size, &FfnView::gate_bias);
    bind("ffn_up_exps.bias", config_.moe.expert_intermediate_size, &FfnView::up_bias);
    bind("ffn_down_exps.bias", config_.hidden_size, &FfnView::down_bias);
  }

  // The norm before the feed-forward block, which the architectures call by different names.
  std::string ffn_norm_name() const {
    switch (config_.family) {
      case Family::kGptOss:
      case Family::kGlm4Moe:
        return prefix_ + "post_attention_norm";
      case Family::kDbrx:
        return prefix_ + "attn_output_norm";
      default:
        return prefix_ + "ffn_norm";
    }
  }

  void bind_layer(const LayerConfig& layer, LayerView& view) {
    const std::int64_t hidden = config_.hidden_size;
    view.input_norm = norm(prefix_ + "attn_norm", hidden);
    view.post_attention_norm = norm(ffn_norm_name(), hidden);
    bind_attention(view.attention);
    if (!layer.is_moe) {
      view.dense = ffn("", config_.intermediate_size);
      return;
    }
    const std::string router = prefix_ + "ffn_gate_inp.weight";
    view.router = matrix(router, config_.moe.num_experts, hidden);
    if (view.router.encoding != MatrixEncoding::kPlain) {
      fail(router, "a router in a block type is not supported; expected F32, F16 or BF16");
    }
    scan(*file_.find(router), storage_of(*file_.find(router)));
    const RouterRule& rule = config_.moe.router;
    if (rule.has_logit_bias) {
      view.router_bias = layer_vector("ffn_gate_inp.bias", config_.moe.num_experts);
    }
    if (rule.has_correction_bias) {
      view.correction_bias = layer_vector("exp_probs_b.bias", config_.moe.num_experts);
    }
    bind_experts(view.experts);
    if (config_.moe.shared_intermediate_size > 0) {
      view.shared = ffn("_shexp", config_.moe.shared_intermediate_size);
    }
    if (config_.moe.has_shared_gate) {
      view.shared_gate = layer_vector("ffn_gate_inp_shexp.weight", hidden);
    }
  }

  // Everything in the file is used, or ignored by a rule.
  void check_rest() {
    for (std::int32_t extra = 0; extra < config_.num_nextn_predict_layers; ++extra) {
      const std::string prefix = fmt::format("blk.{}.", config_.num_hidden_layers + extra);
      for (const GgufTensor& tensor : file_.header().tensors) {
        if (tensor.name.starts_with(prefix)) {
          ignore(tensor.name, "multi-token prediction layer (nextn_predict_layers)");
        }
      }
    }
    used_.insert("rope_freqs.weight");  // read with the keys
    if (config_.family == Family::kPhimoe) {
      used_.insert("rope_factors_long.weight");
      used_.insert("rope_factors_short.weight");
    }
    for (const GgufTensor& tensor : file_.header().tensors) {
      if (used_.contains(tensor.name)) continue;
      fail(tensor.name, fmt::format("not part of a {} model of these keys; every tensor must be "
                                    "used",
                                    family_name(config_.family)));
    }
  }

  const GgufFile& file_;
  const BindOptions& options_;
  BoundModel& model_;
  const ModelConfig& config_;
  std::string prefix_;
  std::unordered_set<std::string_view> used_;
};

}  // namespace

BoundModel bind_gguf(const std::filesystem::path& path, const BindOptions& options) {
  return bind_gguf(std::make_shared<const GgufFile>(path), options);
}

BoundModel bind_gguf(std::shared_ptr<const GgufFile> file, const BindOptions& options) {
  BoundModel model;
  model.config = read_gguf_config(*file);
  GgufBinder(*file, options, model).run();
  model.warnings.insert(model.warnings.end(), model.config.warnings.begin(),
                        model.config.warnings.end());
  model.file_bytes = file->size_bytes();
  model.gguf = std::move(file);
  return model;
}

}  // namespace moe::model
