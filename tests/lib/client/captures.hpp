#pragma once

// Recorded answers of real servers (tests/data/server-captures) and an HTTP decoder of the tests'
// own, so that what libcurl does is not judged by libcurl.

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace moe::client {

struct HttpAnswer {
  int status = 0;
  std::string body;       // chunks joined
  bool is_whole = false;  // the message ended as its headers say
  std::string bytes;      // of this answer, as they were received
};

struct Capture {
  std::string name;  // "vllm/chat_stream"
  std::string path;  // that the client asked for
  bool asks_for_stream = false;
  std::string received;  // everything from the server
  nlohmann::ordered_json facts;

  // The last answer on the connection, which is what the facts are about.
  [[nodiscard]] HttpAnswer last_answer() const;
};

// Sorted by name; every capture of every server.
[[nodiscard]] const std::vector<Capture>& all_captures();

}  // namespace moe::client
