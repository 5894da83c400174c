// What an event costs the client from the socket to the record: a server in the same thread says
// one event of vLLM on each of many streams, and what the client then takes is timed. `own` is
// whether chunks are read by the client itself or by libcurl.

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <arpa/inet.h>
#include <benchmark/benchmark.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/client/answer_reader.hpp"
#include "lib/client/receive_time.hpp"
#include "lib/client/transport.hpp"

namespace moe::client {
namespace {

constexpr const char* kHead = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
constexpr const char* kEvent =
    "data: {\"id\":\"cmpl-0123456789abcdef\",\"object\":\"text_completion\",\"created\":1700000000,"
    "\"model\":\"model\",\"choices\":[{\"index\":0,\"text\":\" token\",\"logprobs\":null,"
    "\"finish_reason\":null,\"stop_reason\":null,\"token_ids\":[307],\"prompt_token_ids\":null}]}"
    "\n\n";

struct Stream final : ExchangeListener {
  void on_sent(double) override {}
  void on_status(int status, double) override { reader.set_status(status); }
  bool on_bytes(std::string_view bytes, double time_s) override {
    reader.feed(bytes, time_s, *events);
    return true;
  }
  void on_end(const ExchangeEnd&, double) override {}

  AnswerReader reader{false};
  EventReader* events = nullptr;
};

int listen_on_loopback(std::string& url) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(fd, 4096) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    throw std::runtime_error("no socket to listen on");
  }
  url = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  return fd;
}

void say(int fd, const std::string& text) {
  if (send(fd, text.data(), text.size(), MSG_NOSIGNAL) < 0) throw std::runtime_error("send");
}

void read_sockets(benchmark::State& state) {
  const auto num_streams = static_cast<std::size_t>(state.range(0));
  std::string url;
  const int listener = listen_on_loopback(url);
  TransportOptions options;
  options.takes_bodies = state.range(1) != 0;
  Transport transport(parse_endpoint(url), options);
  EventReader events;
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<int> sockets;
  while (sockets.size() < num_streams) {
    streams.push_back(std::make_unique<Stream>());
    streams.back()->events = &events;
    transport.start(transport.prepare("/v1/completions", "{}", "id", streams.back().get()));
    int fd = -1;
    while ((fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC)) < 0) transport.run_pass(0.0);
    char request[4096];
    transport.run_pass(monotonic_s() + 0.001);
    if (recv(fd, request, sizeof request, 0) <= 0) throw std::runtime_error("no request");
    say(fd, kHead);
    sockets.push_back(fd);
  }
  for (int pass = 0; pass < 4; ++pass) transport.run_pass(monotonic_s() + 0.001);
  char size[16];
  (void)snprintf(size, sizeof size, "%zx\r\n", std::string_view(kEvent).size());
  const std::string chunk = size + std::string(kEvent) + "\r\n";
  for (auto _ : state) {
    for (const int fd : sockets) say(fd, chunk);
    const std::int64_t target = transport.stats().num_reads + state.range(0);
    const double begin_s = monotonic_s();
    while (transport.stats().num_reads < target) transport.run_pass(begin_s + 1.0);
    state.SetIterationTime(monotonic_s() - begin_s);
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
  for (const int fd : sockets) (void)close(fd);
  (void)close(listener);
}
BENCHMARK(read_sockets)
    ->ArgNames({"streams", "own"})
    ->Args({1, 1})
    ->Args({200, 1})
    ->Args({200, 0})
    ->UseManualTime();

}  // namespace
}  // namespace moe::client
