#include "tests/lib/scripted_server/raw_client.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <stdexcept>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

namespace moe::test {

RawClient::RawClient(std::uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    throw std::runtime_error("nothing listens");
  }
}

void RawClient::send(std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t size = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (size <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(size));
  }
}

RawAnswer RawClient::read_until(std::string_view text) const {
  RawAnswer answer;
  std::array<char, 65536> bytes;
  std::size_t searched = 0;  // the text does not begin before this
  while (text.empty() || answer.bytes.find(text, searched) == std::string::npos) {
    searched = answer.bytes.size() - std::min(answer.bytes.size(), text.size());
    pollfd wait = {socket_.get(), POLLIN, 0};
    if (::poll(&wait, 1, 5000) != 1) return answer;
    const ssize_t size = ::recv(socket_.get(), bytes.data(), bytes.size(), 0);
    if (size == 0) answer.end = RawEnd::kClosed;
    if (size < 0) answer.end = RawEnd::kReset;
    if (size <= 0) return answer;
    answer.bytes.append(bytes.data(), static_cast<std::size_t>(size));
  }
  return answer;
}

std::string get(std::string_view path) {
  return "GET " + std::string(path) + " HTTP/1.1\r\nHost: test\r\n\r\n";
}

namespace {

std::string post(const std::string& path, const std::string& body, std::string_view headers) {
  return "POST " + path + " HTTP/1.1\r\nHost: test\r\n" + std::string(headers) +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

std::string with(std::string_view rest) {
  return rest.empty() ? "}" : "," + std::string(rest) + "}";
}

}  // namespace

std::string post_completion(std::string_view rest, std::string_view headers) {
  return post("/v1/completions", R"({"model":"scripted","prompt":[1,2,3])" + with(rest), headers);
}

std::string post_chat(std::string_view rest) {
  return post(
      "/v1/chat/completions",
      R"({"model":"scripted","messages":[{"role":"user","content":"one two"}])" + with(rest), "");
}

std::string body_of(const std::string& answer) {
  const std::size_t head = answer.find("\r\n\r\n");
  if (head == std::string::npos) return {};
  const bool is_chunked = answer.substr(0, head).find("chunked") != std::string::npos;
  std::size_t at = head + 4;
  if (!is_chunked) return answer.substr(at);
  std::string body;
  while (at < answer.size()) {
    const std::size_t line = answer.find("\r\n", at);
    if (line == std::string::npos) break;
    const std::size_t size = std::stoul(answer.substr(at, line - at), nullptr, 16);
    body += answer.substr(line + 2, size);
    at = line + 2 + size + 2;
  }
  return body;
}

scripted_server::Script script_of(const std::string& reply, const std::string& server) {
  const std::string text =
      R"({"schema_version":1,"server":)" + server + R"(,"replies":[)" + reply + "]}";
  return scripted_server::parse_script(json::parse(text, "script"), "script");
}

}  // namespace moe::test
