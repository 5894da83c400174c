#include "lib/engine/engine.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/engine/decoder.hpp"
#include "lib/engine/memory_estimate.hpp"
#include "lib/engine/placement.hpp"

namespace moe::engine {
namespace {

using model::ModelConfig;

// Bounds that keep every product of sizes far from overflow.
constexpr std::int32_t kMaxSequences = 1 << 16;
constexpr std::int64_t kMaxBatchTokens = 1 << 20;

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::kUsage, message);
}

void check_top_k(const ModelConfig& config, std::int32_t top_k) {
  if (top_k == 0) return;
  if (!config.is_moe()) refuse("the number of experts per token cannot be set: the model is dense");
  const model::RouterRule& rule = config.moe.router;
  const std::int32_t selectable =
      rule.group_rule == model::GroupRule::kNone
          ? config.moe.num_experts
          : rule.num_groups_kept * (config.moe.num_experts / rule.num_groups);
  if (top_k < 1 || top_k > selectable) {
    refuse(fmt::format("experts per token: expected 1 to {} for this model, found {}", selectable,
                       top_k));
  }
}

void check_options(const ModelConfig& config, const EngineOptions& options) {
  if (options.num_threads < 1) {
    refuse(fmt::format("threads: expected at least 1, found {}", options.num_threads));
  }
  if (options.max_sequences < 1 || options.max_sequences > kMaxSequences) {
    refuse(
        fmt::format("sequences: expected 1 to {}, found {}", kMaxSequences, options.max_sequences));
  }
  if (options.max_batch_tokens < 1 || options.max_batch_tokens > kMaxBatchTokens) {
    refuse(fmt::format("tokens per pass: expected 1 to {}, found {}", kMaxBatchTokens,
                       options.max_batch_tokens));
  }
  if (options.max_context < 1 || options.max_context > config.max_position_embeddings) {
    refuse(
        fmt::format("context: expected 1 to {} tokens (max_position_embeddings), found {}; "
                    "shorten the prompt or the output",
                    config.max_position_embeddings, options.max_context));
  }
  check_top_k(config, options.top_k_override);
  if (options.kernel_table == nullptr && kernels::kernel_table(options.isa) == nullptr) {
    throw Error(ErrorCode::kUnavailable,
                fmt::format("this machine or this build has no kernels of level {}; choose another",
                            kernels::isa_name(options.isa)));
  }
}

}  // namespace

std::string_view stage_name(Stage stage) {
  switch (stage) {
    case Stage::kEmbed:
      return "embed";
    case Stage::kAttention:
      return "attention";
    case Stage::kRouter:
      return "router";
    case Stage::kExperts:
      return "experts";
    case Stage::kCombine:
      return "combine";
    case Stage::kDense:
      return "dense";
    case Stage::kHead:
      return "head";
  }
  return "";
}

struct Engine::Impl {
  Impl(const model::BoundModel& model, const EngineOptions& engine_options)
      : config(model.config), options(engine_options), pool(engine_options.num_threads) {}

  ModelConfig config;
  EngineOptions options;
  MemoryEstimate memory;
  ThreadPool pool;
  ModelWeights weights;
  DecoderState decoder;
  PlacementOutcome placement;
  ForwardStats stats;
  // For an observer of MLA keys: the stored matrices and what keeps them mapped.
  model::AttentionView layer0_mla;
  std::shared_ptr<const model::TensorFiles> files;
  std::shared_ptr<const model::GgufFile> gguf;

  std::vector<std::int64_t> lengths;             // [sequence]
  std::vector<std::vector<std::int32_t>> texts;  // [sequence], only where KV must be recomputed
  std::vector<RopeMode> modes;                   // [sequence], of the stored keys
  std::vector<bool> is_in_call;                  // [sequence]
  std::vector<Segment> segments;
  Pass pass;
  AlignedBuffer<float> logits;

  void prepare(const model::BoundModel& model, Placer& placer);
  void check_batch(std::span<const BatchEntry> batch);
  std::int64_t plan_segments(std::span<const BatchEntry> batch);
  void reset_stats();
  [[nodiscard]] bool recomputes() const {
    return config.attention.rope.kind == model::RopeKind::kLongrope;
  }
};

