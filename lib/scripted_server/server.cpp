#include "lib/scripted_server/server.hpp"

#include "lib/scripted_server/server_loop.hpp"

namespace moe::scripted_server {

Server::Server(Script script, ServerOptions options)
    : loop_(std::make_unique<ServerLoop>(std::move(script), std::move(options))) {}

Server::~Server() = default;

std::uint16_t Server::port() const {
  return loop_->port();
}

void Server::run(const Interrupt& interrupt) {
  loop_->run(interrupt);
}

void Server::stop() {
  loop_->stop();
}

ServerLog& Server::log() {
  return loop_->log();
}

}  // namespace moe::scripted_server
