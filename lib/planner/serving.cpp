#include "lib/planner/serving.hpp"

#include <algorithm>
#include <cmath>

#include "lib/base/check.hpp"

namespace moe::planner {
namespace {

constexpr int kFixedPointRounds = 8;
constexpr double kSettled = 1e-3;
constexpr double kMaxUtilization = 0.97;
constexpr double kUnboundedBatch = 4096.0;  // per attention rank, when no cache size is given

struct PrefillCost {
  StepTime alone;         // the first token cannot come sooner
  double shared_s = 0.0;  // what one more prompt costs a busy server
};

PrefillCost prefill_cost(const StepModel& model, const RequestShape& shape) {
  const double tokens = std::max(1.0, shape.input_tokens - shape.cached_input_tokens);
  const double passes = tokens / std::max(1.0, shape.pass_tokens);
  PrefillCost cost;
  cost.alone = model.prefill(tokens, std::max(1.0, passes), shape.cached_input_tokens);
  cost.shared_s = model.prefill(tokens, passes, shape.cached_input_tokens).value_s;
  return cost;
}

double accepted(const StepModel& model) {
  const StepSetup& setup = model.setup();
  if (setup.draft_tokens <= 0.0) return 1.0;
  return setup.accepted_per_step > 1.0 ? setup.accepted_per_step
                                       : std::max(1.0, model.terms()[Term::kAcceptedTokens]);
}

double mean_context(const RequestShape& shape) {
  return shape.input_tokens + shape.output_tokens / 2.0;
}

// Tail of a wait whose mean is wait_s and that happens with probability rho: exponential.
double wait_quantile(double wait_s, double rho, double quantile) {
  if (wait_s <= 0.0 || rho <= 0.0) return 0.0;
  const double happens = std::min(1.0, rho);
  if (1.0 - quantile >= happens) return 0.0;
  return wait_s / happens * std::log(happens / (1.0 - quantile));
}

// Smooth max(0, x) over a width.
double soft_plus(double x, double width) {
  const double z = x / width;
  if (z > 40.0) return x;
  return width * std::log1p(std::exp(z));
}

struct Timing {
  double first_token_s = 0.0;  // between prefill and the client
  double handover_s = 0.0;
  double rho = 0.0;
  double waits = 1.0;      // probability of waiting at all
  double outside_s = 0.0;  // waiting for cache
};

void finish_point(const StepModel& decode, const RequestShape& shape, const PrefillCost& prefill,
                  const Timing& timing, ServingPoint& point) {
  const double gain = accepted(decode);
  point.prefill_s = prefill.alone.value_s;
  const double fixed = timing.first_token_s + timing.handover_s;
  point.ttft_s = point.prefill_s + fixed + point.wait_s;
  point.request_s = point.ttft_s + std::max(0.0, shape.output_tokens - 1.0) * point.tpot_s;
  const double beside = point.tpot_s - point.decode_step.value_s / gain;
  point.tpot_full_overlap_s = point.decode_step.full_overlap_s / gain;
  point.tpot_no_overlap_s = point.decode_step.no_overlap_s / gain + std::max(0.0, beside);
  point.ttft_low_s = prefill.alone.full_overlap_s;
  point.ttft_high_s = prefill.alone.no_overlap_s + fixed + point.wait_s;
  const double queue_s = point.wait_s - timing.outside_s;
  const double base = point.prefill_s + fixed + timing.outside_s;
  point.ttft_p50_s = base + wait_quantile(queue_s, timing.waits, 0.5);
  point.ttft_p99_s = base + std::max(queue_s, wait_quantile(queue_s, timing.waits, 0.99));
  point.limiting_resource = point.decode_step.limiting();
  point.decode_step_s = point.decode_step.value_s;
  point.output_tokens_per_s = point.requests_per_s * shape.output_tokens;
  point.output_tokens_per_s_per_gpu = point.output_tokens_per_s / std::max(1, point.num_gpus);
}

double first_token_s(const StepModel& model, double decode_step_s) {
  const TermValues& c = model.terms();
  return c[Term::kFirstTokenFixed] + c[Term::kFirstTokenSteps] * decode_step_s;
}

// TPOT with `batch` sequences on a rank and prompts taken in beside them at the rate at which
// requests end.
double mixed_tpot(const StepModel& model, const RequestShape& shape, double shared_s, double batch,
                  StepTime& step) {
  step = model.decode(std::max(1.0, batch), mean_context(shape));
  return step.value_s / accepted(model) + model.terms()[Term::kInterference] *
                                              std::max(batch - 1.0, 0.0) / shape.output_tokens *
                                              shared_s;
}

}  // namespace

std::string_view serving_limit_name(ServingLimit limit) {
  switch (limit) {
    case ServingLimit::kNone:
      return "latency";
    case ServingLimit::kKvCache:
      return "kv cache";
    case ServingLimit::kPrefill:
      return "prefill";
    case ServingLimit::kDecode:
      return "decode";
  }
  return "latency";
}

ServingPoint serve_closed_loop(const StepModel& model, const RequestShape& shape,
                               double num_clients, double max_requests) {
  MOE_CHECK(num_clients > 0.0 && shape.output_tokens >= 1.0 && shape.input_tokens >= 1.0);
  const TermValues& c = model.terms();
  const double ranks = model.layout().dp;
  ServingPoint point;
  point.num_gpus = model.layout().gpus();
  point.concurrency = num_clients;
  const double room = max_requests > 0.0 ? std::max(1.0, max_requests) : num_clients;
  point.admitted = std::min(num_clients, room);
  const PrefillCost prefill = prefill_cost(model, shape);
  double share_decoding = 1.0;
  double cycle_s = 0.0;
  for (int round = 0; round < kFixedPointRounds; ++round) {
    const double all = point.admitted / ranks;
    point.batch_per_rank = std::max(all * share_decoding, std::min(1.0, all));
    point.tpot_s =
        mixed_tpot(model, shape, prefill.shared_s, point.batch_per_rank, point.decode_step);
    const double decoding_s = shape.output_tokens * point.tpot_s;
    cycle_s = decoding_s + prefill.alone.value_s;
    const double last = share_decoding;
    share_decoding = decoding_s / cycle_s;
    if (std::abs(share_decoding - last) < kSettled) break;
  }
  Timing timing;
  timing.rho = std::min(kMaxUtilization, point.admitted * prefill.shared_s / ranks / cycle_s);
  point.prefill_utilization = timing.rho;
  const double busy = c[Term::kQueueBusy] * prefill.shared_s * timing.rho / (1.0 - timing.rho);
  const double burst =
      c[Term::kQueueBurst] * prefill.shared_s * std::max(0.0, point.admitted / ranks - 1.0);
  timing.outside_s = (num_clients - point.admitted) / point.admitted * cycle_s;
  timing.first_token_s = first_token_s(model, point.decode_step.value_s);
  point.wait_s = busy + burst + timing.outside_s;
  point.requests_per_s = point.admitted / (cycle_s + busy + burst + timing.first_token_s);
  point.limit = point.admitted < num_clients          ? ServingLimit::kKvCache
                : timing.rho >= 0.9 * kMaxUtilization ? ServingLimit::kPrefill
                                                      : ServingLimit::kNone;
  finish_point(model, shape, prefill, timing, point);
  return point;
}

ServingPoint serve_closed_loop(const Disaggregation& system, const RequestShape& shape,
                               double num_clients, double max_requests) {
  MOE_CHECK(system.prefill != nullptr && system.decode != nullptr);
  MOE_CHECK(num_clients > 0.0 && shape.output_tokens >= 1.0 && shape.input_tokens >= 1.0);
  const StepModel& decode = *system.decode;
  const TermValues& c = decode.terms();
  const double ranks = static_cast<double>(system.num_decode_workers) * decode.layout().dp;
  const double servers =
      static_cast<double>(system.num_prefill_workers) * system.prefill->layout().dp;
  ServingPoint point;
  point.num_gpus = system.num_prefill_workers * system.prefill->layout().gpus() +
                   system.num_decode_workers * decode.layout().gpus();
  point.concurrency = num_clients;
  const double room =
      max_requests > 0.0 ? std::max(1.0, max_requests) * system.num_decode_workers : num_clients;
  point.admitted = std::min(num_clients, room);
  const PrefillCost prefill = prefill_cost(*system.prefill, shape);
  const double prefill_load_s = point.admitted * prefill.shared_s / servers;
  double share_decoding = 1.0;
  double cycle_s = 0.0;
  for (int round = 0; round < kFixedPointRounds; ++round) {
    const double all = point.admitted / ranks;
    point.batch_per_rank = std::max(all * share_decoding, std::min(1.0, all));
    point.decode_step = decode.decode(std::max(1.0, point.batch_per_rank), mean_context(shape));
    point.tpot_s = point.decode_step.value_s / accepted(decode);
    const double decoding_s = shape.output_tokens * point.tpot_s;
    // Two stations in a circle: when prefill is the slower one, requests gather there.
    cycle_s = std::max(decoding_s + prefill.alone.value_s, prefill_load_s);
    share_decoding = decoding_s / cycle_s;
  }
  Timing timing;
  timing.rho = std::min(kMaxUtilization, prefill_load_s / cycle_s);
  point.prefill_utilization = timing.rho;
  const double busy = c[Term::kQueueBusy] * prefill.shared_s * timing.rho / (1.0 - timing.rho);
  const double burst =
      c[Term::kQueueBurst] * prefill.shared_s * std::max(0.0, point.admitted / servers - 1.0);
  const double gathered =
      soft_plus(prefill_load_s - shape.output_tokens * point.tpot_s, 2.0 * prefill.alone.value_s);
  timing.outside_s = (num_clients - point.admitted) / point.admitted * cycle_s;
  timing.first_token_s = first_token_s(decode, point.decode_step.value_s);
  timing.handover_s = c[Term::kHandover];
  point.wait_s = busy + burst + gathered + timing.outside_s;
  point.requests_per_s =
      point.admitted / (shape.output_tokens * point.tpot_s + prefill.alone.value_s + busy + burst +
                        gathered + timing.first_token_s + timing.handover_s);
  point.limit = point.admitted < num_clients          ? ServingLimit::kKvCache
                : timing.rho >= 0.9 * kMaxUtilization ? ServingLimit::kPrefill
                                                      : ServingLimit::kNone;
  finish_point(decode, shape, prefill, timing, point);
  return point;
}

namespace {

// The batch at which requests end as fast as they arrive; negative when there is none below
// `room`. `tpot` grows with the batch.
template <typename Tpot>
double settled_batch(double arrivals_per_rank, double output_tokens, double room,
                     const Tpot& tpot) {
  const auto excess = [&](double batch) {
    return batch - arrivals_per_rank * output_tokens * tpot(batch);
  };
  if (excess(room) < 0.0) return -1.0;
  double low = 0.0;
  double high = room;
  for (int i = 0; i < 50 && high - low > 1e-6 * room; ++i) {
    const double middle = 0.5 * (low + high);
    (excess(middle) < 0.0 ? low : high) = middle;
  }
  return high;
}

ServingPoint open_loop(const StepModel& prefill_model, double servers, const StepModel& decode,
                       double ranks, std::int32_t num_gpus, bool is_mixed,
                       const RequestShape& shape, double rate, double max_requests) {
  MOE_CHECK(rate >= 0.0 && shape.output_tokens >= 1.0 && shape.input_tokens >= 1.0);
  ServingPoint point;
  point.num_gpus = num_gpus;
  const PrefillCost prefill = prefill_cost(prefill_model, shape);
  const double room = std::max(1.0, max_requests > 0.0 ? max_requests / ranks : kUnboundedBatch);
  StepTime step;
  const auto tpot = [&](double batch) {
    if (is_mixed) return mixed_tpot(decode, shape, prefill.shared_s, batch, step);
    step = decode.decode(std::max(1.0, batch), mean_context(shape));
    return step.value_s / accepted(decode);
  };
  const double settled = settled_batch(rate / ranks, shape.output_tokens, room, tpot);
  point.batch_per_rank = settled < 0.0 ? room : settled;
  point.tpot_s = tpot(point.batch_per_rank);
  point.decode_step = step;
  Timing timing;
  timing.rho = rate * prefill.shared_s / servers;
  point.prefill_utilization = timing.rho;
  point.is_stable = settled >= 0.0 && timing.rho < 1.0;
  const double served = std::min(
      {rate, servers / prefill.shared_s, room * ranks / (shape.output_tokens * point.tpot_s)});
  point.requests_per_s = served;
  // M/G/1 with prompts whose lengths vary as much as their mean.
  const double rho = std::min(kMaxUtilization, timing.rho);
  point.wait_s = prefill.shared_s * rho / (1.0 - rho);
  timing.rho = rho;
  timing.waits = rho;
  timing.first_token_s = first_token_s(decode, point.decode_step.value_s);
  timing.handover_s = is_mixed ? 0.0 : decode.terms()[Term::kHandover];
  point.limit = settled < 0.0
                    ? (max_requests > 0.0 ? ServingLimit::kKvCache : ServingLimit::kDecode)
                : point.prefill_utilization >= 1.0 ? ServingLimit::kPrefill
                                                   : ServingLimit::kNone;
  finish_point(decode, shape, prefill, timing, point);
  point.concurrency = served * point.request_s;  // Little's law
  point.admitted = std::min(point.concurrency, room * ranks);
  return point;
}

}  // namespace

ServingPoint serve_open_loop(const StepModel& model, const RequestShape& shape,
                             double requests_per_s, double max_requests) {
  const double ranks = model.layout().dp;
  return open_loop(model, ranks, model, ranks, model.layout().gpus(), true, shape, requests_per_s,
                   max_requests);
}

ServingPoint serve_open_loop(const Disaggregation& system, const RequestShape& shape,
                             double requests_per_s, double max_requests) {
  MOE_CHECK(system.prefill != nullptr && system.decode != nullptr);
  const double servers =
      static_cast<double>(system.num_prefill_workers) * system.prefill->layout().dp;
  const double ranks = static_cast<double>(system.num_decode_workers) * system.decode->layout().dp;
  const std::int32_t gpus = system.num_prefill_workers * system.prefill->layout().gpus() +
                            system.num_decode_workers * system.decode->layout().gpus();
  return open_loop(*system.prefill, servers, *system.decode, ranks, gpus, false, shape,
                   requests_per_s, max_requests * system.num_decode_workers);
}

CapacityPoint max_request_rate(const StepModel& model, const RequestShape& shape,
                               const ServiceTarget& target, double max_requests) {
  CapacityPoint result;
  const auto reason = [&](const ServingPoint& point) -> std::string {
    if (!point.is_stable) {
      return point.limit == ServingLimit::kPrefill ? "prefill queue"
                                                   : std::string(serving_limit_name(point.limit));
    }
    if (point.prefill_utilization > target.max_utilization) return "prefill queue";
    if (point.tpot_s > target.tpot_s) return "tpot";
    const double ttft = target.is_ttft_p99 ? point.ttft_p99_s : point.ttft_s;
    return ttft > target.ttft_s ? "ttft" : "";
  };
  double low = 0.0;
  double high = 1e-3;
  result.point = serve_open_loop(model, shape, high, max_requests);
  result.limited_by = reason(result.point);
  if (!result.limited_by.empty()) return result;
  for (int i = 0; i < 60 && result.limited_by.empty(); ++i) {
    low = high;
    high *= 2.0;
    result.limited_by = reason(serve_open_loop(model, shape, high, max_requests));
  }
  for (int i = 0; i < 40 && high - low > 1e-4 * high; ++i) {
    const double middle = 0.5 * (low + high);
    const std::string why = reason(serve_open_loop(model, shape, middle, max_requests));
    if (why.empty()) {
      low = middle;
    } else {
      high = middle;
      result.limited_by = why;
    }
  }
  result.requests_per_s = low;
  result.point = serve_open_loop(model, shape, low, max_requests);
  return result;
}

}  // namespace moe::planner
