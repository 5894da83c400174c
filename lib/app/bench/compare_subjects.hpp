#pragma once

// What moe-bench compare was asked to do, and whom it compares: servers, and a checkpoint in this
// process.

#include <memory>
#include <string>
#include <vector>

#include "lib/app/bench/in_process.hpp"
#include "lib/app/bench/serve_measure.hpp"

namespace moe::app {

struct CompareArgs {
  std::vector<std::string> endpoints;
  std::string in_process;  // NAME=DIR; empty: servers only
  std::int64_t rounds = 3;
  EngineArgs engine;
  ServeArgs serve;
};

// A server, or the checkpoint in this process.
struct Subject {
  std::string name;
  std::string place;  // URL or checkpoint
  ServeTarget target;
  std::unique_ptr<ServeMeter> meter;
  std::unique_ptr<InProcessSubject> here;
  std::vector<client::LoadResult> rounds;
  bool is_gone = false;
};

// Servers in their order, then the checkpoint, whose headers are read here. Throws Error(kUsage)
// for wrong or equal names and fewer than two subjects, Error(kInput) for a bad checkpoint.
[[nodiscard]] std::vector<Subject> parse_subjects(const CompareArgs& args);

// The options with what they leave to the subjects filled in: the range of random ids, the
// interface, whether answers are kept. `here` may be null.
[[nodiscard]] ServeArgs resolve_serve(const ServeArgs& given, const InProcessSubject* here);

// Throws Error(kUsage) for a load that a batch in this process cannot have: arrival times, pauses,
// an end by time, templates of chats.
void check_in_process(const ServeArgs& serve, const ServePoint& point, const ServeInputs& inputs);

[[nodiscard]] InProcessPlan in_process_plan(const CompareArgs& args, const ServeArgs& serve,
                                            const ServePoint& point);

}  // namespace moe::app
