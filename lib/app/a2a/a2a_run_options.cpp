// moe-a2a run: options and what they mean.

#include <algorithm>

#include <fmt/format.h>

#include "lib/app/a2a/a2a_run.hpp"
#include "lib/topology/volumes.hpp"

namespace moe::app {
namespace {

constexpr std::size_t kMaxSizes = 200;

double element_bytes(const std::string& dtype, const std::string& option) {
  const std::optional<double> bytes = topology::element_bytes(dtype);
  if (!bytes) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{}: expected bfloat16, fp8 or nvfp4, found \"{}\"", option, dtype));
  }
  return *bytes;
}

void require_file(const std::string& file, const std::string& option, bool is_needed) {
  if (is_needed && file.empty()) {
    throw Error(ErrorCode::kUsage, fmt::format("{}: this pattern needs a file", option));
  }
}

void add_measure_options(Options& options, RunArgs& args) {
  options.group("Ranks");
  options.choice(
      "--backend", {"auto", "threads", "mpi", "nccl", "null"}, args.backend,
      "threads: in this process; mpi: under mpirun; null: moves nothing and measures the "
      "tool itself; auto: mpi under a launcher, else threads");
  options.integer("--ranks", args.ranks, IntRange{0, 1024},
                  "Ranks of threads and null; 0: one for each CPU", "0");
  options.duration("--time-limit", args.time_limit_s,
                   "A collective that takes longer hangs: the report names ranks and pairs");
  options.flag("--registered", args.registers_buffers,
               "nccl: buffers of ncclMemAlloc, registered as symmetric windows (NCCL 2.27)");
  options.flag("--library-all-to-all", args.uses_own_all_to_all,
               "nccl: ncclAlltoAll for uniform sizes instead of grouped send and receive (2.28)");
  options.group("All-to-All");
  options.text("--sizes", "FROM..TO|N,N", args.sizes,
               "Bytes that one rank sends in all, its own part included: doubled from FROM to TO, "
               "or a list");
  options.choice("--pattern", {"uniform", "zipf", "matrix", "trace"}, args.pattern,
                 "Who sends how much to whom");
  options.real("--zipf-s", args.zipf_s, RealRange{0.0, 10.0},
               "Exponent of the pattern zipf; 0 is uniform");
  options.text("--matrix", "FILE", args.matrix,
               "Square matrix of bytes, one line for each sender, for the pattern matrix");
  options.text("--trace", "FILE", args.trace,
               "Routing trace in any format of moe-skew, for the pattern trace and for MoE");
  options.integer("--trace-layer", args.trace_layer, IntRange{0, 100000},
                  "Layer of the trace, counted from 0");
  options.integer("--iterations", args.iterations, IntRange{0, 1000000},
                  "Timed iterations of a size; 0: as many as fit into --size-time, 10 to 500", "0");
  options.integer("--warm-up", args.warm_up, IntRange{1, 1000000},
                  "Iterations before, which touch every pair");
  options.duration("--size-time", args.size_time_s, "Time for the iterations of one size");
  options.choice(
      "--check", {"size", "every", "off"}, args.check,
      "Every byte is checked: once a size with fresh data, in every iteration, or never");
  options.integer("--seed", args.seed, IntRange{0, 1LL << 53}, "Of data and random patterns");
  options.group("Pairs");
  options.flag("--no-pairs", args.has_no_pairs, "Leave out latency and bandwidth pair by pair");
  options.bytes("--pair-size", args.pair_bytes, "Bytes of the bandwidth of a pair");
  options.real(
      "--min-pair-share", args.min_pair_share, RealRange{0.0, 1.0},
      "Exit with 1 when a pair is slower than this share of what others reach; 0 is off, 0.7 is "
      "usual");
}

