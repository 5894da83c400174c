#include "lib/comm/pipeline.hpp"

#include <algorithm>
#include <deque>
#include <memory>

#include "lib/base/clock.hpp"
#include "lib/comm/exchange_buffers.hpp"
#include "lib/comm/figures.hpp"
#include "lib/stats/distribution.hpp"

namespace moe::comm {
namespace {

constexpr std::size_t kSliceValues = 2048;
constexpr int kSlicePasses = 8;

TrafficMatrix chunk_of(const TrafficMatrix& whole, std::int64_t num_chunks) {
  TrafficMatrix chunk = whole;
  for (std::int64_t& bytes : chunk.bytes) {
    bytes = bytes / num_chunks / 16 * 16;
  }
  return chunk;
}

// Exchanges that wait their turn: one is in flight, the same order at every rank.
class Queue {
 public:
  explicit Queue(Communicator& communicator) : communicator_(communicator) {}

  void push(const Exchange& exchange) {
    waiting_.push_back(&exchange);
    ++num_pushed_;
    begin_next();
  }
  void progress() {
    if (is_in_flight_ && communicator_.progress_all_to_all()) finish_one();
  }
  // Until so many of all that were pushed have ended.
  void wait_for(std::int64_t count) {
    while (num_done_ < count) finish_one();
  }
  void drain() { wait_for(num_pushed_); }
  [[nodiscard]] std::int64_t num_pushed() const { return num_pushed_; }

 private:
  void begin_next() {
    if (is_in_flight_ || waiting_.empty()) return;
    communicator_.begin_all_to_all(*waiting_.front());
    waiting_.pop_front();
    is_in_flight_ = true;
  }
  void finish_one() {
    communicator_.end_all_to_all();
    is_in_flight_ = false;
    ++num_done_;
    begin_next();
  }

  Communicator& communicator_;
  std::deque<const Exchange*> waiting_;
  bool is_in_flight_ = false;
  std::int64_t num_pushed_ = 0;
  std::int64_t num_done_ = 0;
};

// Dispatch and combine of one chunk: every stage with buffers of its own.
struct Chunk {
  std::vector<std::unique_ptr<ExchangeBuffers>> dispatch;
  std::vector<std::unique_ptr<ExchangeBuffers>> combine;
};

// Chunk c computes while chunk c+1 is dispatched and chunk c-1 is combined.
double run_once(Communicator& communicator, const Chunk& chunk, std::int64_t num_chunks,
                ComputeLoad* compute) {
  const SteadyClock clock;
  Queue queue(communicator);
  const auto push_all = [&](const std::vector<std::unique_ptr<ExchangeBuffers>>& stages) {
    for (const auto& stage : stages) queue.push(stage->exchange());
    return queue.num_pushed();
  };
  communicator.barrier();
  const double begin_s = clock.now_s();
  std::int64_t dispatched = push_all(chunk.dispatch);
  for (std::int64_t c = 0; c < num_chunks; ++c) {
    queue.wait_for(dispatched);
    if (c + 1 < num_chunks) dispatched = push_all(chunk.dispatch);
    if (c > 0) push_all(chunk.combine);
    if (compute != nullptr) compute->run(num_chunks, [&] { queue.progress(); });
  }
  push_all(chunk.combine);
  queue.drain();
  return clock.now_s() - begin_s;
}

}  // namespace

ComputeLoad::ComputeLoad(double duration_s) : values_(kSliceValues, 1.0F) {
  const SteadyClock clock;
  // The fastest of several: other work on the core only makes it slower.
  double slice_s = 1.0;
  for (int i = 0; i < 50; ++i) {
    const double begin_s = clock.now_s();
    run_slice();
    slice_s = std::min(slice_s, clock.now_s() - begin_s);
  }
  const double wanted = duration_s / std::max(slice_s, 1e-9);
  num_slices_ = std::max<std::int64_t>(1, static_cast<std::int64_t>(wanted));
}

void ComputeLoad::run_slice() {
  for (int pass = 0; pass < kSlicePasses; ++pass) {
    for (float& value : values_) value = value * 0.999F + 0.001F;
  }
}

std::vector<PipelineResult> measure_pipeline(Communicator& communicator, const MoeStages& stages,
                                             const PipelineOptions& options) {
  ComputeLoad compute(options.compute_s);
  std::vector<PipelineResult> results;
  for (const std::int64_t num_chunks : options.chunk_counts) {
    const bool stops = options.interrupt != nullptr && options.interrupt->requested();
    if (!communicator.broadcast_text(stops ? "stop" : "").empty()) break;
    Chunk chunk;
    for (const auto& [from, to] : {std::pair(&stages.dispatch, &chunk.dispatch),
                                   std::pair(&stages.combine, &chunk.combine)}) {
      for (const TrafficMatrix& stage : *from) {
        to->push_back(std::make_unique<ExchangeBuffers>(communicator, chunk_of(stage, num_chunks),
                                                        options.seed));
        to->back()->fill(0);
      }
    }
    std::vector<double> total_s;
    std::vector<double> comm_s;
    std::vector<double> compute_s;
    const SteadyClock clock;
    // Interleaved, so that a disturbance meets all three.
    for (std::int64_t i = 0; i <= options.num_repeats; ++i) {
      const double together = run_once(communicator, chunk, num_chunks, &compute);
      const double alone = run_once(communicator, chunk, num_chunks, nullptr);
      communicator.barrier();
      const double begin_s = clock.now_s();
      for (std::int64_t c = 0; c < num_chunks; ++c) compute.run(num_chunks, [] {});
      const double work = clock.now_s() - begin_s;
      if (i == 0) continue;
      total_s.push_back(together);
      comm_s.push_back(alone);
      compute_s.push_back(work);
    }
    PipelineResult result;
    result.num_chunks = num_chunks;
    result.total_s = stats::median(slowest(communicator, total_s));
    result.comm_s = stats::median(slowest(communicator, comm_s));
    result.compute_s = stats::median(slowest(communicator, compute_s));
    if (result.total_s > 0.0) {
      result.idle_ratio = std::clamp(1.0 - result.compute_s / result.total_s, 0.0, 1.0);
    }
    if (communicator.rank() == 0) results.push_back(result);
  }
  return results;
}

}  // namespace moe::comm
