#pragma once

// What Server runs: sockets, connections and replies of one thread.

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "lib/base/clock.hpp"
#include "lib/base/interrupt.hpp"
#include "lib/scripted_server/due_times.hpp"
#include "lib/scripted_server/generation_request.hpp"
#include "lib/scripted_server/http_request.hpp"
#include "lib/scripted_server/metrics_page.hpp"
#include "lib/scripted_server/script.hpp"
#include "lib/scripted_server/send_log.hpp"
#include "lib/scripted_server/server.hpp"
#include "lib/scripted_server/socket.hpp"
#include "lib/scripted_server/timeline.hpp"

namespace moe::scripted_server {

enum class ConnectionState : std::uint8_t {
  kReading,  // no reply on the way
  kQueued,   // waits for a slot
  kReplying,
  kHanging,    // says nothing more
  kLingering,  // closed by us; what the client still sends is thrown away
};

struct Connection {
  Descriptor socket;
  std::uint32_t epoch = 0;   // counts the connections that this place has held
  std::uint64_t name = 0;    // in epoll: epoch and place
  std::uint32_t ticket = 0;  // of the due time that counts
  ConnectionState state = ConnectionState::kReading;
  bool is_generation = false;
  std::uint32_t interest = 0;  // of epoll
  RequestReader reader;
  HttpRequest request;
  // Shared by the cache and by all connections that say the same.
  std::shared_ptr<const Timeline> timeline;
  std::size_t next_due = 0;  // first piece that is not due
  std::size_t next_out = 0;  // first piece that is not out
  std::size_t sent = 0;      // bytes
  double started_s = 0.0;
  RequestRecord record;
};

class ServerLoop {
 public:
  ServerLoop(Script script, ServerOptions options);

  [[nodiscard]] std::uint16_t port() const { return port_; }
  void run(const Interrupt& interrupt);
  void stop();
  [[nodiscard]] ServerLog& log() { return log_; }

 private:
  struct CachedTimeline {
    std::size_t reply = 0;
    bool keeps_alive = false;
    bool is_http_10 = false;
    GenerationRequest request;
    std::shared_ptr<const Timeline> timeline;
  };

  // server_loop.cpp: sockets and times.
  void watch(int fd, std::uint64_t name);
  void set_interest(Connection& connection, std::uint32_t interest);
  void handle_event(std::uint64_t name, std::uint32_t events);
  void accept_all();
  void add_connection(int fd);
  void read_from(std::uint32_t index);
  void drop(std::uint32_t index);  // closes and frees the place
  void schedule(std::uint32_t index, double at_s);
  void fire_due();
  void arm_timer();
  void flush_records(bool is_all);
  void die();
  void end_all(ReplyEnd end, bool resets);

  // server_replies.cpp: requests and replies.
  void advance(std::uint32_t index);
  void take_request(std::uint32_t index);
  void take_generation(std::uint32_t index, bool is_chat);
  void count_arrival();
  [[nodiscard]] std::shared_ptr<const Timeline> timeline_for(std::size_t reply,
                                                             const HttpRequest& request,
                                                             const GenerationRequest& asked);
  void reply_plain(std::uint32_t index, Timeline timeline);
  // The reply's times count from start_s.
  void begin_reply(std::uint32_t index, double start_s);
  void pump(std::uint32_t index);
  void write_due(Connection& connection, std::size_t end);
  void note_sends(Connection& connection, double now_s);
  void finish_reply(std::uint32_t index);
  void settle(Connection& connection, ReplyEnd end);
  void start_waiting();
  void client_left(std::uint32_t index);

  Script script_;
  ServerOptions options_;
  SteadyClock clock_;
  std::uint16_t port_ = 0;
  Descriptor listener_;
  Descriptor epoll_;
  Descriptor timer_;
  Descriptor wake_;
  Descriptor spare_;  // given up for a moment when descriptors run out
  double begin_s_ = 0.0;
  double armed_for_s_ = 0.0;
  bool is_stopping_ = false;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<std::uint32_t> free_places_;
  DueTimes due_;
  struct Waiting {
    std::uint32_t connection = 0;
    std::uint32_t ticket = 0;
  };
  std::deque<Waiting> waiting_;
  bool has_free_slot_ = false;
  GenerationRequestReader generation_reader_;
  std::vector<std::size_t> reply_order_;  // of replies, one entry a request of the cycle
  std::vector<CachedTimeline> cache_;
  std::size_t next_cached_ = 0;
  std::int64_t num_requests_ = 0;
  Counters counters_;
  std::deque<RequestRecord> unsaid_;  // ended, not yet handed to the sink
  ServerLog log_;
};

}  // namespace moe::scripted_server
