#include "lib/app/bench/in_process.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "kernels/format_names.hpp"
#include "lib/app/bench/checkpoint.hpp"
#include "lib/app/bench/subject.hpp"
#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/json/read.hpp"

namespace moe::app {
namespace {

// The prompt as a server would read it.
std::vector<std::int32_t> ids_in_body(const std::string& body,
                                      const std::optional<model::Tokenizer>& tokenizer,
                                      const std::filesystem::path& directory) {
  const json::Json request = json::parse(body, "request");
  const json::Json& prompt = request.at("prompt");
  if (prompt.is_array()) return prompt.get<std::vector<std::int32_t>>();
  if (!tokenizer) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: no tokenizer.json, which a data set of texts needs; add the file "
                            "or leave --dataset out",
                            directory.string()));
  }
  // Servers put the special tokens of a sequence around a text, too.
  return tokenizer->encode(prompt.get<std::string>(), true);
}

}  // namespace

InProcessSubject::InProcessSubject(const std::string& checkpoint, const std::string& scenarios,
                                   const EngineArgs& args)
    : directory_(find_checkpoint(checkpoint, scenarios)),
      model_(model::bind_checkpoint(directory_)),
      tokenizer_(load_tokenizer(directory_, model_)),
      setup_(resolve_engine(args, model_)) {}

std::int32_t InProcessSubject::end_id() const {
  return tokenizer_ ? tokenizer_->max_id() + 1 : model_.config.vocab_size;
}

json::Json InProcessSubject::describe() const {
  return describe_checkpoint(directory_, model_);
}

std::string InProcessSubject::isa() const {
  return kernels::isa_name(setup_.options.isa);
}

json::Json InProcessSubject::settings() const {
  json::Json settings;
  settings["batch"] = plan_.batch;
  settings["threads"] = setup_.options.num_threads;
  settings["isa"] = isa();
  settings["isa_reason"] = setup_.isa_reason;
  settings["activations"] = activation_format_name(setup_.options.activations);
  settings["activations_reason"] = setup_.activations_reason;
  settings["chunk_tokens"] = setup_.options.max_batch_tokens;
  settings["context"] = setup_.options.max_context;
  settings["scheduling"] =
      "static batches of as many requests as the servers have clients: all start together, the "
      "next batch when the last of them has ended";
  return settings;
}

InProcessSubject::Prompt InProcessSubject::read_prompt(const client::RequestSource& source,
                                                       std::int64_t conversation) const {
  const std::optional<client::RequestSpec> spec = source.make(conversation, {});
  MOE_CHECK(spec.has_value());
  Prompt prompt;
  prompt.conversation = conversation;
  prompt.ids = ids_in_body(spec->body, tokenizer_, directory_);
  prompt.output_tokens = spec->output_tokens;
  const auto length = static_cast<std::int64_t>(prompt.ids.size());
  if (length < 1 || prompt.output_tokens < 1) {
    throw Error(ErrorCode::kUsage,
                fmt::format("request {}: expected a prompt and a number of output tokens, found "
                            "{} and {}",
                            conversation, length, prompt.output_tokens));
  }
  const std::int64_t limit = model_.config.max_position_embeddings;
  if (length + prompt.output_tokens - 1 > limit) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{} prompt tokens and {} output tokens exceed the context of {} of {}; "
                            "use fewer --prompt-tokens or --output-tokens",
                            length, prompt.output_tokens, limit, directory_.string()));
  }
  return prompt;
}

void InProcessSubject::load(const client::RequestSource& source, const InProcessPlan& plan,
                            Progress& progress, const Interrupt& interrupt) {
  plan_ = plan;
  for (std::int64_t i = 0; i < plan.num_warmup; ++i) {
    warmup_.push_back(read_prompt(source, plan.first_warmup + i));
  }
  for (std::int64_t i = 0; i < plan.num_requests * plan.num_rounds; ++i) {
    prompts_.push_back(read_prompt(source, i));
  }
  std::int64_t context = 1;
  for (const std::vector<Prompt>* list : {&warmup_, &prompts_}) {
    for (const Prompt& prompt : *list) {
      const auto length = static_cast<std::int64_t>(prompt.ids.size());
      context = std::max(context, length + prompt.output_tokens - 1);
    }
  }
  setup_.options.max_sequences = static_cast<std::int32_t>(plan.batch);
  setup_.options.max_context = context;
  check_fits(model_, setup_.options);
  engine_ = engine::Engine::load(model_, setup_.options, progress, interrupt);
}

