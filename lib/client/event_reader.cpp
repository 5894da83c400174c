#include "lib/client/event_reader.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <simdjson.h>

namespace moe::client {
namespace {

namespace dom = simdjson::dom;

// Texts of choices and token ids go into buffers that do not grow while they are filled: neither
// can be longer than the data they come from.
struct Buffers {
  std::string tools;
};

std::string_view text_of(const dom::element& value) {
  std::string_view text;
  return value.get(text) == simdjson::SUCCESS ? text : std::string_view{};
}

std::optional<std::int64_t> count_of(const dom::element& value) {
  std::int64_t count = 0;
  if (value.get(count) != simdjson::SUCCESS || count < 0) return std::nullopt;
  return count;
}

std::optional<double> milliseconds_of(const dom::element& value) {
  double number = 0.0;
  if (value.get(number) != simdjson::SUCCESS || !(number >= 0.0)) return std::nullopt;
  return number * 1e-3;
}

std::optional<std::int64_t> count_in(const dom::element& value, const char* key) {
  dom::element found;
  if (value.at_key(key).get(found) != simdjson::SUCCESS) return std::nullopt;
  return count_of(found);
}

std::optional<Usage> read_usage(const dom::element& value) {
  dom::object object;
  if (value.get(object) != simdjson::SUCCESS) return std::nullopt;
  Usage usage;
  bool has_count = false;
  for (const auto& [name, member] : object) {
    if (name == "prompt_tokens") {
      usage.prompt_tokens = count_of(member).value_or(0);
    } else if (name == "completion_tokens") {
      const std::optional<std::int64_t> count = count_of(member);
      has_count = count.has_value();
      usage.completion_tokens = count.value_or(0);
    } else if (name == "prompt_tokens_details") {
      usage.cached_tokens = count_in(member, "cached_tokens");
    } else if (name == "completion_tokens_details") {
      usage.reasoning_tokens = count_in(member, "reasoning_tokens");
    } else if (name == "reasoning_tokens" && !usage.reasoning_tokens) {
      usage.reasoning_tokens = count_of(member);
    }
  }
  if (!has_count) return std::nullopt;
  return usage;
}

std::optional<ServerTimings> read_timings(const dom::element& value) {
  dom::object object;
  if (value.get(object) != simdjson::SUCCESS) return std::nullopt;
  ServerTimings timings;
  for (const auto& [name, member] : object) {
    if (name == "prompt_ms") timings.prompt_s = milliseconds_of(member);
    if (name == "predicted_ms") timings.predicted_s = milliseconds_of(member);
    if (name == "predicted_n") timings.predicted_tokens = count_of(member);
  }
  return timings;
}

void add_function(const dom::element& function, Buffers& buffers) {
  dom::object object;
  if (function.get(object) != simdjson::SUCCESS) return;
  for (const auto& [name, member] : object) {
    if (name == "name" || name == "arguments") buffers.tools.append(text_of(member));
  }
}

void read_tools(const dom::element& value, Buffers& buffers, ChoiceDelta& choice) {
  const std::size_t begin = buffers.tools.size();
  dom::array calls;
  if (value.get(calls) == simdjson::SUCCESS) {
    for (const dom::element call : calls) {
      choice.has_tool = true;
      dom::element function;
      if (call.at_key("function").get(function) == simdjson::SUCCESS) {
        add_function(function, buffers);
      }
    }
  } else if (value.is_object()) {  // "function_call", the older form
    choice.has_tool = true;
    add_function(value, buffers);
  }
  if (choice.has_tool) choice.tool_text = std::string_view(buffers.tools).substr(begin);
}

void read_delta(const dom::element& value, Buffers& buffers, ChoiceDelta& choice) {
  dom::object object;
  if (value.get(object) != simdjson::SUCCESS) return;
  for (const auto& [name, member] : object) {
    if (name == "content" || (name == "refusal" && choice.text.empty())) {
      choice.text = text_of(member);
    } else if (name == "reasoning" || name == "reasoning_content") {
      if (choice.reasoning.empty()) choice.reasoning = text_of(member);
    } else if (name == "role") {
      choice.has_role = member.is_string();
    } else if (name == "tool_calls" || name == "function_call") {
      read_tools(member, buffers, choice);
    }
  }
}

void read_ids(const dom::element& value, StreamEvent& event, ChoiceDelta& choice) {
  dom::array ids;
  if (value.get(ids) != simdjson::SUCCESS) return;
  choice.has_token_ids = true;
  choice.first_token_id = static_cast<std::int32_t>(event.token_ids.size());
  for (const dom::element id : ids) {
    std::int64_t number = 0;
    if (id.get(number) != simdjson::SUCCESS) number = -1;
    number = std::clamp<std::int64_t>(number, -1, INT32_MAX);
    event.token_ids.push_back(static_cast<std::int32_t>(number));
    ++choice.num_token_ids;
  }
}

std::int32_t count_logprobs(const dom::element& value) {
  for (const char* key : {"tokens", "content"}) {
    dom::array tokens;
    if (value.at_key(key).get(tokens) == simdjson::SUCCESS) {
      return static_cast<std::int32_t>(tokens.size());
    }
  }
  return 0;
}

void read_choice(const dom::element& value, Buffers& buffers, StreamEvent& event) {
  ChoiceDelta choice;
  dom::object object;
  if (value.get(object) != simdjson::SUCCESS) return;
  for (const auto& [name, member] : object) {
    if (name == "delta" || name == "message") {
      read_delta(member, buffers, choice);
    } else if (name == "text") {
      choice.text = text_of(member);
    } else if (name == "finish_reason") {
      choice.finish_reason = text_of(member);
    } else if (name == "token_ids") {
      read_ids(member, event, choice);
    } else if (name == "logprobs") {
      choice.num_logprobs = count_logprobs(member);
    } else if (name == "index") {
      const std::int64_t index = count_of(member).value_or(0);
      choice.index = static_cast<std::int32_t>(std::min<std::int64_t>(index, INT32_MAX));
    }
  }
  event.choices.push_back(choice);
}

void read_error(const dom::element& value, StreamEvent& event) {
  event.kind = EventKind::kError;
  dom::object object;
  if (value.get(object) != simdjson::SUCCESS) {
    event.error_message = text_of(value);
    return;
  }
  for (const auto& [name, member] : object) {
    if (name == "message" || name == "msg") event.error_message = text_of(member);
    if (name == "type") event.error_type = text_of(member);
    if (name == "code") event.error_code = count_of(member).value_or(0);
  }
}

// Errors that stand at the top: {"object": "error", "message": ...} and {"detail": ...}.
void read_flat_error(const dom::element& root, StreamEvent& event) {
  dom::element found;
  if (root.at_key("object").get(found) == simdjson::SUCCESS && text_of(found) == "error") {
    read_error(root, event);
    return;
  }
  if (root.at_key("detail").get(found) != simdjson::SUCCESS) return;
  dom::array list;
  if (found.get(list) == simdjson::SUCCESS && list.size() > 0) found = *list.begin();
  read_error(found, event);
}

}  // namespace

struct EventReader::Impl {
  void read_object(const dom::element& root, const dom::object& object);

