#pragma once

// What a process has of MPI: start and end, waits with a limit, texts between ranks, and what is
// left to do when a rank is lost.

#include <functional>
#include <list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <mpi.h>

#include "lib/comm/backend.hpp"
#include "lib/comm/library_calls.hpp"
#include "lib/comm/patience.hpp"

namespace moe::comm {

class MpiSession {
 public:
  // Throws Error(kUnavailable) when MPI does not start.
  explicit MpiSession(const BackendOptions& options);
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;
  ~MpiSession();

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int num_ranks() const { return num_ranks_; }
  [[nodiscard]] MPI_Comm data_comm() const { return data_comm_; }
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> facts() const;

  [[nodiscard]] Patience make_patience() const {
    return {options_.time_limit_s, options_.interrupt, num_spins_};
  }
  // Does `work`, at rank 0 in a thread of its own: when the job is taken down, a call of the MPI
  // library may never come back (Open MPI asks the launcher that takes it down to log the lost
  // connection), and the report must not be lost with it. Throws what `work` throws, or StuckError.
  void run(const std::function<void()>& work);
  // Calls of the library that look whether something has ended.
  template <class Call>
  int look(Call call) {
    return calls_.inside(call);
  }
  // Throws Error(kRuntime) for a status that is no success.
  void require(int status, const char* call) const;
  // Until the request ends; gives up when that takes too long.
  void wait(MPI_Request& request, const std::string& operation,
            const std::vector<StuckPair>& pairs);
  [[noreturn]] void give_up(const std::string& operation, const Patience& patience,
                            std::vector<StuckPair> pairs);

  // All texts by way of rank 0, which so knows whose is missing.
  [[nodiscard]] std::vector<std::string> exchange_texts(const std::string& mine);

  // After a StuckError of this rank: rank 0 collects what the others saw for a short time and
  // throws what all of it means; the others tell rank 0 and throw what they know.
  [[noreturn]] void explain(const StuckError& error);
  // After any other error of this rank: rank 0 hears of it.
  void report_failure(const std::string& message);
  // Too long, or another rank has given up.
  [[nodiscard]] bool is_over(Patience& patience);
  // Memory that MPI may still write to.
  void keep_forever(std::list<Buffer> buffers);

  // Rank 0's code at every process. After a failure rank 0 ends the whole job with its code
  // (MPI_Abort), and the others wait for that a while.
  [[nodiscard]] int agree_exit_code(int mine) noexcept;

 private:
  void send_text(const std::string& text, int peer, MPI_Comm comm, const std::string& operation);
  void tell_trouble(const StuckReport& report);
  // The message of a rank that has given up, if one waits to be received.
  [[nodiscard]] std::optional<MPI_Status> find_trouble();
  [[nodiscard]] std::string receive_text(int peer, MPI_Comm comm, const std::string& operation);

  BackendOptions options_;
  int rank_ = 0;
  int num_ranks_ = 1;
  int num_spins_ = 0;
  MPI_Comm data_comm_ = MPI_COMM_NULL;
  MPI_Comm text_comm_ = MPI_COMM_NULL;     // texts and decisions
  MPI_Comm trouble_comm_ = MPI_COMM_NULL;  // what ranks saw when they gave up
  bool has_failed_ = false;
  bool may_change_thread_ = false;
  LibraryCalls calls_;
};

}  // namespace moe::comm
