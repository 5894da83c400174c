#include "lib/planner/step_time.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "lib/base/check.hpp"

namespace moe::planner {
namespace {

// Kernels of a layer run one behind the other in a graph; half of their floor is hidden by the
// next launch. Fitted factors take up what this misses.
constexpr double kFloorShare = 0.5;
// A recurrent state is read and written once per chunk of this many prompt tokens.
constexpr double kStateChunkTokens = 64.0;
constexpr double kHopLatencyS = 10e-6;

// The name under which kernels of a format were measured.
std::string kernel_format(const std::string& format, const Accelerator& gpu, Engine engine) {
  if (format == "mxfp4") {
    // Blackwell kernels of TensorRT-LLM and SGLang take FP8 activations, the others BF16.
    const bool has_fp4 = gpu.fp4_flops_per_s.has_value();
    return has_fp4 && engine != Engine::kVllm ? "mxfp4-a8" : "mxfp4";
  }
  if (format.rfind("fp8-block", 0) == 0) return "fp8-block128";
  if (format.rfind("fp8", 0) == 0) return "fp8";
  if (format.rfind("int4", 0) == 0) return "int4-g128";
  if (format == "fp16") return "bf16";
  return format;
}

double peak_of(const Accelerator& gpu, const std::string& kernel) {
  const double bf16 = gpu.bf16_flops_per_s.value_or(1e12);
  const double fp8 = gpu.fp8_flops_per_s.value_or(bf16);
  if (kernel.rfind("fp8", 0) == 0 || kernel == "mxfp4-a8") return fp8;
  if (kernel == "nvfp4") return gpu.fp4_flops_per_s.value_or(fp8);
  return bf16;
}

// What well-made kernels reach: matmul ceilings of 0.77 to 0.87 were measured on A100, H100 and
// B200, 0.8 of the bandwidth is the usual allowance. The fast end of a band rests on these where
// the measured kernels are slower.
constexpr double kGoodShare = 0.8;

double context_of(const AttentionShape& shape, double context) {
  return shape.max_context > 0.0 ? std::min(shape.max_context, context) : context;
}

}  // namespace

// Adds up a step: each contribution once raw (the kernels' own efficiency) and once as the engine
// was seen to need it.
class StepSum {
 public:
  // `share`: of the peak that the kernel reaches; 1 where raw_s is not a kernel's.
  void add(StepPart part, Resource resource, double raw_s, double factor, double share = 1.0) {
    best_[static_cast<std::size_t>(resource)] += raw_s * std::min(1.0, share / kGoodShare);
    const double seconds = raw_s * factor;
    time_.parts[static_cast<std::size_t>(part)] += seconds;
    time_.resources[static_cast<std::size_t>(resource)] += seconds;
    raw_[static_cast<std::size_t>(resource)] += raw_s;
  }
  // Time that no overlap removes and that no band may leave out.
  void add_overhead(StepPart part, double seconds) { add(part, Resource::kOverhead, seconds, 1.0); }
  StepTime finish(double factor) {
    double raw_sum = 0.0;
    double best_max = 0.0;
    for (std::size_t r = 0; r < kNumResources; ++r) {
      raw_sum += raw_[r];
      if (r != static_cast<std::size_t>(Resource::kOverhead))
        best_max = std::max(best_max, best_[r]);
      time_.resources[r] *= factor;
      time_.value_s += time_.resources[r];
    }
    for (double& part : time_.parts) part *= factor;
    time_.full_overlap_s = std::min(best_max, time_.value_s);
    time_.no_overlap_s = std::max(raw_sum, time_.value_s);
    return time_;
  }

