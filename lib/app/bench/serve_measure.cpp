#include "lib/app/bench/serve_measure.hpp"

#include <algorithm>
#include <utility>

#include "lib/base/open_files.hpp"
#include "lib/client/knee.hpp"

namespace moe::app {
namespace {

constexpr std::int64_t kMaxAutoWarmup = 16;
constexpr std::int64_t kOpenLoopWarmup = 4;
// A p99 needs 459 samples.
constexpr std::int64_t kStressRequests = 500;
constexpr std::int64_t kSpareFiles = 256;

bool meets(const client::LoadFigures& figures, const client::ServiceLevel& level) {
  return figures.shares.all && *figures.shares.all >= level.share;
}

}  // namespace

ServeMeter::ServeMeter(const ServeArgs& args, const ServeInputs& inputs, const ServeTarget& target,
                       Progress& progress, const Interrupt& interrupt)
    : args_(args),
      inputs_(inputs),
      target_(target),
      progress_(progress),
      interrupt_(interrupt),
      source_(make_source(inputs, args.load, args.request, target.api, target.body)),
      next_warmup_(kFirstWarmup) {}

client::LoadPlan ServeMeter::base_plan() const {
  client::LoadPlan plan;
  plan.think_time_s = args_.load.think_time_s;
  plan.drain_limit_s = args_.load.drain_s;
  plan.until_ci = args_.load.until_ci;
  plan.stops_at_saturation = args_.load.stops_at_saturation || args_.load.finds_knee;
  plan.keeps_texts = args_.keeps_texts;
  plan.num_loops = static_cast<std::int32_t>(args_.load.loops);
  plan.transport.timeout_s = args_.server.timeout_s;
  return plan;
}

client::LoadTools ServeMeter::tools() const {
  client::LoadTools tools;
  tools.source = source_.get();
  tools.count_tokens = inputs_.count_tokens;
  tools.progress = &progress_;
  tools.interrupt = &interrupt_;
  return tools;
}

std::int64_t ServeMeter::num_warmup(const LoadArgs& load, const ServePoint& point) {
  if (load.warmup >= 0) return load.warmup;
  if (point.kind != LoadKind::kClosed) return kOpenLoopWarmup;
  return std::min(static_cast<std::int64_t>(point.load), kMaxAutoWarmup);
}

void ServeMeter::warm_up(const ServePoint& point, ServeOutcome& outcome) {
  const std::int64_t count = num_warmup(args_.load, point);
  const bool is_closed = point.kind == LoadKind::kClosed;
  if (count == 0) return;
  client::LoadPlan plan = base_plan();
  plan.phase = client::Phase::kWarmup;
  plan.until_ci.reset();
  plan.concurrency =
      std::min(count, is_closed ? static_cast<std::int64_t>(point.load) : kOpenLoopWarmup);
  plan.num_conversations = count;
  plan.first_conversation = next_warmup_;
  plan.think_time_s = 0.0;
  plan.num_loops = 1;
  next_warmup_ += count;
  const client::LoadResult result = client::run_load(target_.endpoint, plan, tools());
  outcome.num_warmup += static_cast<std::int64_t>(result.records.size());
}

client::LoadResult ServeMeter::run_round(const ServePoint& point) {
  client::LoadPlan plan = base_plan();
  LoadArgs load = args_.load;
  if (point.kind == LoadKind::kStress) load.requests = std::max(load.requests, kStressRequests);
  plan_point(point, load, inputs_, plan);
  plan.first_conversation = next_conversation_;
  // Idle connections are kept for all that may run together.
  const auto most = static_cast<std::int64_t>(point.load) * (plan.is_open() ? 30 : 1);
  plan.transport.max_connections = std::clamp<std::int64_t>(most, 64, 65536);
  (void)allow_open_files(plan.transport.max_connections * 2 + kSpareFiles);
  client::LoadResult result = client::run_load(target_.endpoint, plan, tools());
  for (const client::RequestRecord& record : result.records) {
    next_conversation_ = std::max(next_conversation_, record.conversation + 1);
  }
  return result;
}

const ServePointOutcome& ServeMeter::measure(const ServePoint& point, ServeOutcome& outcome) {
  warm_up(point, outcome);
  ServePointOutcome one;
  one.point = point;
  std::optional<client::ServerSnapshot> before;
  std::optional<client::MetricsPoller> poller;
  if (!args_.has_no_metrics) {
    poller.emplace(target_.endpoint, args_.metrics_interval_s, clock_, 0.0);
    before = poller->read_now();
    if (before) poller->start();
  }
  one.result = run_round(point);
  if (before) {
    one.snapshots = poller->stop();
    const std::optional<client::ServerSnapshot> after = poller->read_now();
    if (after) one.delta = client::delta_of(*before, *after);
    for (client::ServerSnapshot& snapshot : one.snapshots) {
      snapshot.time_s -= one.result.started_monotonic_s;
    }
  }
  const client::ServiceLevel level = service_level(args_.load);
  one.figures = client::figures_of(one.result, level);
  one.verdict = client::judge_client(one.result, {});
  one.meets_level =
      level.is_set() && meets(one.figures, level) && one.result.end != client::LoadEnd::kSaturated;
  outcome.is_interrupted = one.result.end == client::LoadEnd::kInterrupted;
  outcome.is_server_gone = one.result.end == client::LoadEnd::kServerGone;
  outcome.points.push_back(std::move(one));
  return outcome.points.back();
}

void ServeMeter::search_knee(const ServePoint& first, ServeOutcome& outcome) {
  client::KneeOptions options;
  options.start = first.load;
  options.is_whole = first.kind == LoadKind::kClosed;
  options.max_load = options.is_whole ? 20000.0 : 1e6;
  const client::Knee knee = client::find_knee(options, [&](double load) -> std::optional<bool> {
    const ServePoint point =
        first.kind == LoadKind::kClosed ? closed_point(load) : rate_point(load);
    const ServePointOutcome& measured = measure(point, outcome);
    if (outcome.is_interrupted || outcome.is_server_gone) return std::nullopt;
    // What this client could not send says nothing of the server.
    if (measured.verdict.is_bound) return std::nullopt;
    return measured.meets_level;
  });
  outcome.has_knee = true;
  outcome.knee_load = knee.best;
  outcome.is_knee_bounded = knee.is_bounded;
}

ServeOutcome ServeMeter::measure_all() {
  ServeOutcome outcome;
  const std::vector<ServePoint> points = load_points(args_.load, inputs_);
  if (args_.load.finds_knee) {
    search_knee(points.front(), outcome);
    return outcome;
  }
  for (const ServePoint& point : points) {
    (void)measure(point, outcome);
    if (outcome.is_interrupted || outcome.is_server_gone) break;
  }
  return outcome;
}

}  // namespace moe::app
