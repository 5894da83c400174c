#pragma once

// The scripted server: one thread, one epoll set, one heap of due times. Everything a reply says is
// laid out when its request has arrived; from then on sending is a system call per due time and
// allocates nothing. A write that the client does not take is carried on when it does; the log then
// shows how late it was.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "lib/base/interrupt.hpp"
#include "lib/scripted_server/script.hpp"
#include "lib/scripted_server/send_log.hpp"

namespace moe::scripted_server {

class ServerLoop;

struct ServerOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;   // 0: any free one
  bool keeps_sends = true;  // the log holds every send, 24 bytes each
  // Called with each record when nothing is due soon, at the latest when the server ends. With it,
  // the log's own list stays empty.
  std::function<void(const RequestRecord&)> sink;
};

class Server {
 public:
  // Listens. Throws Error(kRuntime) when the port is taken.
  explicit Server(Script script, ServerOptions options = {});
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  ~Server();

  [[nodiscard]] std::uint16_t port() const;

  // Serves until the interrupt is requested or stop() is called. Call once. Throws Error(kRuntime)
  // when the system refuses what it needs.
  void run(const Interrupt& interrupt);

  // From any thread.
  void stop();

  // After run().
  [[nodiscard]] ServerLog& log();

 private:
  std::unique_ptr<ServerLoop> loop_;
};

}  // namespace moe::scripted_server
