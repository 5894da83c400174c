#include "lib/app/bench/compare_subjects.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/base/text.hpp"

namespace moe::app {
namespace {

bool is_name(const std::string& name) {
  return !name.empty() && name.front() >= 'a' && name.front() <= 'z' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
         });
}

Subject parse_subject(const std::string& text, const char* form, std::set<std::string>& names) {
  const std::size_t equals = text.find('=');
  Subject subject;
  subject.name = text.substr(0, equals);
  if (equals == std::string::npos || !is_name(subject.name) || equals + 1 == text.size() ||
      !names.insert(subject.name).second) {
    throw Error(ErrorCode::kUsage,
                fmt::format("\"{}\": expected {} with names of a-z, 0-9 and _, each once",
                            printable(text), form));
  }
  subject.place = text.substr(equals + 1);
  return subject;
}

}  // namespace

std::vector<Subject> parse_subjects(const CompareArgs& args) {
  std::vector<Subject> subjects;
  std::set<std::string> names;
  for (const std::string& text : args.endpoints) {
    subjects.push_back(parse_subject(text, "NAME=URL", names));
  }
  if (!args.in_process.empty()) {
    subjects.push_back(parse_subject(args.in_process, "--in-process NAME=DIR", names));
  }
  if (subjects.size() < 2) {
    throw Error(ErrorCode::kUsage,
                "give at least two servers, NAME=URL, or one and --in-process NAME=DIR");
  }
  if (!args.in_process.empty()) {
    subjects.back().here = std::make_unique<InProcessSubject>(
        subjects.back().place, args.serve.request.scenarios, args.engine);
  }
  return subjects;
}

void check_in_process(const ServeArgs& serve, const ServePoint& point, const ServeInputs& inputs) {
  const auto fail = [](const char* what) {
    throw Error(ErrorCode::kUsage, std::string("--in-process runs batches of requests: ") + what);
  };
  if (point.kind != LoadKind::kClosed) fail("give --concurrency, no rate and no trace");
  if (serve.load.duration_s > 0.0) fail("give --requests, not --duration");
  if (serve.load.until_ci) fail("give --requests, not --until-ci");
  if (serve.load.think_time_s > 0.0) fail("leave --think-time out");
  if (inputs.prefers_chat)
    fail("a data set must have single prompts, --turns 1 and no system text");
  if (serve.server.api == "chat") fail("--api chat needs a server's template");
}

InProcessPlan in_process_plan(const CompareArgs& args, const ServeArgs& serve,
                              const ServePoint& point) {
  InProcessPlan plan;
  plan.batch = static_cast<std::int64_t>(point.load);
  plan.num_requests = serve.load.requests;
  plan.num_rounds = args.rounds;
  plan.num_warmup = ServeMeter::num_warmup(serve.load, point);
  plan.first_warmup = ServeMeter::kFirstWarmup;
  plan.ignores_eos = !serve.request.keeps_eos;
  plan.temperature = serve.request.temperature;
  plan.seed = static_cast<std::uint64_t>(serve.load.seed);
  return plan;
}

ServeArgs resolve_serve(const ServeArgs& given, const InProcessSubject* here) {
  ServeArgs serve = given;
  serve.keeps_texts = given.request.temperature <= 0.0;
  if (here == nullptr) return serve;
  if (serve.request.vocab_size == 0 && serve.request.checkpoint.empty()) {
    serve.request.vocab_size = here->end_id();
  }
  if (serve.server.api == "auto") serve.server.api = "completions";
  return serve;
}

}  // namespace moe::app
