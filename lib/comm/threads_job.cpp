// Ranks as threads of one process. A receiver copies straight from the sender's buffer: one copy,
// no queue. What a rank posts and what has been taken are epochs that only rise.

#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include <fmt/format.h>

#include "lib/base/check.hpp"
#include "lib/comm/backend.hpp"
#include "lib/comm/patience.hpp"
#include "lib/comm/place.hpp"

namespace moe::comm {
namespace {

constexpr int kMaxThreadRanks = 1024;

// What a rank shows the others.
struct alignas(64) Seat {
  std::atomic<std::uint64_t> posted{0};   // exchanges begun
  std::atomic<std::uint64_t> arrived{0};  // barriers reached
  std::atomic<int> num_readers{0};        // ranks that copy from this one's buffer right now
  Exchange exchange;                      // of the epoch that was posted last
  std::string text;
};

struct Shared {
  Shared(int ranks, const BackendOptions& backend_options, int usable_cpus)
      : num_ranks(ranks),
        options(backend_options),
        num_spins(ranks <= usable_cpus ? kOwnCoreSpins : 0),
        seats(std::make_unique<Seat[]>(static_cast<std::size_t>(ranks))),
        taken(std::make_unique<std::atomic<std::uint64_t>[]>(static_cast<std::size_t>(ranks) *
                                                             static_cast<std::size_t>(ranks))) {}

  [[nodiscard]] std::atomic<std::uint64_t>& taken_by(int sender, int receiver) {
    return taken[static_cast<std::size_t>(sender) * static_cast<std::size_t>(num_ranks) +
                 static_cast<std::size_t>(receiver)];
  }
  [[nodiscard]] Seat& seat(int rank) { return seats[static_cast<std::size_t>(rank)]; }

  int num_ranks;
  BackendOptions options;
  int num_spins;
  std::unique_ptr<Seat[]> seats;
  std::unique_ptr<std::atomic<std::uint64_t>[]> taken;  // epochs, [sender, receiver]
  std::atomic<bool> has_failed{false};                  // a rank gave up: nobody waits any more
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(Shared& shared, int rank, RankPlace place)
      : shared_(shared),
        rank_(rank),
        place_(std::move(place)),
        is_done_(static_cast<std::size_t>(shared.num_ranks)) {}

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int num_ranks() const override { return shared_.num_ranks; }
  [[nodiscard]] const RankPlace& place() const override { return place_; }

  void begin_all_to_all(const Exchange& exchange) override {
    Seat& seat = shared_.seat(rank_);
    seat.exchange = exchange;
    std::fill(is_done_.begin(), is_done_.end(), false);
    num_left_ = shared_.num_ranks;
    ++epoch_;
    seat.posted.store(epoch_, std::memory_order_release);
  }

  bool progress_all_to_all() override {
    for (int i = 0; num_left_ > 0 && i < shared_.num_ranks; ++i) {
      const int sender = (rank_ + i) % shared_.num_ranks;
      if (is_done_[static_cast<std::size_t>(sender)]) continue;
      if (shared_.seat(sender).posted.load(std::memory_order_acquire) < epoch_) continue;
      take_from(sender);
    }
    if (num_left_ > 0) return false;
    for (int receiver = 0; receiver < shared_.num_ranks; ++receiver) {
      if (!has_taken(receiver)) return false;
    }
    return true;
  }

  void end_all_to_all() override {
    Patience patience = make_patience();
    while (!progress_all_to_all()) {
      if (shared_.has_failed.load() || patience.is_over()) give_up_exchange(patience);
    }
  }

  void barrier() override {
    ++barrier_epoch_;
    shared_.seat(rank_).arrived.store(barrier_epoch_, std::memory_order_release);
    Patience patience = make_patience();
    while (!have_all_arrived()) {
      if (shared_.has_failed.load() || patience.is_over()) give_up_barrier(patience);
    }
  }

  std::vector<std::string> exchange_texts(const std::string& mine) override {
    shared_.seat(rank_).text = mine;
    barrier();
    std::vector<std::string> texts;
    for (int r = 0; r < shared_.num_ranks; ++r) texts.push_back(shared_.seat(r).text);
    barrier();
    return texts;
  }

 private:
  [[nodiscard]] Patience make_patience() const {
    return {shared_.options.time_limit_s, shared_.options.interrupt, shared_.num_spins};
  }

  [[nodiscard]] bool has_taken(int receiver) const {
    return shared_.taken_by(rank_, receiver).load(std::memory_order_acquire) >= epoch_;
  }

  [[nodiscard]] bool have_all_arrived() const {
    for (int r = 0; r < shared_.num_ranks; ++r) {
      if (shared_.seat(r).arrived.load(std::memory_order_acquire) < barrier_epoch_) return false;
    }
    return true;
  }

