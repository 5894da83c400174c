// Ranks as MPI processes. Everything is sent and received without blocking and looked after in a
// loop of ours, so that a rank that is lost costs the time limit and not the night. Messages above
// 1 GiB go in pieces: MPI counts are int.

#include <algorithm>
#include <cstring>
#include <list>

#include <fmt/format.h>
#include <mpi.h>

#include "lib/base/check.hpp"
#include "lib/comm/backend.hpp"
#include "lib/comm/mpi_session.hpp"
#include "lib/comm/place.hpp"

namespace moe::comm {
namespace {

constexpr std::int64_t kPieceBytes = std::int64_t{1} << 30;
constexpr int kDataTag = 1;

class MpiCommunicator final : public Communicator {
 public:
  explicit MpiCommunicator(MpiSession& session) : session_(session), place_(find_place()) {}
  // Requests that never ended may still write: their memory must outlive them.
  ~MpiCommunicator() override {
    if (is_in_flight_) session_.keep_forever(std::move(buffers_));
  }

  [[nodiscard]] int rank() const override { return session_.rank(); }
  [[nodiscard]] int num_ranks() const override { return session_.num_ranks(); }
  [[nodiscard]] const RankPlace& place() const override { return place_; }

  [[nodiscard]] Buffer allocate(std::int64_t size_bytes) override {
    // What only this list still holds is free to go, unless a transfer may use it.
    if (!is_in_flight_) {
      buffers_.remove_if([](const Buffer& buffer) { return buffer.owner.use_count() <= 1; });
    }
    Buffer buffer = Communicator::allocate(size_bytes);
    buffers_.push_back(buffer);
    return buffer;
  }

  void begin_all_to_all(const Exchange& exchange) override {
    MOE_CHECK(!is_in_flight_);
    is_in_flight_ = true;
    requests_.clear();
    pairs_.clear();
    bytes_ = 0;
    // Receives first: what arrives finds its place. Peers in the order of their distance, so that
    // not all ranks begin with the same one.
    for (int i = 1; i < num_ranks(); ++i)
      receive(exchange, (rank() + num_ranks() - i) % num_ranks());
    for (int i = 1; i < num_ranks(); ++i) send(exchange, (rank() + i) % num_ranks());
    const auto self = static_cast<std::size_t>(rank());
    const std::int64_t own = exchange.send_bytes[self];
    MOE_CHECK(own == exchange.recv_bytes[self]);
    if (own > 0) {
      std::memcpy(exchange.recv + exchange.recv_offsets[self],
                  exchange.send + exchange.send_offsets[self], static_cast<std::size_t>(own));
    }
    bytes_ += own;
  }

  bool progress_all_to_all() override {
    if (!is_in_flight_) return true;
    int is_done = 0;
    session_.require(session_.look([&] {
      return MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &is_done,
                         MPI_STATUSES_IGNORE);
    }),
                     "MPI_Testall");
    if (is_done != 0) is_in_flight_ = false;
    return is_done != 0;
  }

  void end_all_to_all() override {
    Patience patience = session_.make_patience();
    while (!progress_all_to_all()) {
      if (!session_.is_over(patience)) continue;
      session_.give_up(fmt::format("all-to-all of {} bytes", bytes_), patience, pending_pairs());
    }
  }

  void all_gather(const std::byte* send, std::byte* recv, std::int64_t size_bytes) override {
    if (size_bytes > kPieceBytes) {
      Communicator::all_gather(send, recv, size_bytes);
      return;
    }
    const int count = static_cast<int>(size_bytes);
    MPI_Request request = MPI_REQUEST_NULL;
    session_.require(MPI_Iallgather(send, count, MPI_BYTE, recv, count, MPI_BYTE,
                                    session_.data_comm(), &request),
                     "MPI_Iallgather");
    wait_collective(request, fmt::format("all-gather of {} bytes", size_bytes));
  }

  void reduce_scatter_sum(const float* send, float* recv, std::int64_t count) override {
    if (count > kPieceBytes) {
      Communicator::reduce_scatter_sum(send, recv, count);
      return;
    }
    MPI_Request request = MPI_REQUEST_NULL;
    session_.require(MPI_Ireduce_scatter_block(send, recv, static_cast<int>(count), MPI_FLOAT,
                                               MPI_SUM, session_.data_comm(), &request),
                     "MPI_Ireduce_scatter_block");
    wait_collective(request, fmt::format("reduce-scatter of {} floats", count));
  }