void Engine::Impl::prepare(const model::BoundModel& model, Placer& placer) {
  const WorkspaceShape shape = workspace_shape(config, options);
  decoder.config = &config;
  decoder.weights = &weights;
  if (config.attention.is_mla) {
    layer0_mla = model.layers.front().attention;
    files = model.files;
    gguf = model.gguf;
    decoder.layer0_mla = &layer0_mla;
  }
  decoder.top_k = shape.top_k;
  decoder.rope_short = make_rope_table(config.attention.rope, RopeMode::kShort);
  if (recomputes()) {
    decoder.rope_long = make_rope_table(config.attention.rope, RopeMode::kLong);
  }
  decoder.exec.pool = &pool;
  decoder.exec.kernels =
      options.kernel_table != nullptr ? options.kernel_table : kernels::kernel_table(options.isa);
  decoder.exec.activations = options.activations;
  decoder.exec.moe_path = options.moe_path;
  decoder.exec.stats = &stats;
  const std::int64_t max_calls =
      std::max<std::int64_t>(config.moe.num_experts + 1, config.attention.num_heads);
  const std::int64_t max_call_rows =
      shape.max_rows * std::max<std::int64_t>(shape.top_k + 1, config.attention.num_heads);
  decoder.exec.items.reserve(
      static_cast<std::size_t>(max_work_items(options.num_threads, max_calls, max_call_rows)));
  decoder.kv = KvCache(config, options.max_sequences, options.max_context);
  for (const std::span<const std::byte> block : decoder.kv.blocks()) placer.interleave(block);
  decoder.ws = make_workspace(config, weights, shape, false);

  const auto num_sequences = static_cast<std::size_t>(options.max_sequences);
  lengths.assign(num_sequences, 0);
  modes.assign(num_sequences, RopeMode::kShort);
  is_in_call.assign(num_sequences, false);
  if (recomputes()) {
    texts.resize(num_sequences);
    for (auto& text : texts) text.reserve(static_cast<std::size_t>(options.max_context));
  }
  segments.reserve(2 * num_sequences);
  pass.reserve(shape.max_rows, 2 * shape.max_runs);
  stats.expert_tokens.resize(config.layers.size());
  stats.distinct_experts.assign(config.layers.size(), 0);
  for (std::size_t layer = 0; layer < config.layers.size(); ++layer) {
    if (!config.layers[layer].is_moe) continue;
    stats.expert_tokens[layer].assign(static_cast<std::size_t>(config.moe.num_experts), 0);
  }
}

void Engine::Impl::reset_stats() {
  for (auto& layer : stats.expert_tokens) std::fill(layer.begin(), layer.end(), 0);
  std::fill(stats.distinct_experts.begin(), stats.distinct_experts.end(), 0);
  stats.stage_s.fill(0.0);
  stats.wall_s = 0.0;
  stats.num_tokens = 0;
  stats.num_recomputed_tokens = 0;
  stats.weight_bytes_read = 0;
  stats.expert_weight_bytes_read = 0;
  stats.kv_bytes_read = 0;
  stats.flops = 0;
}

// Everything is checked before anything changes.
void Engine::Impl::check_batch(std::span<const BatchEntry> batch) {
  if (batch.empty()) refuse("a forward pass needs at least one sequence");
  std::fill(is_in_call.begin(), is_in_call.end(), false);
  for (const BatchEntry& entry : batch) {
    if (entry.sequence < 0 || entry.sequence >= options.max_sequences) {
      refuse(
          fmt::format("sequence {}: expected 0 to {}", entry.sequence, options.max_sequences - 1));
    }
    const auto sequence = static_cast<std::size_t>(entry.sequence);
    if (is_in_call[sequence]) refuse(fmt::format("sequence {} is in the batch twice", sequence));
    is_in_call[sequence] = true;
    if (entry.tokens.empty()) refuse(fmt::format("sequence {} has no tokens", sequence));
    const auto end = lengths[sequence] + static_cast<std::int64_t>(entry.tokens.size());
    if (end > options.max_context) {
      refuse(
          fmt::format("sequence {}: {} tokens exceed the context of {}; shorten the prompt or "
                      "the output, or choose a longer context",
                      sequence, end, options.max_context));
    }
    for (const std::int32_t token : entry.tokens) {
      if (token < 0 || token >= config.vocab_size) {
        refuse(
            fmt::format("token id {}: expected 0 to {}; the prompt was made for another "
                        "vocabulary",
                        token, config.vocab_size - 1));
      }
    }
  }
}

