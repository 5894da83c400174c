#include <algorithm>
#include <chrono>

#include "lib/client/http_fetch.hpp"
#include "lib/client/server_metrics.hpp"

namespace moe::client {
namespace {

constexpr double kPageTimeout_s = 5.0;
constexpr auto kNap = std::chrono::milliseconds(20);
constexpr std::size_t kMaxSnapshots = 100000;

}  // namespace

MetricsPoller::MetricsPoller(Endpoint endpoint, double interval_s, const Clock& clock,
                             double origin_s)
    : endpoint_(std::move(endpoint)),
      interval_s_(std::max(interval_s, 0.02)),
      clock_(clock),
      origin_s_(origin_s) {}

MetricsPoller::~MetricsPoller() {
  is_stopping_.store(true);
  if (thread_.joinable()) thread_.join();
}

std::optional<ServerSnapshot> MetricsPoller::read_now() {
  FetchOptions options;
  options.timeout_s = kPageTimeout_s;
  const FetchResult page = http_fetch(endpoint_, "/metrics", options);
  if (page.status != 200) {
    num_failed_.fetch_add(1);
    return std::nullopt;
  }
  const double time_s = clock_.now_s() - origin_s_;
  return read_snapshot(parse_metrics_page(page.body), time_s);
}

void MetricsPoller::poll() {
  double next_s = clock_.now_s();
  while (!is_stopping_.load()) {
    if (clock_.now_s() < next_s) {
      std::this_thread::sleep_for(kNap);
      continue;
    }
    if (std::optional<ServerSnapshot> shot = read_now()) {
      if (snapshots_.size() < kMaxSnapshots) snapshots_.push_back(std::move(*shot));
    }
    // On a fixed grid, but never two at once after a slow page.
    next_s = std::max(next_s + interval_s_, clock_.now_s());
  }
}

void MetricsPoller::start() {
  is_stopping_.store(false);
  thread_ = std::thread([this] { poll(); });
}

std::vector<ServerSnapshot> MetricsPoller::stop() {
  is_stopping_.store(true);
  if (thread_.joinable()) thread_.join();
  return std::move(snapshots_);
}

}  // namespace moe::client
