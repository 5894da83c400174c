#pragma once

// A fixed set of workers for short parallel regions. The calling thread works too. Workers spin for
// a moment between regions, so a barrier costs about a cache-line round trip, then sleep.

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace moe {

class ThreadPool {
 public:
  static constexpr int kMaxThreads = 4096;

  // num_threads >= 1, the caller included. Throws Error(kRuntime) above kMaxThreads and when the
  // system refuses to make so many threads.
  explicit ThreadPool(int num_threads);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  [[nodiscard]] int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(thread_idx) once on every thread, thread_idx in [0, num_threads); returns when all
  // are done. Rethrows the first exception. Not reentrant (checked); one caller at a time. Does not
  // allocate.
  template <typename Body>
  void run(Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    run_erased([](void* context, int thread_idx) { (*static_cast<Plain*>(context))(thread_idx); },
               const_cast<void*>(static_cast<const void*>(&body)));
  }

  // Calls body(index, thread_idx) for every index in [0, count), handed out one at a time from one
  // counter.
  template <typename Body>
  void for_each(std::int64_t count, Body&& body) {
    if (count <= 0) return;
    if (count == 1 || num_threads() == 1) {
      for (std::int64_t index = 0; index < count; ++index) body(index, 0);
      return;
    }
    std::atomic<std::int64_t> next{0};
    run([&](int thread_idx) {
      for (;;) {
        const std::int64_t index = next.fetch_add(1, std::memory_order_relaxed);
        if (index >= count) return;
        body(index, thread_idx);
      }
    });
  }

 private:
  using Task = void (*)(void* context, int thread_idx);

  void run_erased(Task task, void* context);
  void stop();
  void work(int thread_idx);
  void call(int thread_idx) noexcept;

  std::vector<std::thread> workers_;
  Task task_ = nullptr;
  void* context_ = nullptr;
  alignas(64) std::atomic<std::uint32_t> generation_{0};
  alignas(64) std::atomic<std::uint32_t> num_running_{0};
  std::atomic<bool> stop_{false};
  std::mutex error_mutex_;
  std::exception_ptr error_;
};

}  // namespace moe
