// moe-a2a run: what every rank does. Only rank 0 reads files; what it makes of them goes to all.

#include <algorithm>
#include <functional>
#include <map>
#include <memory>

#include <fmt/format.h>

#include "lib/app/a2a/a2a_run.hpp"
#include "lib/base/file_map.hpp"
#include "lib/base/progress.hpp"
#include "lib/comm/figures.hpp"
#include "lib/stats/distribution.hpp"
#include "lib/sysinfo/host.hpp"

namespace moe::app {
namespace {

using comm::Communicator;
using comm::TrafficMatrix;

// Repeats of a dispatch or combine where --iterations does not say.
constexpr std::int64_t kMoeIterations = 20;
// Share of a host's free memory that buffers may take.
constexpr double kMemoryShare = 0.5;

// Rank 0 makes numbers of its inputs; all get them, or the error that it ran into.
template <typename Make>
std::vector<std::int64_t> share(Communicator& communicator, const Make& make) {
  std::string text;
  if (communicator.rank() == 0) {
    try {
      text = "+" + comm::to_text<std::int64_t>(make());
    } catch (const Error& error) {
      text = fmt::format("-{}{}", static_cast<char>('0' + static_cast<int>(error.code())),
                         error.what());
    }
  }
  text = communicator.broadcast_text(text);
  if (text.at(0) == '-') throw Error(static_cast<ErrorCode>(text.at(1) - '0'), text.substr(2));
  return comm::from_text<std::int64_t>(text.substr(1));
}

TrafficMatrix share_matrix(Communicator& communicator, const std::function<TrafficMatrix()>& make) {
  TrafficMatrix matrix;
  matrix.bytes = share(communicator, [&] { return make().bytes; });
  matrix.num_ranks = communicator.num_ranks();
  return matrix;
}

// "host \n device \n nic \n process cpus".
std::string pack(const comm::RankPlace& place) {
  return fmt::format("{}\n{}\n{}\n{}\n{}", place.host, place.device, place.nic, place.process,
                     place.num_cpus);
}

comm::RankPlace unpack(const std::string& text) {
  std::vector<std::string> fields;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    fields.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return {fields.at(0), fields.at(1), fields.at(2), std::stoll(fields.at(3)),
          std::stoll(fields.at(4))};
}

void find_places(Communicator& communicator, const RunArgs& args, RunOutcome& outcome) {
  std::map<std::string, int> nodes;
  for (const std::string& text : communicator.exchange_texts(pack(communicator.place()))) {
    outcome.places.push_back(unpack(text));
    const int next = static_cast<int>(nodes.size());
    outcome.nodes.push_back(nodes.emplace(outcome.places.back().host, next).first->second);
  }
  outcome.moe_nodes = outcome.nodes;
  for (std::size_t r = 0; args.ranks_per_node > 0 && r < outcome.nodes.size(); ++r) {
    outcome.moe_nodes[r] = static_cast<int>(static_cast<std::int64_t>(r) / args.ranks_per_node);
  }
}

// A trace brings its own number of experts and of selections.
comm::TokenRoutes routes_of(const RunArgs& args, comm::MoeShape& shape, int num_ranks,
                            RunOutcome& outcome) {
  if (args.trace.empty()) {
    return comm::zipf_routes(shape, num_ranks, args.pattern == "zipf" ? args.zipf_s : 0.0,
                             static_cast<std::uint64_t>(args.seed));
  }
  const std::int64_t wanted = shape.tokens_per_rank * num_ranks;
  comm::TraceRoutes trace = comm::trace_routes(args.trace, args.trace_layer, wanted);
  if (trace.num_distinct_tokens < wanted) outcome.trace_tokens = trace.num_distinct_tokens;
  shape.num_experts = trace.num_experts;
  shape.top_k = trace.routes.top_k;
  return std::move(trace.routes);
}

// The shape of the traffic without its size: numbers of a file, or selections of a trace.
comm::TrafficShares shares_of(const RunArgs& args, int num_ranks, RunOutcome& outcome) {
  if (args.pattern == "matrix") {
    const FileMap file(args.matrix);
    return comm::parse_traffic(
        {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, args.matrix);
  }
  constexpr std::int64_t kTokens = 4096;
  comm::TraceRoutes trace = comm::trace_routes(args.trace, args.trace_layer, kTokens * num_ranks);
  comm::MoeShape shape;
  shape.tokens_per_rank = kTokens;
  shape.hidden = 16;
  shape.top_k = trace.routes.top_k;
  shape.num_experts = trace.num_experts;
  if (trace.num_distinct_tokens < kTokens * num_ranks) {
    outcome.trace_tokens = trace.num_distinct_tokens;
  }
  const comm::MoeStages stages = comm::plan_moe(shape, trace.routes, outcome.nodes, false);
  comm::TrafficShares shares;
  shares.num_ranks = num_ranks;
  for (const std::int64_t bytes : stages.dispatch.front().bytes) {
    shares.bytes.push_back(static_cast<double>(bytes));
  }
  return shares;
}

class SizePlanner {
 public:
  SizePlanner(const RunArgs& args, RunOutcome& outcome) : args_(args), outcome_(outcome) {}

  TrafficMatrix at(std::int64_t bytes, int num_ranks) {
    if (args_.pattern == "uniform") return comm::uniform_traffic(num_ranks, bytes);
    if (args_.pattern == "zipf") {
      return comm::zipf_traffic(num_ranks, bytes, args_.zipf_s,
                                static_cast<std::uint64_t>(args_.seed));
    }
    if (!shares_) shares_ = shares_of(args_, num_ranks, outcome_);
    return comm::scale_traffic(*shares_, num_ranks, bytes);
  }

 private:
  const RunArgs& args_;
  RunOutcome& outcome_;
  std::optional<comm::TrafficShares> shares_;
};

// Buffers of all ranks of a host together fit into its memory, on every host.
bool fits(Communicator& communicator, const RunOutcome& outcome, const TrafficMatrix& traffic) {
  const auto self = static_cast<std::size_t>(communicator.rank());
  std::int64_t bytes = 0;
  for (std::size_t r = 0; r < outcome.nodes.size(); ++r) {
    if (outcome.nodes[r] != outcome.nodes[self]) continue;
    bytes += traffic.sent_by(static_cast<int>(r)) + traffic.received_by(static_cast<int>(r));
  }
  const std::optional<std::int64_t> free = sysinfo::usable_memory_bytes(sysinfo::read_memory());
  const bool mine = !communicator.moves_data() || !free ||
                    static_cast<double>(bytes) <= kMemoryShare * static_cast<double>(*free);
  const std::vector<std::string> texts = communicator.exchange_texts(mine ? "" : "no");
  return std::all_of(texts.begin(), texts.end(), [](const std::string& t) { return t.empty(); });
}

bool stops(Communicator& communicator, const Interrupt* interrupt) {
  const bool mine = interrupt != nullptr && interrupt->requested();
  const std::vector<std::string> texts = communicator.exchange_texts(mine ? "1" : "");
  return std::any_of(texts.begin(), texts.end(), [](const std::string& t) { return !t.empty(); });
}

void run_sizes(Communicator& communicator, const RunArgs& args, const RunPlan& plan,
               Progress* progress, RunOutcome& outcome) {
  SizePlanner planner(args, outcome);
  std::int64_t previous_bytes = 0;
  std::int64_t num_done = 0;
  if (progress != nullptr) {
    progress->begin("sizes", static_cast<std::int64_t>(plan.sizes.size()), "sizes");
  }
  for (const std::int64_t size : plan.sizes) {
    const TrafficMatrix traffic =
        share_matrix(communicator, [&] { return planner.at(size, communicator.num_ranks()); });
    const std::int64_t bytes = traffic.max_sent();
    if (progress != nullptr) progress->update(num_done++);
    // Rounded down to what every pair can carry, two sizes may be one.
    if (bytes == 0 || bytes == previous_bytes) {
      outcome.sizes_too_small.push_back(size);
      continue;
    }
    previous_bytes = bytes;
    if (!fits(communicator, outcome, traffic)) {
      outcome.sizes_too_large.push_back(size);
      continue;
    }
    SizeOutcome row;
    row.result = comm::measure_exchange(communicator, traffic, plan.measure);
    row.sums = comm::sum_traffic(traffic, outcome.nodes);
    if (communicator.rank() == 0) {
      row.time_s = stats::median(row.result.iteration_s);
      const std::int64_t moved =
          std::max(row.sums.max_rank_send_bytes, row.sums.max_rank_recv_bytes);
      row.busbw_bytes_per_s = static_cast<double>(moved) / std::max(row.time_s, 1e-12);
      outcome.is_partial = outcome.is_partial || row.result.is_partial;
      outcome.sizes.push_back(std::move(row));
    }
    if (stops(communicator, plan.measure.interrupt)) {
      outcome.is_partial = true;
      break;
    }
  }
  if (progress != nullptr) progress->end();
}

std::vector<TrafficMatrix> split(const std::vector<std::int64_t>& all, std::size_t begin,
                                 std::size_t count, int num_ranks) {
  const std::size_t cells =
      static_cast<std::size_t>(num_ranks) * static_cast<std::size_t>(num_ranks);
  std::vector<TrafficMatrix> matrices(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(begin + i * cells);
    matrices[i].num_ranks = num_ranks;
    matrices[i].bytes.assign(first, first + static_cast<std::ptrdiff_t>(cells));
  }
  return matrices;
}

// Rank 0's plan at every rank: three counts, then all matrices.
comm::MoeStages share_stages(Communicator& communicator, const RunArgs& args,
                             const comm::MoeShape& shape, bool is_deduplicated,
                             RunOutcome& outcome) {
  const std::vector<std::int64_t> all = share(communicator, [&] {
    comm::MoeShape own = shape;
    const comm::TokenRoutes routes = routes_of(args, own, communicator.num_ranks(), outcome);
    const comm::MoeStages stages = comm::plan_moe(own, routes, outcome.moe_nodes, is_deduplicated);
    std::vector<std::int64_t> numbers{stages.num_selections, stages.logical_dispatch_bytes,
                                      stages.logical_combine_bytes,
                                      static_cast<std::int64_t>(stages.dispatch.size())};
    for (const auto* list : {&stages.dispatch, &stages.combine}) {
      for (const TrafficMatrix& matrix : *list) {
        numbers.insert(numbers.end(), matrix.bytes.begin(), matrix.bytes.end());
      }
    }
    return numbers;
  });
  comm::MoeStages stages;
  stages.num_selections = all.at(0);
  stages.logical_dispatch_bytes = all.at(1);
  stages.logical_combine_bytes = all.at(2);
  const auto count = static_cast<std::size_t>(all.at(3));
  const int num_ranks = communicator.num_ranks();
  const std::size_t cells =
      static_cast<std::size_t>(num_ranks) * static_cast<std::size_t>(num_ranks);
  stages.dispatch = split(all, 4, count, num_ranks);
  stages.combine = split(all, 4 + count * cells, count, num_ranks);
  return stages;
}

MoeOutcome run_phase(Communicator& communicator, const std::vector<TrafficMatrix>& stages,
                     const RunPlan& plan, const RunOutcome& outcome) {
  comm::MeasureOptions options = plan.measure;
  if (options.num_iterations == 0) options.num_iterations = kMoeIterations;
  MoeOutcome phase;
  phase.sums = comm::sum_stages(stages, outcome.moe_nodes);
  for (const TrafficMatrix& stage : stages) {
    const comm::ExchangeResult result = comm::measure_exchange(communicator, stage, options);
    if (phase.iteration_s.empty()) phase.iteration_s.resize(result.iteration_s.size(), 0.0);
    const std::size_t count = std::min(phase.iteration_s.size(), result.iteration_s.size());
    phase.iteration_s.resize(count);
    for (std::size_t i = 0; i < count; ++i) phase.iteration_s[i] += result.iteration_s[i];
    phase.wrong.insert(phase.wrong.end(), result.wrong.begin(), result.wrong.end());
  }
  return phase;
}

void run_moe(Communicator& communicator, const RunArgs& args, const RunPlan& plan,
             RunOutcome& outcome) {
  comm::MoeShape shape;
  shape.tokens_per_rank = args.tokens;
  shape.hidden = args.hidden;
  shape.top_k = args.top_k;
  shape.num_experts = args.experts;
  shape.dispatch_element_bytes = plan.dispatch_element_bytes;
  shape.combine_element_bytes = plan.combine_element_bytes;
  std::vector<bool> schedules;
  if (args.moe_schedule != "dedup") schedules.push_back(false);
  if (args.moe_schedule != "flat") schedules.push_back(true);
  std::optional<comm::MoeStages> first;
  for (const bool is_deduplicated : schedules) {
    const comm::MoeStages stages =
        share_stages(communicator, args, shape, is_deduplicated, outcome);
    for (const bool is_combine : {false, true}) {
      MoeOutcome phase =
          run_phase(communicator, is_combine ? stages.combine : stages.dispatch, plan, outcome);
      phase.phase = is_combine ? "combine" : "dispatch";
      phase.schedule = is_deduplicated ? "node_deduplicated" : "flat";
      phase.logical_bytes =
          is_combine ? stages.logical_combine_bytes : stages.logical_dispatch_bytes;
      if (communicator.rank() == 0) outcome.moe.push_back(std::move(phase));
    }
    if (!first) first = stages;
  }
  comm::GatherScatterResult alternative = comm::measure_gather_scatter(
      communicator, shape.tokens_per_rank * shape.dispatch_copy_bytes(),
      shape.tokens_per_rank * shape.combine_copy_bytes(), plan.measure);
  if (communicator.rank() == 0) outcome.gather_scatter = std::move(alternative);
  if (!(args.compute_s > 0.0)) return;
  comm::PipelineOptions pipeline;
  pipeline.chunk_counts = args.chunks;
  pipeline.compute_s = args.compute_s;
  pipeline.interrupt = plan.measure.interrupt;
  std::vector<comm::PipelineResult> overlap =
      comm::measure_pipeline(communicator, *first, pipeline);
  if (communicator.rank() == 0) outcome.overlap = std::move(overlap);
}

}  // namespace

void run_rank(Communicator& inner, const RunArgs& args, const RunPlan& plan, const RankZero* zero,
              RunOutcome& outcome) {
  const Interrupt* interrupt = plan.measure.interrupt;
  (void)share(inner, [&] {
    zero->prepare();
    return std::vector<std::int64_t>{};
  });
  const std::unique_ptr<Communicator> faulty =
      plan.fault.kind == comm::FaultKind::kNone ? nullptr : comm::make_faulty(inner, plan.fault);
  Communicator& communicator = faulty ? *faulty : inner;
  outcome.moves_data = communicator.moves_data();
  find_places(communicator, args, outcome);
  Progress* progress = zero == nullptr ? nullptr : zero->progress;
  run_sizes(communicator, args, plan, progress, outcome);
  const auto goes_on = [&] {
    if (stops(communicator, interrupt)) outcome.is_partial = true;
    return !outcome.is_partial && communicator.moves_data();
  };
  if (!args.has_no_pairs && goes_on()) {
    comm::PairOptions options;
    options.bytes = args.pair_bytes;
    options.interrupt = interrupt;
    options.progress = progress;
    std::vector<comm::PairFigure> pairs = comm::measure_pairs(communicator, options, outcome.nodes);
    if (communicator.rank() == 0) outcome.pairs = std::move(pairs);
    const bool is_complete = goes_on() && communicator.num_ranks() > 2;
    if (is_complete) {
      const double share = args.min_pair_share > 0.0 ? args.min_pair_share : kPairShare;
      comm::SecondPass pass =
          comm::run_second_pass(communicator, options, outcome.pairs, outcome.nodes, share);
      if (communicator.rank() == 0) outcome.second_pass = std::move(pass);
    }
  }
  if (args.tokens > 0 && goes_on()) run_moe(communicator, args, plan, outcome);
}

}  // namespace moe::app