void add_moe_options(Options& options, RunArgs& args) {
  options.group("MoE");
  options.integer("--tokens", args.tokens, IntRange{0, 1 << 20},
                  "Tokens of a rank: measures dispatch and combine; 0 is off");
  options.integer("--hidden", args.hidden, IntRange{1, 1 << 20}, "Elements of a token");
  options.integer("--top-k", args.top_k, IntRange{1, 1024}, "Experts of a token");
  options.integer("--experts", args.experts, IntRange{1, 65536},
                  "Experts, in equal blocks on the ranks");
  options.text("--dispatch-dtype", "NAME", args.dispatch_dtype, "bfloat16, fp8 or nvfp4");
  options.text("--combine-dtype", "NAME", args.combine_dtype, "bfloat16, fp8 or nvfp4");
  options.choice(
      "--moe-schedule", {"flat", "dedup", "both"}, args.moe_schedule,
      "One copy for each selection; one for each other node of a token, handed on there");
  options.integer("--ranks-per-node", args.ranks_per_node, IntRange{0, 1024},
                  "Ranks that count as one node for MoE; 0: those of a host");
  options.duration("--compute", args.compute_s,
                   "Work of the experts of a rank: measures chunks that overlap with it; 0 is off");
  options.integers("--chunks", args.chunks, IntRange{1, 1024}, "Numbers of chunks to try");
  options.group("Trying the alarms");
  options.text("--inject", "FAULT", args.inject,
               "A fault on purpose: corrupt:RANK, hang:RANK, kill:RANK (@N: after N exchanges), "
               "slow:RANK:DURATION");
}

}  // namespace

void add_run_options(Options& options, RunArgs& args) {
  add_measure_options(options, args);
  add_moe_options(options, args);
  add_gate_options(options, args.gate);
  add_cluster_options(options, args.cluster);
  add_acceptance_options(options, args.acceptance);
  add_output_options(options, args.output);
}

std::vector<std::int64_t> parse_size_range(const std::string& text, const std::string& option) {
  const std::size_t dots = text.find("..");
  std::vector<std::int64_t> sizes;
  if (dots == std::string::npos) {
    for (const double size : parse_sizes(text, option)) {
      sizes.push_back(static_cast<std::int64_t>(size));
    }
    return sizes;
  }
  const auto first = static_cast<std::int64_t>(parse_sizes(text.substr(0, dots), option).at(0));
  const auto last = static_cast<std::int64_t>(parse_sizes(text.substr(dots + 2), option).at(0));
  if (first > last) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{}: expected FROM..TO with FROM <= TO, found \"{}\"", option, text));
  }
  for (std::int64_t size = first; size <= last; size *= 2) {
    sizes.push_back(size);
    if (size > last / 2) break;
  }
  return sizes;
}

RunPlan plan_run(const RunArgs& args) {
  RunPlan plan;
  plan.sizes = parse_size_range(args.sizes, "--sizes");
  if (plan.sizes.size() > kMaxSizes) {
    throw Error(ErrorCode::kUsage, fmt::format("--sizes: expected at most {} sizes", kMaxSizes));
  }
  std::sort(plan.sizes.begin(), plan.sizes.end());
  require_file(args.matrix, "--matrix", args.pattern == "matrix");
  require_file(args.trace, "--trace", args.pattern == "trace");
  if (!(args.time_limit_s > 0.0)) {
    throw Error(ErrorCode::kUsage, "--time-limit: expected more than 0");
  }
  if (args.pair_bytes <= 0) throw Error(ErrorCode::kUsage, "--pair-size: expected more than 0");
  if (args.top_k > args.experts) {
    throw Error(ErrorCode::kUsage,
                fmt::format("--top-k: {} of {} experts", args.top_k, args.experts));
  }
  if (args.compute_s > 0.0 && args.tokens == 0) {
    throw Error(ErrorCode::kUsage, "--compute: needs --tokens, whose experts it stands for");
  }
  plan.dispatch_element_bytes = element_bytes(args.dispatch_dtype, "--dispatch-dtype");
  plan.combine_element_bytes = element_bytes(args.combine_dtype, "--combine-dtype");
  plan.fault = comm::parse_fault(args.inject, "--inject");
  // A rank that hangs comes back, and then finds that the others have given up.
  if (plan.fault.kind == comm::FaultKind::kHang) plan.fault.delay_s = args.time_limit_s * 1.5 + 0.5;
  plan.measure.num_warm_up = args.warm_up;
  plan.measure.num_iterations = args.iterations;
  plan.measure.time_budget_s = args.size_time_s;
  plan.measure.seed = static_cast<std::uint64_t>(args.seed);
  plan.measure.check = args.check == "every" ? comm::Check::kEvery
                       : args.check == "off" ? comm::Check::kOff
                                             : comm::Check::kSize;
  return plan;
}

}  // namespace moe::app
