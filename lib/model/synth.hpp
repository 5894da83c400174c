#pragma once

// Writes a checkpoint of random weights for a config: the published layout, names and dtypes, so
// that speed can be measured on shapes whose weights one does not have.
//
// Weights: matrices N(0, 1/sqrt(fan_in)), norms near 1, biases small, router rows such that logits
// have a standard deviation of about 2. Same config, seed and options give the same bytes.
//
// Router skew s: expert popularity follows rank^-s (a share above 0.98 of the tokens is capped and
// spread). The offsets that do it are found by simulating the selection rule, and are put where the
// family has room for them:
//   - a correction bias (DeepSeek-V3, Kimi-K2, GLM-4.5) or a router bias (gpt-oss): there;
//   - LayerNorm with bias (Phi-3.5-MoE): channel 0 of the router's input is set to 1 by weight 0
//   and
//     bias 1 of the norm, and column 0 of the router holds the offsets;
//   - elsewhere: channel 0 of the residual stream is a constant. The embedding has the same value
//   in
//     column 0 of every row, and no block writes to channel 0 (row 0 of o_proj and down_proj is
//     zero; both are scaled by 1/sqrt(2 layers) so that the constant keeps its share of the norm).
//     Only the router reads it: weight 0 of the other norms and column 0 of gate and up are zero.
// Each layer numbers its experts differently, so popular experts differ from layer to layer.

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "lib/base/interrupt.hpp"
#include "lib/base/progress.hpp"
#include "lib/base/thread_pool.hpp"
#include "lib/model/dtype.hpp"

namespace moe::model {

struct SynthOptions {
  Dtype dtype = Dtype::kBf16;  // F32, F16 or BF16, of what quantization_config leaves alone
  std::uint64_t seed = 1;
  double router_skew = 0.0;  // the Zipf exponent; 0: every expert as popular as the others
  std::int64_t shard_bytes = std::int64_t{5'000'000'000};
  ThreadPool* pool = nullptr;            // fills on its threads when given
  Progress* progress = nullptr;          // bytes written
  const Interrupt* interrupt = nullptr;  // looked at between pieces; nothing is left behind then
};

struct SynthResult {
  std::int64_t num_tensors = 0;
  std::int64_t num_parameters = 0;
  std::int64_t tensor_bytes = 0;
  std::int64_t num_shards = 0;
};

// `config_json` is the text of a config.json (`config_file` names it in messages); `directory` is
// created and must be empty. No tokenizer is written. Throws Error: kInput for the config, kUsage
// for the options and the directory, kRuntime when the disk is too small, writing fails or it is
// interrupted; nothing stays behind then.
SynthResult synth_checkpoint(std::string_view config_json, const std::filesystem::path& config_file,
                             const std::filesystem::path& directory, const SynthOptions& options);

}  // namespace moe::model
