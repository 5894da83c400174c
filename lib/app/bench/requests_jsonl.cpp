#include "lib/app/bench/requests_jsonl.hpp"

#include <cmath>

#include <nlohmann/json.hpp>

#include "lib/json/write.hpp"

namespace moe::app {
namespace {

template <typename Value>
json::Json or_null(const std::optional<Value>& value) {
  return value ? json::Json(*value) : json::Json(nullptr);
}

}  // namespace

std::string request_line(const client::RequestRecord& record, const std::string& load) {
  json::Json line;
  line["load"] = load;
  line["index"] = record.index;
  line["request_id"] = record.request_id;
  line["conversation"] = record.conversation;
  line["turn"] = record.turn;
  line["intended_s"] = record.intended_s;
  line["sent_s"] = or_null(record.sent_s);
  line["headers_s"] = or_null(record.headers_s);
  line["first_token_s"] = or_null(record.first_token_s);
  line["first_visible_s"] = or_null(record.first_visible_s);
  line["last_token_s"] = or_null(record.last_token_s);
  line["end_s"] = or_null(record.end_s);
  line["connect_s"] = or_null(record.connect_s);
  line["result"] = record.is_success() ? "ok" : client::name_of(record.failure);
  line["http_status"] = record.http_status;
  line["error"] = record.error.empty() ? json::Json(nullptr) : json::Json(record.error);
  line["sends"] = record.num_sends;
  line["finish_reason"] =
      record.finish_reason.empty() ? json::Json(nullptr) : json::Json(record.finish_reason);
  line["requested_prompt_tokens"] = record.requested_prompt_tokens;
  line["requested_output_tokens"] = record.requested_output_tokens;
  line["prompt_tokens"] = or_null(record.prompt_tokens);
  line["cached_tokens"] = or_null(record.cached_tokens);
  line["reasoning_tokens"] = or_null(record.reasoning_tokens);
  line["output_tokens"] = or_null(record.output_tokens);
  line["token_source"] = client::name_of(record.token_source);
  line["output_tokens_by_ids"] = or_null(record.id_output_tokens);
  line["output_tokens_by_usage"] = or_null(record.server_output_tokens);
  line["output_tokens_by_tokenizer"] = or_null(record.tokenizer_output_tokens);
  line["output_events"] = record.num_output_events;
  json::Json offsets = json::Json::array();
  json::Json tokens = json::Json::array();
  for (const client::TokenArrival& arrival : record.arrivals) {
    // Microseconds are what the clock gives.
    offsets.push_back(std::round(static_cast<double>(arrival.offset_s) * 1e6) * 1e-6);
    tokens.push_back(std::round(static_cast<double>(arrival.num_tokens) * 1e4) * 1e-4);
  }
  line["arrivals_s"] = std::move(offsets);
  line["arrival_tokens"] = std::move(tokens);
  if (!record.text.empty()) line["text"] = record.text;
  if (!record.token_ids.empty()) line["token_ids"] = record.token_ids;
  return json::dump(line, "request", {.indent = -1});
}

RequestsFile::RequestsFile(const std::string& path) : file_(path) {}

void RequestsFile::add(const client::LoadResult& result, const std::string& load) {
  for (const client::RequestRecord& record : result.records) {
    file_.write(request_line(record, load) + "\n");
  }
}

void RequestsFile::commit() {
  file_.commit();
}

}  // namespace moe::app