  void take_from(int sender) {
    Seat& seat = shared_.seat(sender);
    // A sender that gives up frees its buffer once nobody reads: first the count, then the look.
    seat.num_readers.fetch_add(1);
    if (shared_.has_failed.load()) {
      seat.num_readers.fetch_sub(1);
      return;
    }
    const Exchange& theirs = seat.exchange;
    const Exchange& mine = shared_.seat(rank_).exchange;
    const auto from = static_cast<std::size_t>(sender);
    const auto to = static_cast<std::size_t>(rank_);
    const std::int64_t bytes = theirs.send_bytes[to];
    const bool agrees = bytes == mine.recv_bytes[from];
    if (agrees && bytes > 0) {
      std::memcpy(mine.recv + mine.recv_offsets[from], theirs.send + theirs.send_offsets[to],
                  static_cast<std::size_t>(bytes));
    }
    seat.num_readers.fetch_sub(1);
    if (!agrees) {
      leave();
      throw Error(ErrorCode::kRuntime,
                  fmt::format("rank {} sends {} bytes to rank {}, which expects {}", sender, bytes,
                              rank_, mine.recv_bytes[from]));
    }
    shared_.taken_by(sender, rank_).store(epoch_, std::memory_order_release);
    is_done_[from] = true;
    --num_left_;
  }

  // Nobody waits for this rank any more, and nobody reads from its buffer.
  void leave() {
    shared_.has_failed.store(true);
    while (shared_.seat(rank_).num_readers.load() > 0) std::this_thread::yield();
  }

  [[noreturn]] void give_up(StuckReport report, const Patience& patience) {
    report.rank = rank_;
    report.waited_s = patience.waited_s();
    report.was_interrupted = patience.was_interrupted();
    leave();
    throw StuckError(fmt::format("rank {}: {} did not end", rank_, report.operation), report);
  }

  [[noreturn]] void give_up_exchange(const Patience& patience) {
    StuckReport report;
    std::int64_t bytes = 0;
    for (const std::int64_t part : shared_.seat(rank_).exchange.send_bytes) bytes += part;
    report.operation = fmt::format("all-to-all of {} bytes", bytes);
    for (int r = 0; r < shared_.num_ranks; ++r) {
      if (r == rank_) continue;
      if (!is_done_[static_cast<std::size_t>(r)]) report.pairs.push_back({r, rank_});
      if (!has_taken(r)) report.pairs.push_back({rank_, r});
    }
    give_up(report, patience);
  }

  [[noreturn]] void give_up_barrier(const Patience& patience) {
    StuckReport report;
    report.operation = "barrier";
    for (int r = 0; r < shared_.num_ranks; ++r) {
      if (shared_.seat(r).arrived.load() < barrier_epoch_) report.pairs.push_back({r, rank_});
    }
    give_up(report, patience);
  }

  Shared& shared_;
  int rank_;
  RankPlace place_;
  std::vector<bool> is_done_;  // by sender: its part has been copied
  int num_left_ = 0;
  std::uint64_t epoch_ = 0;
  std::uint64_t barrier_epoch_ = 0;
};

class ThreadsJob final : public Job {
 public:
  ThreadsJob(int num_ranks, const BackendOptions& options)
      : num_ranks_(num_ranks), options_(options), place_(find_place()) {}

  [[nodiscard]] int num_ranks() const override { return num_ranks_; }
  [[nodiscard]] bool has_rank_0() const override { return true; }
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> facts() const override {
    return {{"transport", "memory copies between threads of one process"}};
  }
  [[nodiscard]] int agree_exit_code(int mine) noexcept override { return mine; }

  void run(const std::function<void(Communicator&)>& body) override {
    Shared shared(num_ranks_, options_, static_cast<int>(place_.num_cpus));
    Outcome outcome;
    std::vector<std::thread> threads;
    threads.reserve(static_cast<std::size_t>(num_ranks_));
    try {
      for (int rank = 0; rank < num_ranks_; ++rank) {
        threads.emplace_back([&, rank] { run_rank(body, shared, rank, outcome); });
      }
    } catch (const std::system_error& error) {
      shared.has_failed.store(true);
      const std::size_t num_started = threads.size();
      for (std::thread& thread : threads) thread.join();
      throw Error(ErrorCode::kRuntime,
                  fmt::format("the system gave {} of {} threads ({}); ask for fewer --ranks",
                              num_started, num_ranks_, error.what()));
    }
    for (std::thread& thread : threads) thread.join();
    if (outcome.cause) std::rethrow_exception(outcome.cause);
    if (!outcome.reports.empty()) throw merge_stuck(outcome.reports, {});
  }

 private:
  struct Outcome {
    std::mutex mutex;
    std::exception_ptr cause;  // the first that is no StuckError
    std::vector<StuckReport> reports;
  };

  void run_rank(const std::function<void(Communicator&)>& body, Shared& shared, int rank,
                Outcome& outcome) const {
    try {
      ThreadCommunicator communicator(shared, rank, place_);
      body(communicator);
      return;
    } catch (const StuckError& error) {
      const std::lock_guard lock(outcome.mutex);
      outcome.reports.insert(outcome.reports.end(), error.reports().begin(), error.reports().end());
    } catch (...) {
      const std::lock_guard lock(outcome.mutex);
      if (!outcome.cause) outcome.cause = std::current_exception();
    }
    shared.has_failed.store(true);
  }

  int num_ranks_;
  BackendOptions options_;
  RankPlace place_;
};

}  // namespace

std::unique_ptr<Job> open_threads_job(const BackendOptions& options) {
  const int num_ranks = options.num_ranks > 0
                            ? options.num_ranks
                            : static_cast<int>(std::max<std::int64_t>(2, find_place().num_cpus));
  if (num_ranks > kMaxThreadRanks) {
    throw Error(ErrorCode::kUsage, fmt::format("--ranks: expected at most {} threads, found {}",
                                               kMaxThreadRanks, num_ranks));
  }
  return std::make_unique<ThreadsJob>(num_ranks, options);
}

}  // namespace moe::comm