  dom::parser parser;
  std::vector<std::uint8_t> padded;
  Buffers buffers;
  StreamEvent event;
};

void EventReader::Impl::read_object(const dom::element& root, const dom::object& object) {
  bool has_error = false;
  bool has_choices = false;
  for (const auto& [name, member] : object) {
    if (name == "choices") {
      dom::array choices;
      if (member.get(choices) != simdjson::SUCCESS) continue;
      has_choices = true;
      for (const dom::element choice : choices) read_choice(choice, buffers, event);
    } else if (name == "usage") {
      event.usage = read_usage(member);
    } else if (name == "error") {
      if (member.is_null()) continue;
      read_error(member, event);
      has_error = true;
    } else if (name == "timings") {
      event.timings = read_timings(member);
    } else if (name == "prompt_progress") {
      event.has_prompt_progress = !member.is_null();
    } else if (name == "model") {
      event.model = text_of(member);
    } else if (name == "system_fingerprint") {
      event.fingerprint = text_of(member);
    }
  }
  if (has_error) return;
  if (!event.choices.empty()) {
    event.kind = EventKind::kChoices;
  } else if (event.usage) {
    event.kind = EventKind::kUsageOnly;
  } else if (!has_choices) {
    read_flat_error(root, event);
  }
}

EventReader::EventReader() : impl_(std::make_unique<Impl>()) {}
EventReader::EventReader(EventReader&&) noexcept = default;
EventReader& EventReader::operator=(EventReader&&) noexcept = default;
EventReader::~EventReader() = default;

const StreamEvent& EventReader::read(std::string_view data) {
  StreamEvent& event = impl_->event;
  std::vector<ChoiceDelta> choices = std::move(event.choices);
  std::vector<std::int32_t> ids = std::move(event.token_ids);
  choices.clear();
  ids.clear();
  event = StreamEvent{};
  event.choices = std::move(choices);
  event.token_ids = std::move(ids);
  const std::size_t first = data.find_first_not_of(" \t\r\n");
  data = first == std::string_view::npos ? std::string_view{} : data.substr(first);
  data = data.substr(0, data.find_last_not_of(" \t\r\n") + 1);
  if (data == "[DONE]") {
    event.kind = EventKind::kDone;
    return event;
  }
  if (data == "null") {
    event.kind = EventKind::kNull;
    return event;
  }
  // The parser reads past the end in whole registers.
  const std::size_t needed = data.size() + simdjson::SIMDJSON_PADDING;
  if (impl_->padded.size() < needed) impl_->padded.resize(needed * 2);
  if (!data.empty()) std::memcpy(impl_->padded.data(), data.data(), data.size());
  impl_->buffers.tools.clear();
  impl_->buffers.tools.reserve(data.size());
  dom::element root;
  if (impl_->parser.parse(impl_->padded.data(), data.size(), false).get(root) !=
      simdjson::SUCCESS) {
    event.kind = EventKind::kMalformed;
    return event;
  }
  dom::object object;
  if (root.get(object) == simdjson::SUCCESS) impl_->read_object(root, object);
  return event;
}

}  // namespace moe::client
