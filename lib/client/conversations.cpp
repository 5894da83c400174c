// Readers of data sets of text.

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/base/file_map.hpp"
#include "lib/client/request_source.hpp"
#include "lib/json/read.hpp"

namespace moe::client {
namespace {

using json::Json;

std::string text_in(const Json& object, const char* key, const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) {
    fail_input(where, fmt::format("expected a text \"{}\"", key));
  }
  return found->get<std::string>();
}

bool is_user(const std::string& role) {
  return role == "user" || role == "human" || role == "prompter";
}

// Entries {role, text}: user turns are kept, the answers between them are the server's business.
void take_messages(const Json& list, const char* role_key, const char* text_key,
                   const std::string& where, TextConversation& conversation) {
  if (!list.is_array()) fail_input(where, "expected an array of messages");
  for (const Json& entry : list) {
    if (!entry.is_object()) fail_input(where, "expected an object for each message");
    const std::string role = text_in(entry, role_key, where);
    if (is_user(role)) conversation.turns.push_back(text_in(entry, text_key, where));
    if (role == "system" && conversation.turns.empty()) {
      conversation.system = text_in(entry, text_key, where);
    }
  }
}

std::int64_t output_tokens_in(const Json& object, const std::string& where) {
  for (const char* key : {"output_tokens", "output_tokens_count", "max_tokens"}) {
    const auto found = object.find(key);
    if (found == object.end()) continue;
    if (!found->is_number_integer() || found->get<std::int64_t>() < 1 ||
        found->get<std::int64_t>() > workload::kMaxTokens) {
      fail_input(where, fmt::format("\"{}\" is not a number of tokens", key));
    }
    return found->get<std::int64_t>();
  }
  return 0;
}

TextConversation read_entry(const Json& entry, const std::string& where) {
  if (!entry.is_object()) fail_input(where, "expected an object");
  TextConversation conversation;
  if (const auto list = entry.find("conversations"); list != entry.end()) {
    take_messages(*list, "from", "value", where, conversation);
  } else if (const auto messages = entry.find("messages"); messages != entry.end()) {
    take_messages(*messages, "role", "content", where, conversation);
  } else if (const auto turns = entry.find("turns"); turns != entry.end()) {
    if (!turns->is_array()) fail_input(where, "expected an array \"turns\"");
    for (const Json& turn : *turns) {
      if (!turn.is_string()) fail_input(where, "expected texts in \"turns\"");
      conversation.turns.push_back(turn.get<std::string>());
    }
  } else {
    conversation.turns.push_back(text_in(entry, "prompt", where));
  }
  conversation.output_tokens.assign(conversation.turns.size(), output_tokens_in(entry, where));
  return conversation;
}

void keep(TextConversation conversation, std::int64_t max_turns,
          std::vector<TextConversation>& all) {
  std::erase_if(conversation.turns, [](const std::string& turn) { return turn.empty(); });
  conversation.output_tokens.resize(conversation.turns.size());
  if (conversation.turns.empty()) return;  // nothing a user said
  const auto limit = static_cast<std::size_t>(max_turns);
  if (max_turns > 0 && conversation.turns.size() > limit) {
    conversation.turns.resize(limit);
    conversation.output_tokens.resize(limit);
  }
  all.push_back(std::move(conversation));
}

}  // namespace

std::vector<TextConversation> parse_conversations(std::string_view text, const std::string& where,
                                                  std::int64_t max_turns) {
  std::vector<TextConversation> all;
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && text[first] == '[') {
    const Json document = json::parse(text, where, {.max_bytes = std::int64_t{2} << 30});
    for (std::size_t i = 0; i < document.size(); ++i) {
      keep(read_entry(document[i], fmt::format("{}: entry {}", where, i)), max_turns, all);
    }
  } else {
    std::int64_t number = 0;
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      const std::string_view line = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      ++number;
      if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      const std::string place = fmt::format("{}: line {}", where, number);
      keep(read_entry(json::parse(line, place), place), max_turns, all);
    }
  }
  if (all.empty()) fail_input(where, "expected conversations, found none with a text of the user");
  return all;
}

std::vector<TextConversation> read_conversations(const std::string& path, std::int64_t max_turns) {
  const FileMap map{std::filesystem::path(path)};
  const auto bytes = map.bytes();
  return parse_conversations({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path,
                             max_turns);
}

}  // namespace moe::client
