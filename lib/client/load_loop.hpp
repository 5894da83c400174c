#pragma once

// One thread of a load run.

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <queue>
#include <string>
#include <vector>

#include "lib/client/load.hpp"
#include "lib/client/read_window.hpp"

namespace moe::client {

// What the loops of a run share with the thread that watches them.
struct SharedLoad {
  std::string run_name;  // before the number in request ids; no two runs share one
  std::atomic<std::int64_t> next_conversation{0};  // closed loop: of the plan, not of the source
  std::atomic<std::int64_t> next_index{0};
  std::atomic<std::int64_t> in_flight{0};
  std::atomic<std::int64_t> peak_in_flight{0};
  std::atomic<std::int64_t> num_ended{0};
  std::atomic<std::int64_t> refused_in_a_row{0};
  std::atomic<int> num_ready{0};
  std::atomic<int> num_finished{0};
  std::atomic<double> start_s{0.0};      // monotonic; 0: not yet
  std::atomic<double> stop_s{1e300};     // run clock: nothing is sent from here on
  std::atomic<double> give_up_s{1e300};  // run clock: what still runs is cancelled
  std::mutex mutex;                      // guards what follows
  std::vector<TimedValue> ttft;
  std::string failure;  // of a loop itself
};

class LoadLoop {
 public:
  LoadLoop(const Endpoint& endpoint, const LoadPlan& plan, const LoadTools& tools,
           std::int32_t loop, SharedLoad& shared);
  LoadLoop(const LoadLoop&) = delete;
  LoadLoop& operator=(const LoadLoop&) = delete;
  ~LoadLoop();

  // The thread's body: prepares, waits for start_s, runs to the end.
  void run();

  std::vector<RequestRecord> records;
  SelfMeasure self;

 private:
  struct Client;   // a conversation under way
  struct Request;  // one of its turns
  struct Later {
    double time_s;
    Request* request;
    bool operator>(const Later& other) const { return time_s > other.time_s; }
  };

  void prepare_first();
  void connect_first();
  void wait_for_start();
  void loop();
  void launch_due(double now_s);
  void prepare_ahead(double now_s);
  void end_done(double now_s);
  void give_up();
  [[nodiscard]] double next_time_s() const;
  [[nodiscard]] bool is_finished(double now_s) const;

  // Makes the next turn of a client, to be sent at a time. False when it has none.
  bool make_request(Client& client, double intended_s);
  bool start_conversation(double intended_s, std::int64_t number);
  bool stash_conversation();
  void on_ended(Request& request);
  void next_in_closed_loop(double time_s);
  void note_end(const RequestRecord& record);
  [[nodiscard]] double now_s() const;

  const LoadPlan* plan_;
  const LoadTools* tools_;
  std::int32_t loop_;
  SharedLoad* shared_;
  Transport transport_;
  EventReader events_;
  ReadWindow read_window_;
  double start_s_ = 0.0;
  double cpu_begin_s_ = 0.0;
  std::int64_t next_arrival_ = 0;  // open loop
  std::int64_t num_unsent_ = 0;    // requests that wait for their time
  std::int64_t num_running_ = 0;
  std::vector<std::unique_ptr<Request>> requests_;  // all that live, by slot
  std::vector<std::size_t> free_slots_;
  std::deque<Request*> stash_;  // closed loop: made, without a time yet
  std::priority_queue<Later, std::vector<Later>, std::greater<>> due_;
  std::deque<std::pair<double, Request*>> done_;  // [DONE] seen, the body has not ended
  bool is_source_empty_ = false;
};

}  // namespace moe::client
