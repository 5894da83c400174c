#pragma once

// A checkpoint run in this process as one subject of moe-bench compare: the requests that servers
// get, as they are sent, and records of the same kind, so that one set of definitions serves both.
// What differs: requests run as static batches, without HTTP, queue or scheduler.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "lib/app/bench/engine_setup.hpp"
#include "lib/base/clock.hpp"
#include "lib/base/interrupt.hpp"
#include "lib/base/progress.hpp"
#include "lib/client/load_result.hpp"
#include "lib/client/request_source.hpp"
#include "lib/engine/run_batch.hpp"
#include "lib/json/read.hpp"
#include "lib/model/bound_model.hpp"
#include "lib/model/tokenizer.hpp"

namespace moe::app {

// What of a closed loop it plays.
struct InProcessPlan {
  std::int64_t batch = 1;         // clients of the closed loop
  std::int64_t num_requests = 1;  // of a round
  std::int64_t num_rounds = 1;    // round r has conversations from r * num_requests on
  std::int64_t num_warmup = 0;    // requests
  std::int64_t first_warmup = 0;  // their conversations
  bool ignores_eos = true;
  double temperature = 0.0;
  std::uint64_t seed = 0;
};

class InProcessSubject {
 public:
  // Reads headers and tokenizer, no weights. Throws Error(kInput), Error(kUsage).
  InProcessSubject(const std::string& checkpoint, const std::string& scenarios,
                   const EngineArgs& args);

  // Ids of prompts are below this.
  [[nodiscard]] std::int32_t end_id() const;
  [[nodiscard]] json::Json describe() const;
  // Threads, level, numeric mode and batch, once loaded.
  [[nodiscard]] json::Json settings() const;
  [[nodiscard]] std::string isa() const;

  // Reads the plan's prompts out of the bodies of the source's requests, and loads the weights for
  // the longest of them. Throws Error(kUsage) when one does not fit the model's context.
  void load(const client::RequestSource& source, const InProcessPlan& plan, Progress& progress,
            const Interrupt& interrupt);

  void warm_up(const Interrupt& interrupt);
  // The next round. Times of its records count from its start; a request is sent when its batch
  // starts, and each of its tokens arrives when it is known.
  [[nodiscard]] client::LoadResult run_round(Progress& progress, const Interrupt& interrupt);

 private:
  struct Prompt {
    std::int64_t conversation = 0;
    std::vector<std::int32_t> ids;
    std::int64_t output_tokens = 0;
  };

  [[nodiscard]] Prompt read_prompt(const client::RequestSource& source,
                                   std::int64_t conversation) const;
  [[nodiscard]] engine::RunBatchResult run(std::span<const Prompt> prompts,
                                           const Interrupt& interrupt);
  [[nodiscard]] client::RequestRecord record_of(const Prompt& prompt,
                                                const engine::RequestResult& result,
                                                double begin_s) const;

  std::filesystem::path directory_;
  model::BoundModel model_;
  std::optional<model::Tokenizer> tokenizer_;
  EngineSetup setup_;
  InProcessPlan plan_;
  std::vector<Prompt> warmup_;
  std::vector<Prompt> prompts_;  // of all rounds
  std::size_t next_prompt_ = 0;
  std::optional<engine::Engine> engine_;
  SteadyClock clock_;
};

}  // namespace moe::app
