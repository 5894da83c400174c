#include "lib/scripted_server/server_thread.hpp"

#include <fmt/format.h>

namespace moe::scripted_server {

ServerThread::ServerThread(Script script, ServerOptions options)
    : server_(std::move(script), std::move(options)), thread_([this] {
        try {
          server_.run(interrupt_);
        } catch (...) {
          failure_ = std::current_exception();
        }
      }) {}

ServerThread::~ServerThread() {
  server_.stop();
  if (thread_.joinable()) thread_.join();
}

std::string ServerThread::url() const {
  return fmt::format("http://127.0.0.1:{}", port());
}

ServerLog& ServerThread::stop() {
  server_.stop();
  if (thread_.joinable()) thread_.join();
  if (failure_) std::rethrow_exception(failure_);
  return server_.log();
}

}  // namespace moe::scripted_server
