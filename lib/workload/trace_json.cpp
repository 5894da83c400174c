// Traces as JSON: Mooncake's lines and ShareGPT's one array, an element at a time.

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/json/read.hpp"
#include "lib/workload/length_distribution.hpp"
#include "lib/workload/trace_parts.hpp"

namespace moe::workload {
namespace {

using json::Json;

constexpr std::int64_t kBytesPerTokenEstimate = 4;
constexpr double kMillisecond_s = 1e-3;

std::int64_t tokens_at(const Json& object, const char* key, const std::string& where) {
  const auto found = object.find(key);
  const bool is_count = found != object.end() && found->is_number_integer() &&
                        found->get<std::int64_t>() >= 0 && found->get<std::int64_t>() <= kMaxTokens;
  if (!is_count) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: expected \"{}\" as a number of tokens, found {}", where, key,
                            found == object.end() ? "nothing" : found->dump()));
  }
  return found->get<std::int64_t>();
}

// The end of the JSON value that begins at `begin`: behind its last bracket. text.size() when it
// does not end. Knows strings, so that brackets inside them do not count.
std::size_t end_of_object(std::string_view text, std::size_t begin) {
  int depth = 0;
  bool is_string = false;
  for (std::size_t i = begin; i < text.size(); ++i) {
    const char c = text[i];
    if (is_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        is_string = false;
      }
    } else if (c == '"') {
      is_string = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if ((c == '}' || c == ']') && --depth == 0) {
      return i + 1;
    }
  }
  return text.size();
}

std::size_t skip_blanks(std::string_view text, std::size_t at) {
  return std::min(text.find_first_not_of(" \t\r\n", at), text.size());
}

// The text of a turn and who said it; empty when the turn is not of that shape.
std::pair<std::string, std::string> turn_of(const Json& turn) {
  if (!turn.is_object()) return {};
  const auto text = [&](const char* key) {
    const auto found = turn.find(key);
    return found != turn.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  return {text("from"), text("value")};
}

// False when enough were read.
bool add_conversation(const Json& record, TraceSink& sink) {
  const auto found = record.is_object() ? record.find("conversations") : record.end();
  if (!record.is_object() || found == record.end() || !found->is_array()) {
    sink.add_incomplete();
    return true;
  }
  const auto length_of = [&](const std::string& text) -> std::int64_t {
    if (sink.options().count_tokens) return sink.options().count_tokens(text);
    return (static_cast<std::int64_t>(text.size()) + kBytesPerTokenEstimate - 1) /
           kBytesPerTokenEstimate;
  };
  for (std::size_t i = 0; i + 1 < found->size(); ++i) {
    const auto [asker, question] = turn_of((*found)[i]);
    if (asker != "human" && asker != "user") continue;
    const auto [answerer, answer] = turn_of((*found)[i + 1]);
    const bool is_answered = answerer == "gpt" || answerer == "chatgpt" || answerer == "assistant";
    if (!is_answered || question.empty() || answer.empty()) break;
    return sink.add(std::nullopt, length_of(question), length_of(answer));
  }
  sink.add_incomplete();
  return true;
}

}  // namespace

void read_mooncake_trace(std::string_view text, TraceSink& sink) {
  std::string_view line;
  std::vector<std::uint64_t> blocks;
  for (std::int64_t number = 1; next_line(text, line); ++number) {
    if (skip_blanks(line, 0) == line.size()) continue;
    const std::string where = fmt::format("{}:{}", sink.where(), number);
    const Json record = json::parse(line, where);
    if (!record.is_object()) fail_at(sink.where(), number, "expected a JSON object");
    std::optional<double> time_s;
    if (const auto time = record.find("timestamp"); time != record.end()) {
      if (!time->is_number()) {
        fail_at(sink.where(), number, "expected \"timestamp\" in milliseconds");
      }
      time_s = time->get<double>() * kMillisecond_s;
    } else if (sink.info().has_times) {
      fail_at(sink.where(), number, "expected \"timestamp\" as in the lines before, found none");
    }
    blocks.clear();
    if (const auto ids = record.find("hash_ids"); ids != record.end()) {
      if (!ids->is_array()) fail_at(sink.where(), number, "expected \"hash_ids\" as an array");
      for (const Json& id : *ids) {
        if (!id.is_number_integer()) {
          fail_at(sink.where(), number, "expected whole numbers in \"hash_ids\"");
        }
        blocks.push_back(static_cast<std::uint64_t>(id.get<std::int64_t>()));
      }
    }
    if (!sink.add(time_s, tokens_at(record, "input_length", where),
                  tokens_at(record, "output_length", where), blocks)) {
      return;
    }
  }
}

void read_sharegpt_trace(std::string_view text, TraceSink& sink) {
  std::size_t at = skip_blanks(text, 0);
  if (at == text.size() || text[at] != '[') {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: expected a JSON array of conversations", sink.where()));
  }
  sink.info().is_token_estimate = !sink.options().count_tokens;
  at = skip_blanks(text, at + 1);
  for (std::int64_t number = 1; at < text.size() && text[at] != ']'; ++number) {
    const std::string where = fmt::format("{}: conversation {}", sink.where(), number);
    if (text[at] != '{') {
      throw Error(ErrorCode::kInput, fmt::format("{}: expected a JSON object", where));
    }
    const std::size_t end = end_of_object(text, at);
    if (!add_conversation(json::parse(text.substr(at, end - at), where), sink)) return;
    at = skip_blanks(text, end);
    if (at < text.size() && text[at] == ',') {
      at = skip_blanks(text, at + 1);
    } else if (at < text.size() && text[at] != ']') {
      throw Error(ErrorCode::kInput, fmt::format("{}: expected a comma behind it", where));
    }
  }
  if (at >= text.size()) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: the file ends before the array does", sink.where()));
  }
}

}  // namespace moe::workload
