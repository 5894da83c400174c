#pragma once

// Time of one decode step and of one prefill of a deployment: kernels, collectives and what the
// engine adds, from fits to measurements (lib/planner/kernel_time.hpp, collective_time.hpp,
// step_constants.hpp), with a band from perfect overlap to none.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/model/architecture.hpp"
#include "lib/planner/collective_time.hpp"
#include "lib/planner/expert_hits.hpp"
#include "lib/planner/hardware.hpp"
#include "lib/planner/kernel_time.hpp"
#include "lib/planner/kv.hpp"
#include "lib/planner/layout.hpp"
#include "lib/planner/overhead.hpp"
#include "lib/planner/step_constants.hpp"

namespace moe::planner {

// scenarios/measured, read.
struct MeasuredTimes {
  KernelTable kernels;
  CollectiveTable collectives;
  StepConstants constants;
};

// Where a step's time goes.
enum class StepPart : std::uint8_t {
  kDense,      // projections, shared and dense parts, head
  kExperts,    // routed experts
  kAttention,  // reading the cache, scores
  kState,      // recurrent states
  kAllReduce,  // tensor parallelism
  kAllToAll,   // dispatch and combine
  kPipeline,   // hops between stages
  kOverhead,   // launches, scheduling, sampling
};
inline constexpr std::size_t kNumStepParts = 8;
[[nodiscard]] std::string_view step_part_name(StepPart part);

enum class Resource : std::uint8_t { kMemory, kCompute, kNetwork, kOverhead };
inline constexpr std::size_t kNumResources = 4;
[[nodiscard]] std::string_view resource_name(Resource resource);

struct StepTime {
  // What the model says: engines overlap little, so it is near the sum.
  double value_s = 0.0;
  // Band: the largest resource alone, and the sum of all, both with the kernels' own efficiencies;
  // `no_overlap_s` >= value_s.
  double full_overlap_s = 0.0;
  double no_overlap_s = 0.0;
  std::array<double, kNumStepParts> parts{};      // of value_s
  std::array<double, kNumResources> resources{};  // of value_s
  [[nodiscard]] double part(StepPart part) const { return parts[static_cast<std::size_t>(part)]; }
  [[nodiscard]] double resource(Resource r) const { return resources[static_cast<std::size_t>(r)]; }
  [[nodiscard]] Resource limiting() const;
};

struct StepSetup {
  Engine engine = Engine::kVllm;
  KvOptions kv;  // the cache's dtype and manager
  ScaleOut network;
  RoutingSkew skew;
  // Speculative decoding: tokens drafted per step and tokens gained per step (1: none).
  double draft_tokens = 0.0;
  double accepted_per_step = 1.0;
  // Months by which the engine is older than the constants' reference.
  double engine_age_months = 0.0;
  // Overlap of communication with computation that the engine is known to do (two-batch overlap):
  // share of the all-to-all that is hidden, 0 to 1.
  double hidden_all_to_all = 0.0;
  // Measured over predicted, from reports of this very deployment (--calibration).
  double decode_calibration = 1.0;
  double prefill_calibration = 1.0;
};

// Numbers of a deployment that do not depend on the batch. Made once; decode() and prefill() are
// then a few dozen operations.
struct MoeShape {
  double num_layers = 0.0;
  double num_experts = 0.0;  // of a layer
  double top_k = 0.0;
  double local_experts = 0.0;  // on the fullest rank
  double expert_bytes = 0.0;   // of one expert's slice on the rank
  double token_flops = 0.0;    // of one selection through the slice
};
struct AttentionShape {
  double num_layers = 0.0;
  double max_context = 0.0;  // window, chunk or picked tokens; 0: all
  double token_bytes = 0.0;  // cache of one token in one layer
  double index_bytes = 0.0;  // read for every token to pick some
  double index_flops = 0.0;
  double decode_flops = 0.0;   // per cached token and query
  double prefill_flops = 0.0;  // per pair of tokens
  bool is_latent = false;
};
struct DenseFlops {
  std::string format;
  double decode = 0.0;
  double prefill = 0.0;  // without the head
};
struct StepProfile {
  double num_layers = 0.0;
  double hidden_size = 0.0;
  double dense_bytes = 0.0;             // projections, shared, dense, head on a rank
  std::vector<DenseFlops> dense_flops;  // of a token, by weight format
  double num_products = 0.0;            // dense kernels of a step
  std::vector<MoeShape> moe;
  std::vector<AttentionShape> attention;
  double num_state_layers = 0.0;
  double state_bytes = 0.0;  // of one sequence, all layers
  double num_indexed_layers = 0.0;
  std::string precision;  // of the experts: bf16, fp8, fp4, int4, int8
  std::string mixer;      // gqa, mla, linear
  std::string expert_format;
  std::string dense_format;
};
[[nodiscard]] StepProfile make_step_profile(const model::Architecture& architecture,
                                            const Layout& layout, const KvOptions& kv);

// "fp4" for mxfp4 and nvfp4, "int4", "fp8", "int8", "bf16".
[[nodiscard]] std::string precision_class(const model::WeightFormat& format);

class StepSum;

class StepModel {
 public:
  StepModel(const model::Architecture& architecture, const Layout& layout, const Accelerator& gpu,
            const StepSetup& setup, const MeasuredTimes& measured);
  // From a profile that is already there (sweeps).
  StepModel(StepProfile profile, const Layout& layout, const Accelerator& gpu,
            const StepSetup& setup, const MeasuredTimes& measured);

