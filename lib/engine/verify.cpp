#include "lib/engine/verify.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/engine/compare.hpp"
#include "lib/engine/golden_file.hpp"
#include "lib/engine/sampler.hpp"

namespace moe::engine {
namespace {

// One prompt of a golden file and its greedy continuation. `prefix` is "" or "ragged.0.".
struct GoldenPrompt {
  std::string prefix;
  std::vector<std::int32_t> input_ids;
  std::vector<std::int32_t> greedy_ids;  // may be empty

  [[nodiscard]] std::int64_t num_tokens() const {
    return static_cast<std::int64_t>(input_ids.size());
  }
  [[nodiscard]] std::int64_t num_steps() const {
    return static_cast<std::int64_t>(greedy_ids.size());
  }
};

// Stages of a layer in the order of the computation.
constexpr std::array<std::string_view, 10> kLayerStages = {
    "q_rope",  "k_rope", "attn_out", "router_in", "router_logits",
    "sel_ids", "sel_w",  "moe_out",  "mlp_out",   "hidden"};

std::vector<GoldenPrompt> read_prompts(GoldenFile& golden) {
  std::vector<GoldenPrompt> prompts;
  for (int idx = -1;; ++idx) {
    const std::string prefix = idx < 0 ? "" : fmt::format("ragged.{}.", idx);
    if (idx >= 0 && !golden.has(prefix + "input_ids")) return prompts;
    GoldenPrompt prompt{prefix, golden.ids(prefix + "input_ids"), {}};
    if (golden.has(prefix + "greedy_ids")) {
      prompt.greedy_ids = golden.ids(prefix + "greedy_ids");
    }
    prompts.push_back(std::move(prompt));
  }
}

void check_prompts(const model::ModelConfig& config, const std::vector<GoldenPrompt>& prompts,
                   const std::filesystem::path& file) {
  for (const GoldenPrompt& prompt : prompts) {
    const std::int64_t length = prompt.num_tokens() + prompt.num_steps();
    if (length > config.max_position_embeddings) {
      throw Error(
          ErrorCode::kInput,
          fmt::format("{}: {}input_ids and greedy_ids are {} tokens, the model has {} "
                      "positions; the file is not a golden file of this checkpoint",
                      file.string(), prompt.prefix, length, config.max_position_embeddings));
    }
    for (const auto* ids : {&prompt.input_ids, &prompt.greedy_ids}) {
      for (const std::int32_t id : *ids) {
        if (id >= 0 && id < config.vocab_size) continue;
        throw Error(ErrorCode::kInput,
                    fmt::format("{}: {}input_ids or greedy_ids: token id {}, expected 0 to {}; the "
                                "file is not a golden file of this checkpoint",
                                file.string(), prompt.prefix, id, config.vocab_size - 1));
      }
    }
  }
}

class Verifier {
 public:
  Verifier(Engine& engine, GoldenFile& golden, VerifyResult& result)
      : engine_(engine),
        golden_(golden),
        result_(result),
        vocab_(engine.config().vocab_size),
        num_layers_(engine.config().num_hidden_layers) {}

  // Prompt, then decode steps, of one sequence alone.
  void run_alone(const GoldenPrompt& prompt, const std::string& phase,
                 const std::string& decode_phase) {
    engine_.reset(0);
    observe(true);
    const std::vector<float> logits = run(prompt.input_ids);
    if (golden_.has(prompt.prefix + "position_ids")) compare_positions(prompt, phase);
    compare_recorded(prompt.prefix, prompt.num_tokens(), phase);
    compare_logits(prompt.prefix + "logits", logits, prompt.num_tokens(), phase);
    if (prompt.greedy_ids.empty()) return;

    std::vector<std::int32_t> greedy = {argmax(last_row(logits))};
    std::vector<float> decode_logits;
    recorder_.clear();
    for (const std::int32_t& token : prompt.greedy_ids) {
      const std::vector<float> row = run({&token, 1});
      decode_logits.insert(decode_logits.end(), row.begin(), row.end());
      greedy.push_back(argmax(row));
    }
    greedy.pop_back();
    compare_recorded(prompt.prefix + "decode.", prompt.num_steps(), decode_phase);
    compare_logits(prompt.prefix + "decode_logits", decode_logits, prompt.num_steps(),
                   decode_phase);
    compare_greedy(prompt, greedy, decode_phase);
    observe(false);
  }

