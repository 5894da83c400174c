#include "lib/base/thread_pool.hpp"

#include <system_error>

#include <fmt/format.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"

namespace moe {
namespace {

// About 50 microseconds on a 3 GHz core: longer than the serial parts between two regions of a
// layer.
constexpr int kSpins = 4000;

// Tells the core that this is a spin loop, which leaves more of it to its sibling thread.
void relax() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

void wait_while_equal(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (value.load(std::memory_order_acquire) != old) return;
    relax();
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(int num_threads) {
  MOE_CHECK(num_threads >= 1);
  if (num_threads > kMaxThreads) {
    throw Error(ErrorCode::kRuntime,
                fmt::format("expected at most {} threads, found {}", kMaxThreads, num_threads));
  }
  workers_.reserve(static_cast<std::size_t>(num_threads - 1));
  try {
    for (int thread_idx = 1; thread_idx < num_threads; ++thread_idx) {
      workers_.emplace_back([this, thread_idx] { work(thread_idx); });
    }
  } catch (const std::system_error& error) {
    const std::size_t num_started = workers_.size() + 1;
    stop();
    throw Error(ErrorCode::kRuntime,
                fmt::format("the system gave {} of {} threads ({}); ask for fewer", num_started,
                            num_threads, error.what()));
  }
}

ThreadPool::~ThreadPool() {
  stop();
}

void ThreadPool::stop() {
  stop_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::call(int thread_idx) noexcept {
  try {
    task_(context_, thread_idx);
  } catch (...) {
    const std::lock_guard<std::mutex> lock(error_mutex_);
    if (!error_) error_ = std::current_exception();
  }
}

void ThreadPool::run_erased(Task task, void* context) {
  // Still set inside a region: a nested call would wait for itself for ever.
  MOE_CHECK(task_ == nullptr);
  task_ = task;
  context_ = context;
  num_running_.store(static_cast<std::uint32_t>(workers_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  call(0);
  for (std::uint32_t left = num_running_.load(std::memory_order_acquire); left != 0;
       left = num_running_.load(std::memory_order_acquire)) {
    wait_while_equal(num_running_, left);
  }
  task_ = nullptr;
  if (error_) {
    std::exception_ptr error;
    std::swap(error, error_);
    std::rethrow_exception(error);
  }
}

void ThreadPool::work(int thread_idx) {
  std::uint32_t seen = 0;
  for (;;) {
    wait_while_equal(generation_, seen);
    ++seen;
    if (stop_.load(std::memory_order_relaxed)) return;
    call(thread_idx);
    if (num_running_.fetch_sub(1, std::memory_order_acq_rel) == 1) num_running_.notify_all();
  }
}

}  // namespace moe
