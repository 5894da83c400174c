#pragma once

// HTTP exchanges of one thread: libcurl's multi interface on an epoll loop. Receive times are the
// kernel's; requests go out on connections that were opened ahead or kept, when there are some.
//
// Since arrivals are the kernel's, the loop may look at its sockets a little later without any time
// changing: one wake-up, which costs more than a read, then serves many sockets. The caller allows
// that for a pass (`window_s`), when no stream has two events so close together (ReadWindow):
// events of one stream that are read at once are one arrival. What bytes waited is in `delay_sink`.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "lib/client/endpoint.hpp"
#include "lib/client/request_record.hpp"

namespace moe::client {

struct TransportOptions {
  double timeout_s = 600.0;  // of one request
  double connect_timeout_s = 10.0;
  std::int64_t max_connections = 1024;  // kept open between requests
  // Over plain HTTP without a proxy, requests for which a connection stands ready go out, and
  // answers in chunks come in, without libcurl; false leaves all to it, which takes longer and
  // comes to the same.
  bool takes_bodies = true;
};

struct ExchangeEnd {
  Failure failure = Failure::kNone;
  std::string error;
  double connect_s = 0.0;  // 0 when a connection was there
};

// Called from run_pass(). Times are monotonic seconds.
class ExchangeListener {
 public:
  virtual ~ExchangeListener() = default;
  // Again when the request went out again on a new connection.
  virtual void on_sent(double time_s) = 0;
  virtual void on_status(int status, double time_s) = 0;
  // False gives the exchange up: on_end follows with kMalformed.
  [[nodiscard]] virtual bool on_bytes(std::string_view bytes, double time_s) = 0;
  // The last call.
  virtual void on_end(const ExchangeEnd& end, double time_s) = 0;
};

// What the loop saw of itself since begin_measuring().
struct LoopStats {
  std::int64_t num_reads = 0;
  std::int64_t num_bytes = 0;
  double longest_pass_s = 0.0;  // from one look at the sockets to the next
  double read_window_s = 0.0;   // the longest that was used
  bool has_kernel_times = false;
};

class Transport {
 public:
  // Resolves the server's name. Throws Error(kRuntime), Error(kUnavailable).
  Transport(const Endpoint& endpoint, const TransportOptions& options);
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  ~Transport();

  // A POST that waits for start(), with `request_id` as X-Request-Id. `listener` and the returned
  // exchange live until on_end or drop(); the handle is then used again.
  struct Exchange;
  [[nodiscard]] Exchange* prepare(const std::string& path, std::string_view body,
                                  const std::string& request_id, ExchangeListener* listener);
  // Sends in the next run_pass(), in the order of the calls.
  void start(Exchange* exchange);
  // Ends without on_end; the connection is closed when the exchange was under way.
  void drop(Exchange* exchange);

  // Begins connecting until so many sockets stand ready or are on their way; a connect takes tens
  // of microseconds, so `at_most` so many in this call.
  void connect_ahead(std::int64_t count, std::int64_t at_most);
  [[nodiscard]] std::int64_t num_connecting() const;
  // Kept connections without a request; those standing ready are not among them.
  [[nodiscard]] std::int64_t num_idle() const;

  // Waits for the network until `until_s` at most, then reads what is ready. When `until_s` comes
  // while there is more to read, returns and goes on with it in the next pass. With receive times
  // of the kernel, bytes may lie for `window_s` before they are looked for.
  void run_pass(double until_s, double window_s = 0.0);
  // From a listener: something has fallen due meanwhile, so the pass ends after a few more reads.
  void cut_pass();
  // Sets the statistics back; `delay_sink` is told of each read how long its bytes had waited.
  void begin_measuring(std::function<void(double delay_s)> delay_sink);

  [[nodiscard]] const LoopStats& stats() const;
  [[nodiscard]] std::int64_t num_running() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moe::client
