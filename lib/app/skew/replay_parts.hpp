#pragma once

// The parts of moe-skew replay: which plans, what they come to on every trace, and how that is
// reported.

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "lib/app/report_session.hpp"
#include "lib/app/skew/skew_placement.hpp"
#include "lib/balance/balancedness.hpp"
#include "lib/balance/kernel_model.hpp"
#include "lib/report/report.hpp"

namespace moe::app {

struct ReplayArgs {
  TraceArgs trace;
  ClusterArgs cluster;
  std::vector<std::string> plans;
  bool fits = false;
  std::string policy = "joint";
  std::string from;
  std::int64_t effort = 10'000;
  std::int64_t seed = 1;
  // Steps and time.
  std::string window;
  std::int64_t tokens_per_step = 0;
  std::int64_t num_steps = 500;
  std::string gpu;
  std::string engine = "trtllm";
  std::string quant = "bfloat16";
  std::int64_t hidden_size = 0;
  std::int64_t moe_intermediate_size = 0;
  std::int64_t bytes_per_element = 2;
  // Migration and age.
  std::int64_t expert_bytes = 0;
  double link_bytes_per_s = 0.0;
  std::int64_t age_steps = -1;
  std::string scenarios;
  OutputOptions output;
  AcceptanceOptions acceptance;
};

struct ReplayPlan {
  std::string name;
  balance::Placement placement;
  std::set<std::size_t> fitted_to;  // traces, when the plan was made here
};

// "linear" first, then those of files, then those that --fit makes. Throws Error(kUsage) when there
// is none or when they are for different numbers of GPUs.
[[nodiscard]] std::vector<ReplayPlan> replay_plans(const ReplayArgs& args,
                                                   const std::vector<LoadedTrace>& traces);

struct ReplayTiming {
  const balance::KernelFit* fit = nullptr;  // null: time is counted in copies
  balance::ExpertShape shape;
  bool has_steps = false;
  bool is_recorded = false;
};

// Fits of measured kernels, none without --gpu.
[[nodiscard]] std::vector<balance::KernelFit> replay_kernel_fits(const ReplayArgs& args);
// Refers to one of `fits`. Throws Error(kUsage).
[[nodiscard]] ReplayTiming replay_timing(const ReplayArgs& args,
                                         const std::vector<balance::KernelFit>& fits);

// Share of copies that leave GPU and node when tokens are spread evenly over the GPUs and a copy
// goes to a replica on its own GPU, then its own node, where there is one.
struct LocalShares {
  double cross_gpu = 0.0;
  double cross_node = 0.0;
};
[[nodiscard]] LocalShares local_shares(const balance::Placement& placement,
                                       const balance::LoadMatrix& loads,
                                       const balance::Cluster& cluster);

struct ReplayFigures {
  std::vector<std::vector<balance::BalanceSummary>> balance;  // [plans][traces]
  std::vector<std::vector<double>> mean_step;                 // [plans][traces], 0 without steps
};

// Every plan on every trace: table "replay".
[[nodiscard]] ReplayFigures replay_all(const ReplayArgs& args, const std::vector<ReplayPlan>& plans,
                                       const std::vector<LoadedTrace>& traces,
                                       const balance::Cluster& cluster, const ReplayTiming& timing,
                                       report::Report& report);

// Table "matrix": mean balancedness, plan by trace.
void add_replay_matrix(const std::vector<ReplayPlan>& plans, const std::vector<LoadedTrace>& traces,
                       const ReplayFigures& replay, report::Report& report);
void add_replay_metrics(const std::vector<ReplayPlan>& plans, const ReplayFigures& replay,
                        ReportSession& session);
// Plans that are much worse on what they were not fitted to.
void add_staleness_findings(const std::vector<ReplayPlan>& plans,
                            const std::vector<LoadedTrace>& traces, const ReplayFigures& replay,
                            ReportSession& session);
// From the plan in force (--from) to each other plan: what moves, how long that takes, when it
// pays. Throws Error(kUsage) when there is no such plan.
void add_migration(const ReplayArgs& args, const std::vector<ReplayPlan>& plans,
                   const std::vector<LoadedTrace>& traces, const ReplayFigures& replay,
                   const ReplayTiming& timing, ReportSession& session);
// Bytes that a routed copy sends over links, when the size of a hidden state is given.
void add_replay_traffic(const ReplayArgs& args, const std::vector<ReplayPlan>& plans,
                        const std::vector<LoadedTrace>& traces, const balance::Cluster& cluster,
                        report::Report& report);

}  // namespace moe::app