  // One decode step of `batch` sequences on every attention rank (dp of them), each with `context`
  // cached tokens. With pp stages, the time of one token through all of them.
  [[nodiscard]] StepTime decode(double batch, double context) const;

  // `tokens` new prompt tokens on every attention rank. `weight_share`: passes over the weights
  // that these tokens pay for, below 1 when several prompts share a pass, above 1 for a prompt that
  // is cut into several. `cached`: tokens of the prompt that are in the cache already.
  [[nodiscard]] StepTime prefill(double tokens, double weight_share = 1.0,
                                 double cached = 0.0) const;

  [[nodiscard]] const StepProfile& profile() const { return profile_; }
  [[nodiscard]] const Layout& layout() const { return layout_; }
  [[nodiscard]] const StepSetup& setup() const { return setup_; }
  [[nodiscard]] const TermKeys& keys() const { return keys_; }
  [[nodiscard]] const TermValues& terms() const { return terms_; }
  // The fit replaces these.
  void set_terms(const TermValues& terms) { terms_ = terms; }
  // What stands in for a measurement that does not exist, one line each; empty when all was
  // measured.
  [[nodiscard]] std::vector<std::string> defaults() const;
  // Of the held-out rows of this (GPU, engine, precision), or of all rows.
  [[nodiscard]] const GroupError& held_out_error() const { return held_out_; }

 private:
  struct Fits {
    KernelFit moe;
    KernelFit gemm;
    KernelFit decode_attention;
    KernelFit prefill_attention;
    CollectiveFit all_reduce;
  };
  // The parts of a step. `rows`: sequences with their draft tokens on a rank.
  void add_decode_experts(const MoeShape& moe, double rows, StepSum& sum) const;
  void add_decode_attention(const AttentionShape& attention, double sequences, double rows,
                            double context, StepSum& sum) const;
  void add_decode_links(double rows, StepSum& sum) const;
  void add_prefill_experts(const MoeShape& moe, double tokens, double weight_share,
                           StepSum& sum) const;
  void add_prefill_links(double tokens, StepSum& sum) const;

  StepProfile profile_;
  Layout layout_;
  Accelerator gpu_;
  StepSetup setup_;
  Fits fits_;
  double dense_s_per_token_ = 0.0;
  double prefill_dense_s_per_token_ = 0.0;
  double moe_peak_ = 1.0;   // flops/s of the experts' format
  double bf16_peak_ = 1.0;  // of attention
  TermKeys keys_;
  TermValues terms_;
  GroupError held_out_;
  bool knows_group_ = false;
  bool knows_engine_ = false;
};

}  // namespace moe::planner
