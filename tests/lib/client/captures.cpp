#include "tests/lib/client/captures.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "tests/support/temp_dir.hpp"

namespace moe::client {
namespace {

using Json = nlohmann::ordered_json;

std::string from_base64(const std::string& text) {
  static const std::string alphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  unsigned bits = 0;
  int num_bits = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = (bits << 6U) | static_cast<unsigned>(alphabet.find(c));
    num_bits += 6;
    if (num_bits >= 8) {
      num_bits -= 8;
      bytes.push_back(static_cast<char>((bits >> static_cast<unsigned>(num_bits)) & 0xffU));
    }
  }
  return bytes;
}

Capture read_capture(const std::filesystem::path& file, const Json& facts) {
  Capture capture;
  capture.name = file.parent_path().filename().string() + "/" + file.stem().string();
  capture.facts = facts;
  std::istringstream lines(test::read_file(file));
  std::string sent;
  for (std::string line; std::getline(lines, line);) {
    const Json entry = Json::parse(line);
    const std::string dir = entry.value("dir", "");
    std::string bytes = entry.contains("b64") ? from_base64(entry["b64"].get<std::string>())
                                              : entry.value("text", "");
    if (dir == "s2c") capture.received += bytes;
    if (dir == "c2s") sent += bytes;
  }
  const std::size_t blank = sent.find(' ');
  if (blank != std::string::npos) {
    capture.path = sent.substr(blank + 1, sent.find(' ', blank + 1) - blank - 1);
  }
  const std::size_t last_body = sent.rfind("\r\n\r\n");
  capture.asks_for_stream = last_body != std::string::npos &&
                            sent.find("\"stream\": true", last_body) != std::string::npos;
  return capture;
}

std::string header_of(const std::string& head, const std::string& name) {
  std::istringstream lines(head);
  for (std::string line; std::getline(lines, line);) {
    std::string lower = line;
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (lower.rfind(name + ":", 0) != 0) continue;
    std::string value = lower.substr(name.size() + 1);
    value.erase(0, value.find_first_not_of(' '));
    while (!value.empty() && (value.back() == '\r' || value.back() == ' ')) value.pop_back();
    return value;
  }
  return {};
}

// Reads chunks from `at`; where they end, or npos when they are cut.
std::size_t read_chunks(const std::string& bytes, std::size_t at, std::string& body) {
  for (;;) {
    const std::size_t line_end = bytes.find("\r\n", at);
    if (line_end == std::string::npos) return std::string::npos;
    const std::size_t size = std::stoul(bytes.substr(at, line_end - at), nullptr, 16);
    at = line_end + 2;
    body += bytes.substr(at, size);
    if (bytes.size() < at + size + 2) return std::string::npos;
    at += size + 2;
    if (size == 0) return at;
  }
}

// The answer that begins at `at`, which moves behind it.
HttpAnswer read_answer(const std::string& bytes, std::size_t& at) {
  HttpAnswer answer;
  const std::size_t begin = at;
  std::size_t head_end = bytes.find("\r\n\r\n", at);
  if (head_end == std::string::npos) throw std::runtime_error("a capture without headers");
  const std::string head = bytes.substr(at, head_end - at);
  answer.status = std::stoi(head.substr(head.find(' ') + 1, 3));
  at = head_end + 4;
  if (header_of(head, "transfer-encoding") == "chunked") {
    const std::size_t end = read_chunks(bytes, at, answer.body);
    answer.is_whole = end != std::string::npos;
    at = answer.is_whole ? end : bytes.size();
  } else {
    const std::string length = header_of(head, "content-length");
    std::size_t size = length.empty() ? 0 : std::stoul(length);
    if (answer.status / 100 == 1) size = 0;
    answer.body = bytes.substr(at, size);
    answer.is_whole = answer.body.size() == size;
    at = std::min(bytes.size(), at + size);
  }
  answer.bytes = bytes.substr(begin, at - begin);
  return answer;
}

}  // namespace

HttpAnswer Capture::last_answer() const {
  HttpAnswer last;
  std::size_t at = 0;
  while (at < received.size()) last = read_answer(received, at);
  return last;
}

const std::vector<Capture>& all_captures() {
  static const std::vector<Capture> captures = [] {
    std::vector<Capture> all;
    const std::filesystem::path root =
        std::filesystem::path(MOE_SOURCE_DIR) / "tests/data/server-captures";
    for (const char* server : {"vllm", "vllm-stream-interval4", "llama-server"}) {
      const Json facts = Json::parse(test::read_file(root / server / "facts.json"));
      for (const auto& [name, fact] : facts.items()) {
        all.push_back(read_capture(root / server / (name + ".jsonl"), fact));
      }
    }
    return all;
  }();
  return captures;
}

}  // namespace moe::client