engine::RunBatchResult InProcessSubject::run(std::span<const Prompt> prompts,
                                             const Interrupt& interrupt) {
  std::vector<engine::BatchRequest> requests;
  for (const Prompt& prompt : prompts) requests.push_back({prompt.ids, prompt.output_tokens});
  engine::RunBatchOptions options;
  options.ignore_eos = plan_.ignores_eos;
  options.sampling.temperature = plan_.temperature;
  options.sampling.seed = plan_.seed;
  return engine::run_batch(*engine_, requests, options, clock_, interrupt);
}

void InProcessSubject::warm_up(const Interrupt& interrupt) {
  const std::span<const Prompt> all = warmup_;
  const auto batch = static_cast<std::size_t>(plan_.batch);
  for (std::size_t begin = 0; begin < all.size() && !interrupt.requested(); begin += batch) {
    (void)run(all.subspan(begin, std::min(batch, all.size() - begin)), interrupt);
  }
}

client::RequestRecord InProcessSubject::record_of(const Prompt& prompt,
                                                  const engine::RequestResult& result,
                                                  double begin_s) const {
  client::RequestRecord record;
  record.conversation = prompt.conversation;
  record.request_id = fmt::format("in-process-{}", prompt.conversation);
  record.num_sends = 1;
  record.intended_s = begin_s;
  record.sent_s = begin_s;
  record.requested_prompt_tokens = static_cast<std::int64_t>(prompt.ids.size());
  record.requested_output_tokens = prompt.output_tokens;
  record.prompt_tokens = record.requested_prompt_tokens;
  record.token_source = client::TokenSource::kTokenIds;
  record.has_exact_arrivals = true;
  record.token_ids = result.token_ids;
  const auto count = static_cast<std::int64_t>(result.token_ids.size());
  record.id_output_tokens = count;
  record.output_tokens = count;
  record.num_output_events = static_cast<std::int32_t>(count);
  std::optional<model::TokenStream> stream;
  if (tokenizer_) stream.emplace(*tokenizer_, true);
  for (std::size_t i = 0; i < result.token_ids.size(); ++i) {
    const double time_s = begin_s + result.token_times_s[i];
    record.arrivals.push_back({static_cast<float>(result.token_times_s[i]), 1.0F});
    if (!record.first_token_s) record.first_token_s = time_s;
    record.last_token_s = time_s;
    if (stream) record.text += stream->push(result.token_ids[i]);
    if (!record.text.empty() && !record.first_visible_s) record.first_visible_s = time_s;
  }
  if (stream) record.text += stream->flush();
  record.end_s = record.last_token_s.value_or(begin_s);
  if (result.stop == engine::StopReason::kInterrupted) {
    record.failure = client::Failure::kCancelled;
    record.error = "interrupted";
  } else {
    record.finish_reason = result.stop == engine::StopReason::kEos ? "stop" : "length";
  }
  return record;
}

client::LoadResult InProcessSubject::run_round(Progress& progress, const Interrupt& interrupt) {
  const auto batch = static_cast<std::size_t>(plan_.batch);
  const std::size_t end =
      std::min(prompts_.size(), next_prompt_ + static_cast<std::size_t>(plan_.num_requests));
  client::LoadResult round;
  round.started_monotonic_s = clock_.now_s();
  round.num_planned = static_cast<std::int64_t>(end - next_prompt_);
  progress.begin("in process", round.num_planned, "requests");
  while (next_prompt_ < end && !interrupt.requested()) {
    const std::size_t count = std::min(batch, end - next_prompt_);
    const std::span<const Prompt> prompts = std::span(prompts_).subspan(next_prompt_, count);
    const engine::RunBatchResult result = run(prompts, interrupt);
    const double begin_s = result.start_s - round.started_monotonic_s;
    for (std::size_t i = 0; i < count; ++i) {
      round.records.push_back(record_of(prompts[i], result.requests[i], begin_s));
      round.records.back().index = static_cast<std::int64_t>(round.records.size()) - 1;
    }
    round.measured_end_s = begin_s + result.total_s;
    round.peak_in_flight = std::max(round.peak_in_flight, static_cast<std::int64_t>(count));
    next_prompt_ += count;
    progress.update(static_cast<std::int64_t>(round.records.size()));
  }
  progress.end();
  if (interrupt.requested()) {
    round.end = client::LoadEnd::kInterrupted;
    round.end_detail = "interrupted";
  }
  return round;
}

}  // namespace moe::app