  void barrier() override {
    MPI_Request request = MPI_REQUEST_NULL;
    session_.require(MPI_Ibarrier(session_.data_comm(), &request), "MPI_Ibarrier");
    wait_collective(request, "barrier");
  }

  [[nodiscard]] std::vector<std::string> exchange_texts(const std::string& mine) override {
    return session_.exchange_texts(mine);
  }

 private:
  void receive(const Exchange& exchange, int peer) {
    const auto p = static_cast<std::size_t>(peer);
    std::byte* data = exchange.recv + exchange.recv_offsets[p];
    for (std::int64_t begin = 0; begin < exchange.recv_bytes[p]; begin += kPieceBytes) {
      const std::int64_t bytes = std::min(kPieceBytes, exchange.recv_bytes[p] - begin);
      MPI_Request& request = requests_.emplace_back(MPI_REQUEST_NULL);
      pairs_.push_back({peer, rank()});
      session_.require(MPI_Irecv(data + begin, static_cast<int>(bytes), MPI_BYTE, peer, kDataTag,
                                 session_.data_comm(), &request),
                       "MPI_Irecv");
    }
  }

  void send(const Exchange& exchange, int peer) {
    const auto p = static_cast<std::size_t>(peer);
    const std::byte* data = exchange.send + exchange.send_offsets[p];
    for (std::int64_t begin = 0; begin < exchange.send_bytes[p]; begin += kPieceBytes) {
      const std::int64_t bytes = std::min(kPieceBytes, exchange.send_bytes[p] - begin);
      MPI_Request& request = requests_.emplace_back(MPI_REQUEST_NULL);
      pairs_.push_back({rank(), peer});
      session_.require(MPI_Isend(data + begin, static_cast<int>(bytes), MPI_BYTE, peer, kDataTag,
                                 session_.data_comm(), &request),
                       "MPI_Isend");
    }
    bytes_ += exchange.send_bytes[p];
  }

  void wait_collective(MPI_Request& request, const std::string& operation) {
    is_in_flight_ = true;
    session_.wait(request, operation, {});
    is_in_flight_ = false;
  }

  [[nodiscard]] std::vector<StuckPair> pending_pairs() {
    std::vector<StuckPair> pending;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      int is_done = 0;
      MPI_Request_get_status(requests_[i], &is_done, MPI_STATUS_IGNORE);
      if (is_done != 0) continue;
      if (pending.empty() || pending.back() != pairs_[i]) pending.push_back(pairs_[i]);
    }
    return pending;
  }

  MpiSession& session_;
  RankPlace place_;
  std::list<Buffer> buffers_;
  std::vector<MPI_Request> requests_;
  std::vector<StuckPair> pairs_;  // of each request
  std::int64_t bytes_ = 0;        // of the exchange in flight, sent by this rank
  bool is_in_flight_ = false;
};

class MpiJob final : public Job {
 public:
  explicit MpiJob(const BackendOptions& options) : session_(options) {}

  [[nodiscard]] int num_ranks() const override { return session_.num_ranks(); }
  [[nodiscard]] bool has_rank_0() const override { return session_.rank() == 0; }
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> facts() const override {
    return session_.facts();
  }

  void run(const std::function<void(Communicator&)>& body) override {
    session_.run([&] { work(body); });
  }

  [[nodiscard]] int agree_exit_code(int mine) noexcept override {
    return session_.agree_exit_code(mine);
  }

 private:
  void work(const std::function<void(Communicator&)>& body) {
    try {
      MpiCommunicator communicator(session_);
      body(communicator);
    } catch (const StuckError& error) {
      session_.explain(error);  // throws
    } catch (const std::exception& error) {
      // The others wait for this rank: they must not take it for a fault of the network.
      session_.report_failure(error.what());
      throw;
    }
  }

  MpiSession session_;
};

}  // namespace

std::unique_ptr<Job> open_mpi_job(const BackendOptions& options) {
  return std::make_unique<MpiJob>(options);
}

}  // namespace moe::comm
