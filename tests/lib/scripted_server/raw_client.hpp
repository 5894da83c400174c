#pragma once

// A client that knows nothing of HTTP: bytes out, bytes in.

#include <cstdint>
#include <string>
#include <string_view>

#include "lib/json/read.hpp"
#include "lib/scripted_server/script.hpp"
#include "lib/scripted_server/socket.hpp"

namespace moe::test {

enum class RawEnd { kClosed, kReset, kTimeout };

struct RawAnswer {
  std::string bytes;
  RawEnd end = RawEnd::kTimeout;
};

class RawClient {
 public:
  // Throws std::runtime_error when nothing listens.
  explicit RawClient(std::uint16_t port);

  void send(std::string_view bytes) const;
  // Reads until `text` has come, the connection ends, or 5 s have passed.
  [[nodiscard]] RawAnswer read_until(std::string_view text) const;
  [[nodiscard]] RawAnswer read_all() const { return read_until(""); }

 private:
  scripted_server::Descriptor socket_;
};

[[nodiscard]] std::string get(std::string_view path);
// `rest` goes into the object: "\"stream\":true".
[[nodiscard]] std::string post_completion(std::string_view rest, std::string_view headers = "");
[[nodiscard]] std::string post_chat(std::string_view rest);

// The body of an HTTP answer; chunks are joined.
[[nodiscard]] std::string body_of(const std::string& answer);

// A script whose only reply has these groups.
[[nodiscard]] scripted_server::Script script_of(const std::string& reply,
                                                const std::string& server = "{}");

}  // namespace moe::test