  // All prompts in one batch, then decode steps of all of them together.
  void run_batch(const std::vector<GoldenPrompt>& prompts) {
    std::vector<BatchEntry> entries;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      engine_.reset(static_cast<SequenceId>(i));
      entries.push_back({static_cast<SequenceId>(i), prompts[i].input_ids, true});
    }
    const std::span<const float> logits = engine_.forward(entries);
    std::vector<std::vector<std::int32_t>> greedy(prompts.size());
    std::size_t at = 0;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      const std::size_t count = prompts[i].input_ids.size() * static_cast<std::size_t>(vocab_);
      const auto part = logits.subspan(at, count);
      at += count;
      compare_logits(prompts[i].prefix + "logits", {part.begin(), part.end()},
                     prompts[i].num_tokens(), "batch");
      greedy[i].push_back(argmax(last_row(part)));
    }
    std::vector<std::vector<float>> decode_logits(prompts.size());
    for (std::size_t step = 0;; ++step) {
      entries.clear();
      for (std::size_t i = 0; i < prompts.size(); ++i) {
        if (step >= prompts[i].greedy_ids.size()) continue;
        entries.push_back({static_cast<SequenceId>(i), {&prompts[i].greedy_ids[step], 1}, false});
      }
      if (entries.empty()) break;
      std::span<const float> rows = engine_.forward(entries);
      for (const BatchEntry& entry : entries) {
        const auto idx = static_cast<std::size_t>(entry.sequence);
        const auto row = rows.first(static_cast<std::size_t>(vocab_));
        rows = rows.subspan(row.size());
        decode_logits[idx].insert(decode_logits[idx].end(), row.begin(), row.end());
        greedy[idx].push_back(argmax(row));
      }
    }
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      if (prompts[i].greedy_ids.empty()) continue;
      greedy[i].pop_back();
      compare_logits(prompts[i].prefix + "decode_logits", decode_logits[i], prompts[i].num_steps(),
                     "batch");
      compare_greedy(prompts[i], greedy[i], "batch");
    }
  }

 private:
  void observe(bool on) {
    recorder_.clear();
    engine_.set_tensor_observer(on ? &recorder_ : nullptr);
    engine_.set_routing_observer(on ? &recorder_ : nullptr);
  }

  std::vector<float> run(std::span<const std::int32_t> tokens) {
    const BatchEntry entry{0, tokens, true};
    const std::span<const float> logits = engine_.forward({&entry, 1});
    return {logits.begin(), logits.end()};
  }

  [[nodiscard]] std::span<const float> last_row(std::span<const float> logits) const {
    return logits.last(static_cast<std::size_t>(vocab_));
  }

  TensorComparison& begin(const std::string& phase, const std::string& name, std::string_view stage,
                          int layer) {
    TensorComparison& comparison = result_.comparisons.emplace_back();
    comparison.phase = phase;
    comparison.name = name;
    comparison.stage = stage;
    comparison.layer = layer;
    return comparison;
  }

  void compare_positions(const GoldenPrompt& prompt, const std::string& phase) {
    std::vector<std::int32_t> positions(prompt.input_ids.size());
    for (std::size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<std::int32_t>(i);
    const std::string name = prompt.prefix + "position_ids";
    compare_ids(positions, golden_.ids(name, prompt.num_tokens(), 1), 1,
                begin(phase, name, "position_ids", -1));
  }

  // Everything the recorder and the golden file both may have, in forward order.
  void compare_recorded(const std::string& prefix, std::int64_t rows, const std::string& phase) {
    compare_stage(prefix, "embed", -1, rows, phase);
    for (int layer = 0; layer < num_layers_; ++layer) {
      for (const std::string_view stage : kLayerStages) {
        compare_stage(prefix, stage, layer, rows, phase);
      }
    }
    compare_stage(prefix, "final_norm", -1, rows, phase);
  }

  void compare_stage(const std::string& prefix, std::string_view stage, int layer,
                     std::int64_t rows, const std::string& phase) {
    const std::string recorded =
        layer < 0 ? std::string(stage) : fmt::format("layers.{}.{}", layer, stage);
    const std::string name = prefix + recorded;
    if (!golden_.has(name)) return;
    if (const Recorder::Ids* ids = recorder_.ids(recorded)) {
      const auto tail = last_rows(ids->values, rows * ids->cols);
      compare_ids(tail, golden_.ids(name, rows, ids->cols), ids->cols,
                  begin(phase, name, stage, layer));
    } else if (const Recorder::Floats* floats = recorder_.floats(recorded)) {
      const auto tail = last_rows(floats->values, rows * floats->cols);
      compare_floats(tail, golden_.floats(name, rows, floats->cols), floats->cols,
                     Tolerance::kTensor, begin(phase, name, stage, layer));
    }
  }

  // A sequence that ran again from its start (LongRoPE) was recorded again: the last rows count.
  template <typename Element>
  static std::vector<Element> last_rows(const std::vector<Element>& values, std::int64_t count) {
    MOE_CHECK(static_cast<std::int64_t>(values.size()) >= count);
    return {values.end() - count, values.end()};
  }

  void compare_logits(const std::string& name, const std::vector<float>& found, std::int64_t rows,
                      const std::string& phase) {
    if (!golden_.has(name)) return;
    const std::string_view stage = name.ends_with("decode_logits") ? "decode_logits" : "logits";
    compare_floats(found, golden_.floats(name, rows, vocab_), vocab_, Tolerance::kLogits,
                   begin(phase, name, stage, -1));
  }

  void compare_greedy(const GoldenPrompt& prompt, const std::vector<std::int32_t>& found,
                      const std::string& phase) {
    compare_ids(found, prompt.greedy_ids, 1,
                begin(phase, prompt.prefix + "greedy_ids", "greedy_ids", -1));
  }

  Engine& engine_;
  GoldenFile& golden_;
  VerifyResult& result_;
  std::int64_t vocab_;
  int num_layers_;
  Recorder recorder_;
};

