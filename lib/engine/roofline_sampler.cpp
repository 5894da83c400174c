#include "lib/engine/roofline_sampler.hpp"

#include <algorithm>
#include <atomic>

#include "lib/base/int_math.hpp"
#include "lib/engine/read_loop.hpp"

namespace moe::engine {
namespace {

constexpr std::int64_t kWordBytes = 8;
constexpr std::int64_t kWordsPerReadStep = 32;  // of sum_words()
constexpr std::int64_t kSliceWords = (std::int64_t{16} << 20) / kWordBytes;
constexpr double kMultiplyS = 0.5e-3;
// A thread that is taken from its processor for a few milliseconds says nothing of the machine's
// limit: the best of a few tries counts.
constexpr int kTries = 3;
constexpr std::int32_t kKernelTokens = 16;

}  // namespace

RooflineSampler::RooflineSampler(ThreadPool& pool, std::span<const std::byte> weights,
                                 const PeakCase& of, CoreWatch& watch, const Clock& clock)
    : pool_(pool),
      watch_(watch),
      clock_(clock),
      instruction_(multiply_instruction(of.isa, of.activations)),
      product_(of, pool.num_threads()),
      words_(reinterpret_cast<const std::uint64_t*>(weights.data())) {
  const std::int64_t words = static_cast<std::int64_t>(weights.size()) / kWordBytes;
  const std::int64_t share = words / pool.num_threads() / kWordsPerReadStep * kWordsPerReadStep;
  slice_words_ = std::min(share, kSliceWords);
  if (slice_words_ > 0) {
    num_slices_ = words / slice_words_;
    num_passes_ = div_ceil(kSliceWords / 4, slice_words_);
  }
  // The first call also wakes the vector units.
  multiply(1);
  const double begin_s = clock_.now_s();
  multiply(1);
  const double call_s = clock_.now_s() - begin_s;
  if (call_s > 0.0) {
    num_calls_ = std::clamp<std::int64_t>(static_cast<std::int64_t>(kMultiplyS / call_s), 1, 1000);
  }
}

void RooflineSampler::read_slice() {
  std::atomic<std::uint64_t> sink{0};
  pool_.run([&](int thread_idx) {
    const std::int64_t slice = (next_slice_ + thread_idx) % num_slices_;
    std::uint64_t sum = 0;
    for (std::int64_t pass = 0; pass < num_passes_; ++pass) {
      sum += sum_words(words_ + slice * slice_words_, slice_words_);
    }
    sink.fetch_add(sum, std::memory_order_relaxed);
  });
  next_slice_ = (next_slice_ + pool_.num_threads()) % num_slices_;
}

void RooflineSampler::multiply(std::int64_t num_calls) {
  pool_.run([&](int thread_idx) {
    for (std::int64_t call = 0; call < num_calls; ++call) {
      if (instruction_ != nullptr) {
        instruction_->call();
      } else {
        product_.run(thread_idx, kKernelTokens);
      }
    }
  });
}

double RooflineSampler::ops_per_call() const {
  return instruction_ != nullptr ? instruction_->ops_per_call : ProductLoop::flops(kKernelTokens);
}

const char* RooflineSampler::peak_name() const {
  return instruction_ != nullptr ? instruction_->name : "kernel";
}

template <typename Body>
double RooflineSampler::shortest_s(Body&& body) {
  double shortest = 0.0;
  for (int i = 0; i < kTries; ++i) {
    const double begin_s = clock_.now_s();
    body();
    const double duration_s = clock_.now_s() - begin_s;
    if (duration_s > 0.0 && (shortest == 0.0 || duration_s < shortest)) shortest = duration_s;
  }
  return shortest;
}

RooflineSample RooflineSampler::sample() {
  RooflineSample sample;
  watch_.probe(pool_, sample.probes[0]);
  const double threads = pool_.num_threads();
  if (slice_words_ > 0) {
    const double read_s = shortest_s([this] { read_slice(); });
    const auto bytes = static_cast<double>(slice_words_ * kWordBytes * num_passes_);
    if (read_s > 0.0) sample.read_bytes_per_s = bytes * threads / read_s;
  }
  watch_.probe(pool_, sample.probes[1]);
  const double multiply_s = shortest_s([this] { multiply(num_calls_); });
  const double operations = ops_per_call() * static_cast<double>(num_calls_) * threads;
  if (multiply_s > 0.0) sample.ops_per_s = operations / multiply_s;
  watch_.probe(pool_, sample.probes[2]);
  return sample;
}

}  // namespace moe::engine
