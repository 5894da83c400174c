#include "lib/client/load.hpp"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <memory>
#include <thread>

#include <fmt/format.h>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/client/load_loop.hpp"
#include "lib/client/receive_time.hpp"
#include "lib/stats/distribution.hpp"
#include "lib/stats/stopping.hpp"

namespace moe::client {
namespace {

constexpr double kWatchInterval_s = 0.02;
constexpr double kSaturationInterval_s = 1.0;
constexpr double kSaturationMin_s = 10.0;
constexpr std::int64_t kGoneRefusals = 5;
constexpr double kStartDelay_s = 0.02;

void sleep_s(double seconds) {
  const timespec pause{0, static_cast<long>(seconds * 1e9)};
  (void)nanosleep(&pause, nullptr);
}

double wall_clock_s() {
  timespec time{};
  (void)clock_gettime(CLOCK_REALTIME, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::vector<double> values_of(const std::vector<TimedValue>& samples) {
  std::vector<double> values;
  values.reserve(samples.size());
  for (const TimedValue& sample : samples) values.push_back(sample.value);
  return values;
}

// The thread that looks after the loops.
class Watch {
 public:
  Watch(const LoadPlan& plan, const LoadTools& tools, SharedLoad& shared, LoadResult& result)
      : plan_(plan), tools_(tools), shared_(shared), result_(result) {}

  void run() {
    const bool is_counted = plan_.is_open() || plan_.num_conversations > 0;
    const auto total = plan_.is_open() ? static_cast<std::int64_t>(plan_.arrivals_s.size())
                                       : plan_.num_conversations;
    tools_.progress->begin(plan_.phase == Phase::kWarmup ? "warm-up" : "requests",
                           is_counted ? total : 0, "requests");
    while (shared_.num_finished.load() < plan_.num_loops) {
      sleep_s(kWatchInterval_s);
      const double now_s = monotonic_s() - shared_.start_s.load();
      result_.in_flight.push_back({now_s, shared_.in_flight.load()});
      tools_.progress->update(shared_.num_ended.load());
      if (!is_stopping_) look(now_s);
    }
    tools_.progress->end();
  }

 private:
  void stop(LoadEnd end, double now_s, double drain_s, const std::string& detail) {
    is_stopping_ = true;
    result_.end = end;
    result_.end_detail = detail;
    shared_.stop_s = std::min(shared_.stop_s.load(), now_s);
    shared_.give_up_s = now_s + drain_s;
  }

  void look(double now_s) {
    if (tools_.interrupt != nullptr && tools_.interrupt->requested()) {
      stop(LoadEnd::kInterrupted, now_s, 0.0, "interrupted");
    } else if (plan_.stops_when_server_is_gone &&
               shared_.refused_in_a_row.load() >= kGoneRefusals) {
      stop(LoadEnd::kServerGone, now_s, 2.0, "the last connections were all refused");
    } else if (plan_.max_duration_s > 0.0 && now_s >= plan_.max_duration_s) {
      stop(LoadEnd::kTime, now_s, plan_.drain_limit_s, "the time was up");
    } else if (now_s >= next_judgement_s_) {
      next_judgement_s_ = now_s + kSaturationInterval_s;
      judge(now_s);
    } else if (plan_.is_open() && now_s > plan_.arrivals_s.back() + plan_.drain_limit_s) {
      stop(LoadEnd::kCount, now_s, 0.0, "the drain took longer than its limit");
    }
  }

  void judge(double now_s) {
    if (!plan_.until_ci && !plan_.stops_at_saturation) return;
    std::vector<TimedValue> ttft;
    {
      const std::lock_guard lock(shared_.mutex);
      ttft = shared_.ttft;
    }
    if (plan_.stops_at_saturation && plan_.is_open() && now_s >= kSaturationMin_s &&
        is_saturated(result_.in_flight, ttft, now_s)) {
      stop(LoadEnd::kSaturated, now_s, plan_.drain_limit_s,
           "requests in flight and time to first token only grew");
      return;
    }
    if (!plan_.until_ci || static_cast<std::int64_t>(ttft.size()) < plan_.min_samples) return;
    const std::optional<double> ratio = stats::median_half_width_ratio(values_of(ttft));
    if (ratio && *ratio <= *plan_.until_ci) {
      stop(LoadEnd::kConverged, now_s, plan_.drain_limit_s,
           "the interval of the median is as tight as asked");
    }
  }

  const LoadPlan& plan_;
  const LoadTools& tools_;
  SharedLoad& shared_;
  LoadResult& result_;
  bool is_stopping_ = false;
  double next_judgement_s_ = kSaturationInterval_s;
};

void merge(std::vector<std::unique_ptr<LoadLoop>>& loops, const LoadPlan& plan,
           const SharedLoad& shared, LoadResult& result) {
  double last_sent_s = 0.0;
  for (const std::unique_ptr<LoadLoop>& loop : loops) {
    std::move(loop->records.begin(), loop->records.end(), std::back_inserter(result.records));
    SelfMeasure& self = result.self;
    self.cpu_s += loop->self.cpu_s;
    self.num_reads += loop->self.num_reads;
    self.num_bytes += loop->self.num_bytes;
    self.longest_pass_s = std::max(self.longest_pass_s, loop->self.longest_pass_s);
    self.read_window_s = std::max(self.read_window_s, loop->self.read_window_s);
    self.has_kernel_times = self.has_kernel_times || loop->self.has_kernel_times;
    self.has_short_slice = self.has_short_slice || loop->self.has_short_slice;
    self.send_lag_s.insert(self.send_lag_s.end(), loop->self.send_lag_s.begin(),
                           loop->self.send_lag_s.end());
    self.receive_delay_s.insert(self.receive_delay_s.end(), loop->self.receive_delay_s.begin(),
                                loop->self.receive_delay_s.end());
  }
  std::sort(result.records.begin(), result.records.end(),
            [](const RequestRecord& a, const RequestRecord& b) { return a.index < b.index; });
  for (const RequestRecord& record : result.records) {
    result.measured_end_s = std::max(result.measured_end_s, record.end_s.value_or(0.0));
    last_sent_s = std::max(last_sent_s, record.sent_s.value_or(0.0));
  }
  result.self.num_loops = plan.num_loops;
  result.drain_s = std::max(0.0, result.measured_end_s - last_sent_s);
  result.peak_in_flight = shared.peak_in_flight.load();
  result.num_planned = static_cast<std::int64_t>(result.records.size());
  if (plan.is_open()) {
    const auto due =
        std::upper_bound(plan.arrivals_s.begin(), plan.arrivals_s.end(), shared.stop_s.load());
    const auto num_due = static_cast<std::int64_t>(due - plan.arrivals_s.begin());
    std::int64_t num_first_turns = 0;
    for (const RequestRecord& record : result.records) num_first_turns += record.turn == 0 ? 1 : 0;
    result.num_dropped = std::max<std::int64_t>(0, num_due - num_first_turns);
    result.num_planned += result.num_dropped;
  }
}

}  // namespace

LoadResult run_load(const Endpoint& endpoint, const LoadPlan& plan, const LoadTools& tools) {
  MOE_CHECK(tools.source != nullptr && tools.progress != nullptr);
  MOE_CHECK(plan.num_loops >= 1 && (plan.is_open() || plan.concurrency >= 1));
  LoadResult result;
  SharedLoad shared;
  shared.run_name = fmt::format("moe-bench-{:x}", static_cast<std::uint64_t>(wall_clock_s() * 1e6));
  std::vector<std::unique_ptr<LoadLoop>> loops;
  loops.reserve(static_cast<std::size_t>(plan.num_loops));
  for (std::int32_t i = 0; i < plan.num_loops; ++i) {
    loops.push_back(std::make_unique<LoadLoop>(endpoint, plan, tools, i, shared));
  }
  std::vector<std::thread> threads;
  threads.reserve(loops.size());
  for (const std::unique_ptr<LoadLoop>& loop : loops) threads.emplace_back([&] { loop->run(); });
  while (shared.num_ready.load() + shared.num_finished.load() < plan.num_loops) sleep_s(0.001);
  result.started_unix_s = wall_clock_s() + kStartDelay_s;
  const double start_s = monotonic_s() + kStartDelay_s;
  result.started_monotonic_s = start_s;
  shared.start_s = start_s;
  Watch(plan, tools, shared, result).run();
  for (std::thread& thread : threads) thread.join();
  if (!shared.failure.empty()) throw Error(ErrorCode::kRuntime, shared.failure);
  merge(loops, plan, shared, result);
  result.self.wall_s = result.measured_end_s;
  return result;
}

bool is_saturated(const std::vector<InFlightSample>& in_flight, const std::vector<TimedValue>& ttft,
                  double now_s) {
  // Quarters of the run: the second against the last, in requests in flight and in TTFT.
  const auto mean_between = [&](double from, double to) {
    double sum = 0.0;
    double count = 0.0;
    for (const InFlightSample& sample : in_flight) {
      if (sample.time_s < from || sample.time_s >= to) continue;
      sum += static_cast<double>(sample.in_flight);
      count += 1.0;
    }
    return count > 0.0 ? sum / count : 0.0;
  };
  const auto median_between = [&](double from, double to) {
    std::vector<double> values;
    for (const TimedValue& sample : ttft) {
      if (sample.time_s >= from && sample.time_s < to) values.push_back(sample.value);
    }
    return values.size() < 5 ? 0.0 : stats::median(values);
  };
  const double quarter_s = now_s / 4.0;
  const double flight_before = mean_between(quarter_s, 2.0 * quarter_s);
  const double flight_third = mean_between(2.0 * quarter_s, 3.0 * quarter_s);
  const double flight_now = mean_between(3.0 * quarter_s, now_s);
  if (flight_now < 8.0 || flight_now < 1.5 * flight_before || flight_now < 1.15 * flight_third) {
    return false;
  }
  const double ttft_before = median_between(quarter_s, 2.0 * quarter_s);
  const double ttft_now = median_between(3.0 * quarter_s, now_s);
  return ttft_before > 0.0 && ttft_now > 1.5 * ttft_before;
}

}  // namespace moe::client