 private:
  StepTime time_;
  std::array<double, kNumResources> raw_{};
  std::array<double, kNumResources> best_{};
};

std::string_view step_part_name(StepPart part) {
  constexpr std::array<std::string_view, kNumStepParts> kNames = {
      "dense", "experts", "attention", "state", "all_reduce", "all_to_all", "pipeline", "overhead"};
  return kNames[static_cast<std::size_t>(part)];
}

std::string_view resource_name(Resource resource) {
  constexpr std::array<std::string_view, kNumResources> kNames = {"memory", "compute", "network",
                                                                  "overhead"};
  return kNames[static_cast<std::size_t>(resource)];
}

Resource StepTime::limiting() const {
  const auto it = std::max_element(resources.begin(), resources.end());
  return static_cast<Resource>(it - resources.begin());
}

StepModel::StepModel(const model::Architecture& architecture, const Layout& layout,
                     const Accelerator& gpu, const StepSetup& setup, const MeasuredTimes& measured)
    : StepModel(make_step_profile(architecture, layout, setup.kv), layout, gpu, setup, measured) {}

StepModel::StepModel(StepProfile profile, const Layout& layout, const Accelerator& gpu,
                     const StepSetup& setup, const MeasuredTimes& measured)
    : profile_(std::move(profile)), layout_(layout), gpu_(gpu), setup_(setup) {
  const std::string engine(engine_name(setup.engine));
  const std::string moe_format = kernel_format(profile_.expert_format, gpu, setup.engine);
  const std::string dense_format = kernel_format(profile_.dense_format, gpu, setup.engine);
  const std::string cache = setup.kv.dtype.bits <= 8.5 ? "fp8" : "bf16";
  const bool is_latent = profile_.mixer == "mla";
  const KernelTable& kernels = measured.kernels;
  fits_.moe = kernels.find(KernelKind::kMoe, gpu.id, engine, moe_format);
  fits_.gemm = kernels.find(KernelKind::kGemm, gpu.id, engine, dense_format);
  fits_.decode_attention = kernels.find(
      is_latent ? KernelKind::kDecodeMla : KernelKind::kDecodeAttention, gpu.id, engine, cache);
  fits_.prefill_attention = kernels.find(
      is_latent ? KernelKind::kPrefillMla : KernelKind::kPrefillAttention, gpu.id, engine, cache);
  fits_.all_reduce = measured.collectives.all_reduce(gpu, engine, layout.tp, setup.network);
  for (const DenseFlops& dense : profile_.dense_flops) {
    const double peak = peak_of(gpu, kernel_format(dense.format, gpu, setup.engine));
    dense_s_per_token_ += dense.decode / peak;
    prefill_dense_s_per_token_ += dense.prefill / peak;
  }
  moe_peak_ = peak_of(gpu, moe_format);
  bf16_peak_ = gpu.bf16_flops_per_s.value_or(1e12);
  keys_ = make_term_keys(gpu.id, engine, profile_.precision, profile_.mixer);
  terms_ = measured.constants.resolve(keys_);
  knows_group_ = measured.constants.knows_group(keys_);
  knows_engine_ = measured.constants.knows_engine(engine);
  const auto& held_out = measured.constants.held_out;
  auto it = held_out.find(keys_.at(TermLevel::kGroup));
  if (it == held_out.end()) it = held_out.find("all");
  if (it != held_out.end()) held_out_ = it->second;
}

void StepModel::add_decode_experts(const MoeShape& moe, double rows, StepSum& sum) const {
  const TermValues& c = terms_;
  const double bandwidth = gpu_.memory_bytes_per_s;
  const double group_rows = rows * layout_.dp;
  const double ratio = moe.local_experts / moe.num_experts;
  double hits = ratio * expected_hits(moe.num_experts, moe.top_k, group_rows);
  double selections = group_rows * moe.top_k * ratio;
  if (!setup_.skew.is_uniform()) {
    const SkewFactors skew = skew_factors(setup_.skew, static_cast<std::int64_t>(moe.num_experts),
                                          moe.top_k, layout_.ep, group_rows);
    hits = std::min(moe.local_experts, hits * skew.hits);
    selections *= skew.load;
  }
  sum.add(StepPart::kExperts, Resource::kMemory,
          moe.num_layers * hits * moe.expert_bytes / bandwidth / fits_.moe.bytes_share,
          c[Term::kMoe], fits_.moe.bytes_share);
  sum.add(StepPart::kExperts, Resource::kCompute,
          moe.num_layers * selections * moe.token_flops / moe_peak_ / fits_.moe.flops_share,
          c[Term::kMoe], fits_.moe.flops_share);
  sum.add(StepPart::kExperts, Resource::kOverhead, moe.num_layers * fits_.moe.t0_s,
          c[Term::kMoeFloor]);
  if (layout_.dp > 1) {
    const AllToAllTime exchange =
        moe_all_to_all_time_s(gpu_, layout_.tp * layout_.dp, setup_.network, rows / layout_.tp,
                              moe.top_k, profile_.hidden_size, false);
    // The factor was seen inside scale-up domains; between nodes the link's rate decides.
    const double shown = 1.0 - setup_.hidden_all_to_all;
    const double inside = shown * c[Term::kAllToAll];
    sum.add(StepPart::kAllToAll, Resource::kNetwork, moe.num_layers * exchange.inside_s, inside);
    sum.add(StepPart::kAllToAll, Resource::kNetwork, moe.num_layers * exchange.outside_s, shown);
    sum.add(StepPart::kAllToAll, Resource::kOverhead, moe.num_layers * exchange.alpha_s, inside);
  }
}

void StepModel::add_decode_attention(const AttentionShape& attention, double sequences, double rows,
                                     double context, StepSum& sum) const {
  const TermValues& c = terms_;
  const double bandwidth = gpu_.memory_bytes_per_s;
  const double seen = context_of(attention, context);
  const double bytes = attention.token_bytes * seen + attention.index_bytes * context;
  const double flops = attention.decode_flops * seen + attention.index_flops * context;
  sum.add(StepPart::kAttention, Resource::kMemory,
          attention.num_layers * sequences * bytes / bandwidth / fits_.decode_attention.bytes_share,
          c[Term::kAttention], fits_.decode_attention.bytes_share);
  sum.add(StepPart::kAttention, Resource::kCompute,
          attention.num_layers * rows * flops / bf16_peak_ / fits_.decode_attention.flops_share,
          c[Term::kAttention], fits_.decode_attention.flops_share);
  sum.add(StepPart::kAttention, Resource::kOverhead,
          kFloorShare * attention.num_layers * fits_.decode_attention.t0_s, c[Term::kAttention]);
}

void StepModel::add_decode_links(double rows, StepSum& sum) const {
  const TermValues& c = terms_;
  if (layout_.tp > 1) {
    // One after the attention, one after the experts; with data-parallel attention the exchange
    // above takes the place of the second.
    const double calls = layout_.dp > 1 ? profile_.num_layers : 2.0 * profile_.num_layers;
    const double bytes = rows * profile_.hidden_size * 2.0;
    const double total = all_reduce_time_s(fits_.all_reduce, layout_.tp, bytes);
    sum.add(StepPart::kAllReduce, Resource::kNetwork, calls * (total - fits_.all_reduce.alpha_s),
            c[Term::kAllReduce]);
    sum.add(StepPart::kAllReduce, Resource::kOverhead, calls * fits_.all_reduce.alpha_s,
            c[Term::kAllReduce]);
  }
  if (layout_.pp > 1) {
    const double hop =
        kHopLatencyS + rows * profile_.hidden_size * 2.0 / std::max(1e6, gpu_.peer_bytes_per_s);
    sum.add(StepPart::kPipeline, Resource::kNetwork, (layout_.pp - 1) * hop, 1.0);
  }
}

StepTime StepModel::decode(double batch, double context) const {
  const TermValues& c = terms_;
  const double bandwidth = gpu_.memory_bytes_per_s;
  const double layers = profile_.num_layers;
  // Microbatches of a pipeline follow each other; a token sees all stages with its own part.
  const double sequences = std::max({1e-9, std::min(1.0, batch), batch / layout_.pp});
  const double rows = sequences * (1.0 + setup_.draft_tokens);
  StepSum sum;

  const double gemm = c[Term::kGemm];
  sum.add(StepPart::kDense, Resource::kMemory,
          profile_.dense_bytes / bandwidth / fits_.gemm.bytes_share, gemm, fits_.gemm.bytes_share);
  sum.add(StepPart::kDense, Resource::kCompute, rows * dense_s_per_token_ / fits_.gemm.flops_share,
          gemm);
  sum.add(StepPart::kDense, Resource::kOverhead,
          kFloorShare * profile_.num_products * fits_.gemm.t0_s, gemm);

  for (const MoeShape& moe : profile_.moe) add_decode_experts(moe, rows, sum);
  for (const AttentionShape& attention : profile_.attention) {
    add_decode_attention(attention, sequences, rows, context, sum);
  }
  if (profile_.num_state_layers > 0.0) {
    sum.add(StepPart::kState, Resource::kMemory, 2.0 * sequences * profile_.state_bytes / bandwidth,
            1.0);
    sum.add_overhead(StepPart::kState, profile_.num_state_layers * c[Term::kStateLayer]);
  }
  add_decode_links(rows, sum);
  const double sequence_s =
      c[Term::kSequence] * (layout_.dp > 1 ? c[Term::kDataParallel] : 1.0) * sequences;
  sum.add_overhead(StepPart::kOverhead, layout_.pp * c[Term::kHost] + layers * c[Term::kLayer] +
                                            profile_.num_indexed_layers * c[Term::kIndexer] +
                                            sequence_s);
  return sum.finish(setup_.decode_calibration *
                    std::pow(c[Term::kAgeDecode], setup_.engine_age_months));
}

void StepModel::add_prefill_experts(const MoeShape& moe, double tokens, double weight_share,
                                    StepSum& sum) const {
  const TermValues& c = terms_;
  const double group_tokens = tokens * layout_.dp;
  const double factor = c[Term::kPrefill];
  const double ratio = moe.local_experts / moe.num_experts;
  double load = 1.0;
  double read = ratio * expected_hits(moe.num_experts, moe.top_k, group_tokens);
  if (!setup_.skew.is_uniform()) {
    const SkewFactors skew = skew_factors(setup_.skew, static_cast<std::int64_t>(moe.num_experts),
                                          moe.top_k, layout_.ep, group_tokens);
    load = skew.load;
    read *= skew.hits;
  }
  sum.add(StepPart::kExperts, Resource::kCompute,
          load * moe.num_layers * group_tokens * moe.top_k * ratio * moe.token_flops / moe_peak_ /
              fits_.moe.flops_share,
          factor, fits_.moe.flops_share);
  sum.add(StepPart::kExperts, Resource::kMemory,
          weight_share * moe.num_layers * read * moe.expert_bytes / gpu_.memory_bytes_per_s,
          factor);
  if (layout_.dp > 1) {
    const AllToAllTime exchange =
        moe_all_to_all_time_s(gpu_, layout_.tp * layout_.dp, setup_.network, tokens / layout_.tp,
                              moe.top_k, profile_.hidden_size, true);
    const double shown = 1.0 - setup_.hidden_all_to_all;
    sum.add(StepPart::kAllToAll, Resource::kNetwork, load * moe.num_layers * exchange.inside_s,
            shown * factor * c[Term::kAllToAll]);
    sum.add(StepPart::kAllToAll, Resource::kNetwork, load * moe.num_layers * exchange.outside_s,
            shown);
  }
}

void StepModel::add_prefill_links(double tokens, StepSum& sum) const {
  const double factor = terms_[Term::kPrefill];
  if (layout_.tp > 1) {
    const double calls = (layout_.dp > 1 ? 1.0 : 2.0) * profile_.num_layers;
    CollectiveFit volume = fits_.all_reduce;
    volume.alpha_s = 0.0;  // in the fixed part of a pass
    volume.s_per_sqrt_byte = 0.0;
    sum.add(StepPart::kAllReduce, Resource::kNetwork,
            calls * all_reduce_time_s(volume, layout_.tp, tokens * profile_.hidden_size * 2.0),
            factor);
  }
  if (layout_.pp > 1) {
    const double bytes = tokens * profile_.hidden_size * 2.0;
    sum.add(StepPart::kPipeline, Resource::kNetwork,
            (layout_.pp - 1) * (kHopLatencyS + bytes / std::max(1e6, gpu_.peer_bytes_per_s)), 1.0);
  }
}

StepTime StepModel::prefill(double tokens, double weight_share, double cached) const {
  const TermValues& c = terms_;
  const double bandwidth = gpu_.memory_bytes_per_s;
  const double factor = c[Term::kPrefill];
  StepSum sum;
  sum.add(StepPart::kDense, Resource::kCompute,
          tokens * prefill_dense_s_per_token_ / fits_.gemm.flops_share, factor,
          fits_.gemm.flops_share);
  sum.add(StepPart::kDense, Resource::kMemory, weight_share * profile_.dense_bytes / bandwidth,
          factor);
  for (const MoeShape& moe : profile_.moe) add_prefill_experts(moe, tokens, weight_share, sum);
  for (const AttentionShape& attention : profile_.attention) {
    // Pairs of a token with those before it; picked tokens are found among all.
    const double all_pairs = tokens * (cached + tokens / 2.0);
    const double pairs = attention.max_context > 0.0
                             ? std::min(all_pairs, tokens * attention.max_context)
                             : all_pairs;
    const double flops = attention.prefill_flops * pairs + attention.index_flops * all_pairs;
    sum.add(StepPart::kAttention, Resource::kCompute,
            attention.num_layers * flops / bf16_peak_ / fits_.prefill_attention.flops_share,
            c[Term::kPrefillAttention], fits_.prefill_attention.flops_share);
  }
  if (profile_.num_state_layers > 0.0) {
    sum.add(StepPart::kState, Resource::kMemory,
            2.0 * tokens / kStateChunkTokens * profile_.state_bytes / bandwidth,
            c[Term::kPrefillAttention]);
  }
  add_prefill_links(tokens, sum);
  sum.add_overhead(StepPart::kOverhead, weight_share * c[Term::kPrefillFixed]);
  return sum.finish(setup_.prefill_calibration *
                    std::pow(c[Term::kAgePrefill], setup_.engine_age_months));
}

std::vector<std::string> StepModel::defaults() const {
  std::vector<std::string> lines;
  const auto note = [&](const char* what, const KernelFit& fit) {
    if (fit.match == FitMatch::kExact) return;
    lines.push_back(fmt::format("{}: no measurement for {}; taken from {} ({})", what,
                                keys_.at(TermLevel::kGroup), fit_match_name(fit.match),
                                fit.source));
  };
  if (!profile_.moe.empty()) note("expert kernels", fits_.moe);
  note("dense products", fits_.gemm);
  if (!profile_.attention.empty()) {
    note("decode attention", fits_.decode_attention);
    note("prefill attention", fits_.prefill_attention);
  }
  if (layout_.tp > 1 && !fits_.all_reduce.is_measured) {
    lines.push_back(
        fmt::format("all-reduce of {}: not measured; {}", layout_.tp, fits_.all_reduce.source));
  }
  if (layout_.dp > 1) {
    lines.emplace_back(
        "dispatch and combine: one latency and one share of the link for all GPUs, fitted to "
        "DeepEP and NVLink kernels on other GPUs");
  }
  if (layout_.tp * layout_.dp > std::max(gpu_.scale_up_gpus, gpu_.gpus_per_node) &&
      setup_.network.is_assumed) {
    lines.push_back(fmt::format("links between nodes: {:.0f} GB/s per GPU and {:.0f} us assumed",
                                setup_.network.bytes_per_s / 1e9, setup_.network.latency_s * 1e6));
  }
  if (!knows_engine_) {
    lines.push_back(fmt::format("engine {}: no operating points; the mean over engines stands in",
                                keys_.at(TermLevel::kEngine)));
  } else if (!knows_group_) {
    lines.push_back(
        fmt::format("{}: no operating points of whole deployments; the engine's mean "
                    "over GPUs and precisions stands in",
                    keys_.at(TermLevel::kGroup)));
  }
  return lines;
}

}  // namespace moe::planner