// Returns the number of logits rows. LongRoPE: when a sequence crosses the border between the two
// sets of frequencies, by growth or after a truncation, its stored keys belong to the wrong set and
// all its tokens run again.
std::int64_t Engine::Impl::plan_segments(std::span<const BatchEntry> batch) {
  segments.clear();
  std::int64_t num_logits = 0;
  for (const BatchEntry& entry : batch) {
    const auto sequence = static_cast<std::size_t>(entry.sequence);
    const std::int64_t length = lengths[sequence];
    const auto count = static_cast<std::int64_t>(entry.tokens.size());
    const RopeMode mode = rope_mode(config.attention.rope, length + count);
    if (length > 0 && mode != modes[sequence]) {
      segments.push_back({entry.sequence, 0, texts[sequence], mode, Segment::Logits::kNone});
      stats.num_recomputed_tokens += length;
    }
    segments.push_back({entry.sequence, length, entry.tokens, mode,
                        entry.all_logits ? Segment::Logits::kAll : Segment::Logits::kLast});
    modes[sequence] = mode;
    num_logits += entry.all_logits ? count : 1;
  }
  return num_logits;
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;
Engine::~Engine() = default;

MemoryEstimate Engine::estimate(const ModelConfig& config, const model::BoundModel& model,
                                const EngineOptions& options) {
  check_options(config, options);
  ModelWeights weights;
  const PackPlan plan = plan_weights(model, weights);
  return estimate_memory(model, options, weights, plan);
}

Engine Engine::load(const model::BoundModel& model, const EngineOptions& options,
                    Progress& progress, const Interrupt& interrupt) {
  return load(model, options, sysinfo::machine_numa(), progress, interrupt);
}

Engine Engine::load(const model::BoundModel& model, const EngineOptions& options,
                    const sysinfo::NumaSystem& numa, Progress& progress,
                    const Interrupt& interrupt) {
  check_options(model.config, options);
  auto impl = std::make_unique<Impl>(model, options);
  const PackPlan plan = plan_weights(model, impl->weights);
  impl->memory = estimate_memory(model, options, impl->weights, plan);
  check_memory(impl->memory, options.max_memory_bytes);
  Placer placer(numa, options.num_threads);
  placer.bind_workers(impl->pool);
  impl->weights.packed = AlignedBytes(plan.total_bytes());
  placer.interleave(std::as_bytes(
      std::span(impl->weights.packed.data(), static_cast<std::size_t>(plan.total_bytes()))));
  load_weights(model, plan, impl->pool, progress, interrupt, impl->weights);
  impl->prepare(model, placer);
  impl->placement = placer.outcome();
  return Engine(std::move(impl));
}

const ModelConfig& Engine::config() const {
  return impl_->config;
}
const EngineOptions& Engine::options() const {
  return impl_->options;
}
const MemoryEstimate& Engine::memory() const {
  return impl_->memory;
}
const ForwardStats& Engine::last_stats() const {
  return impl_->stats;
}

void Engine::set_moe_path(MoePath path) {
  MOE_CHECK(path == MoePath::kFused || impl_->options.moe_path == MoePath::kUnfused);
  impl_->decoder.exec.moe_path = path;
}

void Engine::set_tensor_observer(TensorObserver* observer) {
  impl_->decoder.exec.tensor_observer = observer;
}

void Engine::set_routing_observer(RoutingObserver* observer) {
  impl_->decoder.exec.routing_observer = observer;
}

ThreadPool& Engine::threads() {
  return impl_->pool;
}

std::span<const std::byte> Engine::packed_weights() const {
  const AlignedBytes& packed = impl_->weights.packed;
  return {packed.data(), static_cast<std::size_t>(packed.size_bytes())};
}

std::array<std::span<const std::byte>, 2> Engine::kv_cache() const {
  return impl_->decoder.kv.blocks();
}

const PlacementOutcome& Engine::placement() const {
  return impl_->placement;
}

void Engine::reset(SequenceId sequence) {
  truncate(sequence, 0);
}

std::int64_t Engine::length(SequenceId sequence) const {
  MOE_CHECK(sequence >= 0 && sequence < impl_->options.max_sequences);
  return impl_->lengths[static_cast<std::size_t>(sequence)];
}

void Engine::truncate(SequenceId sequence, std::int64_t length) {
  MOE_CHECK(sequence >= 0 && sequence < impl_->options.max_sequences);
  const auto idx = static_cast<std::size_t>(sequence);
  MOE_CHECK(length >= 0 && length <= impl_->lengths[idx]);
  impl_->lengths[idx] = length;
  if (impl_->recomputes()) impl_->texts[idx].resize(static_cast<std::size_t>(length));
}

std::span<const float> Engine::forward(std::span<const BatchEntry> batch) {
  const SteadyClock clock;
  const double begin_s = clock.now_s();
  Impl& impl = *impl_;
  impl.check_batch(batch);
  impl.reset_stats();
  const std::int64_t num_logits = impl.plan_segments(batch);
  const std::int64_t vocab_size = impl.config.vocab_size;
  if (impl.logits.size() < num_logits * vocab_size) {
    impl.logits = AlignedBuffer<float>(num_logits * vocab_size);
  }
  PassCursor cursor(impl.segments, workspace_shape(impl.config, impl.options).max_rows);
  float* logits = impl.logits.data();
  while (cursor.next(impl.pass)) {
    run_pass(impl.decoder, impl.pass, logits);
    logits += static_cast<std::int64_t>(impl.pass.head_rows.size()) * vocab_size;
  }
  for (const BatchEntry& entry : batch) {
    const auto sequence = static_cast<std::size_t>(entry.sequence);
    impl.lengths[sequence] += static_cast<std::int64_t>(entry.tokens.size());
    if (impl.recomputes()) {
      impl.texts[sequence].insert(impl.texts[sequence].end(), entry.tokens.begin(),
                                  entry.tokens.end());
    }
  }
  impl.stats.wall_s = clock.now_s() - begin_s;
  return {impl.logits.data(), static_cast<std::size_t>(num_logits * vocab_size)};
}

}  // namespace moe::engine
