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
    model_.final_norm.weight = vector("output_norm.weight", hidden);
    model_.lm_head = config_.tie_word_embeddings
                         ? model_.embedding
                         : matrix("output.weight", config_.vocab_size, hidden);
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
    const GgufTensor& tensor = take(name, {size});
    const GgufStorage& storage = storage_of(tensor);
    if (storage.encoding != MatrixEncoding::kPlain) {
      fail(name, "a vector in a block type is not supported; expected F32, F16 or BF16");
    }
    scan(tensor, storage);
    return {tensor.name, storage.dtype, size, file_.bytes(tensor).data(), 1};
  }

  MatrixView layer_matrix(std::string_view name, std::int64_t rows, std::int64_t cols) {
    return matrix(fmt::format("{}{}.weight", prefix_, name), rows, cols);
  }
  VectorView layer_vector(std::string_view name, std::int64_t size) {
    return vector(prefix_ + std::string(name), size);
  }

  void bind_attention(AttentionView& view) {
    const AttentionConfig& attention = config_.attention;
    const std::int64_t hidden = config_.hidden_size;
    const std::int64_t q_width = std::int64_t{attention.num_heads} * attention.head_dim;
    const std::int64_t kv_width = std::int64_t{attention.num_kv_heads} * attention.head_dim;
    view.q = layer_matrix("attn_q", q_width, hidden);
    view.k = layer_matrix("attn_k", kv_width, hidden);
    view.v = layer_matrix("attn_v", kv_width, hidden);
    view.o = layer_matrix("attn_output", hidden, q_width);
    if (attention.has_qkv_bias) {
      view.q_bias = layer_vector("attn_q.bias", q_width);
      view.k_bias = layer_vector("attn_k.bias", kv_width);
      view.v_bias = layer_vector("attn_v.bias", kv_width);
    }
    if (attention.qk_norm != QkNorm::kNone) {
      const bool whole = attention.qk_norm == QkNorm::kWholeProjection;
      view.q_norm = layer_vector("attn_q_norm.weight", whole ? q_width : attention.head_dim);
      view.k_norm = layer_vector("attn_k_norm.weight", whole ? kv_width : attention.head_dim);
    }
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
    const GgufTensor& gate = take(prefix_ + "ffn_gate_exps.weight", {hidden, width, count});
    const GgufTensor& up = take(prefix_ + "ffn_up_exps.weight", {hidden, width, count});
    const GgufTensor& down = take(prefix_ + "ffn_down_exps.weight", {width, hidden, count});
    for (std::int64_t expert = 0; expert < count; ++expert) {
      FfnView& view = experts[static_cast<std::size_t>(expert)];
      view.gate = rows_of(gate, expert * width, width, hidden);
      view.up = rows_of(up, expert * width, width, hidden);
      view.down = rows_of(down, expert * hidden, hidden, width);
    }
  }

  void bind_layer(const LayerConfig& layer, LayerView& view) {
    const std::int64_t hidden = config_.hidden_size;
    view.input_norm.weight = layer_vector("attn_norm.weight", hidden);
    view.post_attention_norm.weight = layer_vector("ffn_norm.weight", hidden);
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
    bind_experts(view.experts);
    if (config_.moe.shared_intermediate_size > 0) {
      view.shared = ffn("_shexp", config_.moe.shared_intermediate_size);
    }
    if (config_.moe.has_shared_gate) {
      view.shared_gate = layer_vector("ffn_gate_inp_shexp.weight", hidden);
    }
  }

  // Everything in the file is used.
  void check_rest() const {
    for (const GgufTensor& tensor : file_.header().tensors) {
      if (used_.contains(tensor.name) || tensor.name == "rope_freqs.weight") continue;
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
