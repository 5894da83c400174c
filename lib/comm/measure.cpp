#include "lib/comm/measure.hpp"

#include <algorithm>
#include <cmath>

#include "lib/base/check.hpp"
#include "lib/base/clock.hpp"
#include "lib/comm/agreement.hpp"
#include "lib/comm/exchange_buffers.hpp"
#include "lib/comm/figures.hpp"

namespace moe::comm {
namespace {

// Ranks agree on going on only so often: an agreement costs more than a short exchange.
constexpr double kAgreeEveryS = 0.05;
// The round whose data is checked after the timed ones; no timed iteration has it.
constexpr std::uint64_t kLastRound = ~std::uint64_t{0};

struct Pace {
  std::int64_t num_iterations = 0;
  std::int64_t num_between_agreements = 1;
};

Pace choose_pace(Communicator& communicator, double warm_s, const MeasureOptions& options) {
  warm_s = std::max(slowest(communicator, {warm_s}).front(), 1e-9);
  Pace pace;
  pace.num_iterations = options.num_iterations;
  if (pace.num_iterations <= 0) {
    const double wanted = std::min(options.time_budget_s / warm_s, 1e9);
    pace.num_iterations = std::clamp(static_cast<std::int64_t>(wanted), options.min_iterations,
                                     options.max_iterations);
  }
  const double between = std::min(kAgreeEveryS / warm_s, 1e9);
  pace.num_between_agreements = std::max<std::int64_t>(1, static_cast<std::int64_t>(between));
  return pace;
}

// One rank's request to stop stops all, at the same iteration.
bool shall_stop(Communicator& communicator, const Interrupt* interrupt) {
  const bool mine = interrupt != nullptr && interrupt->requested();
  const std::vector<std::string> texts = communicator.exchange_texts(mine ? "1" : "");
  return std::any_of(texts.begin(), texts.end(), [](const std::string& t) { return !t.empty(); });
}

double timed_exchange(Communicator& communicator, const Exchange& exchange, const Clock& clock) {
  communicator.barrier();
  const double begin_s = clock.now_s();
  communicator.all_to_all(exchange);
  return clock.now_s() - begin_s;
}

// Every rank's times and faults at rank 0.
void gather(Communicator& communicator, const std::vector<double>& times_s,
            const std::vector<WrongData>& wrong, ExchangeResult& result) {
  const std::vector<std::string> times = communicator.exchange_texts(to_text(times_s));
  const std::vector<std::string> faults = communicator.exchange_texts(to_text(wrong));
  if (communicator.rank() != 0) return;
  for (const std::string& text : times) result.rank_s.push_back(from_text<double>(text));
  for (const std::string& text : faults) {
    for (const WrongData& fault : from_text<WrongData>(text)) result.wrong.push_back(fault);
  }
  for (std::size_t i = 0; i < times_s.size(); ++i) {
    double slowest_s = 0.0;
    for (const std::vector<double>& rank : result.rank_s) {
      slowest_s = std::max(slowest_s, rank.at(i));
    }
    result.iteration_s.push_back(slowest_s);
  }
}

}  // namespace

ExchangeResult measure_exchange(Communicator& communicator, const TrafficMatrix& traffic,
                                const MeasureOptions& options) {
  MOE_CHECK(traffic.num_ranks == communicator.num_ranks());
  MOE_CHECK(options.num_warm_up >= 1);
  const SteadyClock clock;
  ExchangeBuffers buffers(communicator, traffic, options.seed);
  require_agreement(communicator, buffers.exchange());
  buffers.fill(kLastRound);
  double warm_s = 0.0;
  for (std::int64_t i = 0; i < options.num_warm_up; ++i) {
    warm_s = timed_exchange(communicator, buffers.exchange(), clock);
  }
  const Pace pace = choose_pace(communicator, warm_s, options);
  ExchangeResult result;
  result.bytes = traffic.max_sent();
  std::vector<double> times_s;
  times_s.reserve(static_cast<std::size_t>(pace.num_iterations));
  std::vector<WrongData> wrong;
  for (std::int64_t i = 0; i < pace.num_iterations; ++i) {
    const auto round = static_cast<std::uint64_t>(i);
    if (options.check == Check::kEvery) buffers.fill(round);
    times_s.push_back(timed_exchange(communicator, buffers.exchange(), clock));
    if (options.check == Check::kEvery) buffers.check(round, i, wrong);
    const bool is_time = (i + 1) % pace.num_between_agreements == 0 && i + 1 < pace.num_iterations;
    if (is_time && shall_stop(communicator, options.interrupt)) {
      result.is_partial = true;
      break;
    }
  }
  if (options.check == Check::kSize) {
    buffers.fill(kLastRound - 1);
    communicator.barrier();
    communicator.all_to_all(buffers.exchange());
    buffers.check(kLastRound - 1, -1, wrong);
  }
  result.is_verified = options.check != Check::kOff && communicator.moves_data();
  gather(communicator, times_s, wrong, result);
  return result;
}

}  // namespace moe::comm