EngineOptions engine_options(const VerifyOptions& options,
                             const std::vector<GoldenPrompt>& prompts) {
  EngineOptions engine;
  engine.num_threads = options.num_threads;
  engine.isa = options.isa;
  engine.kernel_table = options.kernel_table;
  engine.activations = options.activations;
  engine.max_batch_tokens = options.max_batch_tokens;
  engine.max_memory_bytes = options.max_memory_bytes;
  engine.max_sequences = static_cast<std::int32_t>(prompts.size());
  for (const GoldenPrompt& prompt : prompts) {
    engine.max_context = std::max(engine.max_context, prompt.num_tokens() + prompt.num_steps());
  }
  return engine;
}

}  // namespace

VerifyResult verify(const model::BoundModel& model, const std::filesystem::path& golden_file,
                    const VerifyOptions& options, Progress& progress, const Interrupt& interrupt) {
  GoldenFile golden(golden_file);
  const std::vector<GoldenPrompt> prompts = read_prompts(golden);
  check_prompts(model.config, prompts, golden_file);
  Engine engine = Engine::load(model, engine_options(options, prompts), progress, interrupt);

  VerifyResult result;
  result.metadata = golden.metadata();
  Verifier verifier(engine, golden, result);
  const auto num_phases = static_cast<std::int64_t>(prompts.size()) + 1;
  progress.begin("comparing", num_phases, "prompts");
  for (std::size_t i = 0; i < prompts.size() && !interrupt.requested(); ++i) {
    const std::string phase = i == 0 ? "prompt" : fmt::format("ragged {}", i - 1);
    verifier.run_alone(prompts[i], phase, i == 0 ? "decode" : phase + " decode");
    progress.update(static_cast<std::int64_t>(i) + 1);
  }
  if (prompts.size() > 1 && !interrupt.requested()) verifier.run_batch(prompts);
  progress.update(num_phases);
  progress.end();

  result.is_partial = interrupt.requested();
  result.not_compared = golden.unread();
  result.passed = !result.is_partial && !result.comparisons.empty();
  for (std::size_t i = 0; i < result.comparisons.size(); ++i) {
    if (result.comparisons[i].passed()) continue;
    result.passed = false;
    if (!result.first_difference) result.first_difference = i;
  }
  return result;
}

}  // namespace moe::engine
