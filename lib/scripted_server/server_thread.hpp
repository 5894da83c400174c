#pragma once

// A scripted server on a thread of its own and a free port, for as long as the object lives.

#include <exception>
#include <string>
#include <thread>

#include "lib/base/interrupt.hpp"
#include "lib/scripted_server/server.hpp"

namespace moe::scripted_server {

class ServerThread {
 public:
  explicit ServerThread(Script script, ServerOptions options = {});
  ServerThread(const ServerThread&) = delete;
  ServerThread& operator=(const ServerThread&) = delete;
  ~ServerThread();

  [[nodiscard]] std::uint16_t port() const { return server_.port(); }
  [[nodiscard]] std::string url() const;  // "http://127.0.0.1:PORT"

  // Ends the server and returns what it sent when. Safe to call again. Throws what ended the server
  // early.
  ServerLog& stop();

 private:
  Interrupt interrupt_;
  Server server_;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace moe::scripted_server
