#include "lib/scripted_server/script.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/scripted_server/fields.hpp"

namespace moe::scripted_server {
namespace {

using json::Json;

constexpr std::size_t kMaxReplies = 10000;
constexpr std::size_t kMaxTexts = 10000;
constexpr NumberRange kCount = {0, 1 << 20};
constexpr NumberRange kPositive = {1, 1 << 20};

// Reads the group KEY of `parent` when it is there.
template <typename Read>
void read_group(Fields& parent, const char* key, Read&& read) {
  const Json* object = parent.find(key);
  if (object == nullptr) return;
  Fields fields(*object, parent.at(key));
  read(fields);
  fields.finish();
}

void read_timing(Fields& fields, Timing& timing) {
  fields.read("headers_after_s", timing.headers_after_s);
  fields.read("first_token_s", timing.first_token_s);
  fields.read("token_interval_s", timing.token_interval_s);
  const Json* stalls = fields.find("stalls");
  if (stalls == nullptr) return;
  if (!stalls->is_array() || stalls->size() > kMaxReplies) {
    throw Error(ErrorCode::kInput, fields.at("stalls") + ": expected an array of pauses");
  }
  timing.stalls.clear();
  for (std::size_t i = 0; i < stalls->size(); ++i) {
    Fields one((*stalls)[i], fmt::format("{}/{}", fields.at("stalls"), i));
    Stall stall;
    one.read("before_token", stall.before_token, kPositive);
    one.read("for_s", stall.for_s);
    one.finish();
    timing.stalls.push_back(stall);
  }
}

// What the tokens say and are called.
void read_words(Fields& fields, Tokens& tokens) {
  const auto list = [&fields](const char* key, const char* what, auto&& is_one) {
    const Json* value = fields.find(key);
    if (value == nullptr) return value;
    if (!value->is_array() || value->empty() || value->size() > kMaxTexts ||
        !std::all_of(value->begin(), value->end(), is_one)) {
      throw Error(ErrorCode::kInput,
                  fmt::format("{}: expected an array of {}, not empty", fields.at(key), what));
    }
    return value;
  };
  const Json* texts = list("texts", "texts", [](const Json& one) { return one.is_string(); });
  if (texts != nullptr) tokens.texts = texts->get<std::vector<std::string>>();
  const Json* ids = list("ids", "token ids", [](const Json& one) {
    return one.is_number_unsigned() && one.get<std::uint64_t>() <= INT32_MAX;
  });
  if (ids != nullptr) tokens.ids = ids->get<std::vector<std::int32_t>>();
}

void read_tokens(Fields& fields, Tokens& tokens) {
  fields.read("limit", tokens.limit, kCount);
  fields.read("per_event", tokens.per_event, kPositive);
  fields.read("first_event", tokens.first_event, kCount);
  fields.read("events_per_write", tokens.events_per_write, kPositive);
  fields.read("reasoning", tokens.reasoning, kCount);
  fields.read("reasoning_field", tokens.reasoning_field);
  fields.read("tool", tokens.tool, kCount);
  fields.read("empty_every", tokens.empty_every, kCount);
  fields.read("withheld_every", tokens.withheld_every, kCount);
  if (tokens.withheld_every == 1) {
    throw Error(ErrorCode::kInput, fields.at("withheld_every") + ": with 1 no token has an event");
  }
  if (tokens.reasoning_field.empty() || tokens.reasoning_field.size() > 64 ||
      tokens.reasoning_field.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") !=
          std::string::npos) {
    throw Error(ErrorCode::kInput,
                fields.at("reasoning_field") + ": expected a name of lower-case letters");
  }
  read_words(fields, tokens);
}

void read_events(Fields& fields, Events& events) {
  fields.choose<Opening>("opening", events.opening,
                         {{"none", Opening::kNone},
                          {"role", Opening::kRole},
                          {"empty", Opening::kEmpty},
                          {"null", Opening::kNull},
                          {"progress", Opening::kProgress}});
  if (const std::optional<double> at = fields.number("opening_s")) events.opening_s = at;
  fields.choose<Finish>("finish", events.finish,
                        {{"separate", Finish::kSeparate},
                         {"on_last_token", Finish::kOnLastToken},
                         {"eos", Finish::kEos},
                         {"missing", Finish::kMissing}});
  fields.choose<UsageMode>("usage", events.usage,
                           {{"as_asked", UsageMode::kAsAsked},
                            {"final", UsageMode::kFinal},
                            {"last_choice", UsageMode::kLastChoice},
                            {"every_event", UsageMode::kEveryEvent},
                            {"never", UsageMode::kNever}});
  fields.read("usage_after_s", events.usage_after_s);
  fields.read("null_usage", events.null_usage);
  fields.read("usage_offset", events.usage_offset, {-1e6, 1e6});
  constexpr auto kAsAsked = Extra::kAsAsked;
  fields.choose<Extra>(
      "token_ids", events.token_ids,
      {{"as_asked", kAsAsked}, {"always", Extra::kAlways}, {"never", Extra::kNever}});
  fields.choose<Extra>(
      "timings", events.timings,
      {{"as_asked", kAsAsked}, {"always", Extra::kAlways}, {"never", Extra::kNever}});
  fields.read("done", events.done);
  fields.read("done_after_s", events.done_after_s);
}

void read_framing(Fields& fields, Framing& framing) {
  fields.choose<LineEnd>("line_end", framing.line_end,
                         {{"lf", LineEnd::kLf}, {"crlf", LineEnd::kCrLf}, {"cr", LineEnd::kCr}});
  fields.read("blank_after_colon", framing.blank_after_colon);
  fields.read("event_field", framing.event_field);
  fields.read("two_data_lines", framing.two_data_lines);
  fields.read("byte_order_mark", framing.byte_order_mark);
  fields.choose<Comments>("comments", framing.comments,
                          {{"none", Comments::kNone},
                           {"before_each", Comments::kBeforeEach},
                           {"inside_each", Comments::kInsideEach}});
  if (const auto every = fields.number("keepalive_s", {0.001, 3600})) framing.keepalive_s = every;
  fields.choose<Split>("split", framing.split,
                       {{"none", Split::kNone},
                        {"inside_character", Split::kInsideCharacter},
                        {"after_colon", Split::kAfterColon},
                        {"inside_line_end", Split::kInsideLineEnd},
                        {"every_bytes", Split::kEveryBytes}});
  fields.read("split_bytes", framing.split_bytes, kPositive);
  fields.read("split_gap_s", framing.split_gap_s, {0.0, 60.0});
}

void read_fault(Fields& fields, Fault& fault) {
  fields.choose<FaultKind>("kind", fault.kind,
                           {{"none", FaultKind::kNone},
                            {"cut", FaultKind::kCut},
                            {"clean_cut", FaultKind::kCleanCut},
                            {"reset", FaultKind::kReset},
                            {"hang", FaultKind::kHang},
                            {"error_event", FaultKind::kErrorEvent},
                            {"bad_json", FaultKind::kBadJson},
                            {"http_error", FaultKind::kHttpError}});
  fields.read("before_headers", fault.before_headers);
  fields.read("after_tokens", fault.after_tokens, kCount);
  fields.read("after_s", fault.after_s);
  fields.read("then_done", fault.then_done);
  std::int64_t status = fault.status;
  fields.read("status", status, {300, 599});
  fault.status = static_cast<int>(status);
  fields.read("message", fault.message);
}

// What a server of this make does when the script is silent.
Reply default_reply(Dialect dialect) {
  Reply reply;
  reply.tokens.texts = {" one", " two", " three", " four", " five", " six", " seven", " eight"};
  reply.tokens.reasoning_field = dialect == Dialect::kVllm ? "reasoning" : "reasoning_content";
  reply.events.opening = Opening::kRole;
  if (dialect == Dialect::kLlamaCpp) {
    reply.events.timings = Extra::kAsAsked;
    reply.after = AfterReply::kCloseUnannounced;
  }
  return reply;
}

Reply read_reply(const Json& value, const std::string& where, const Reply& defaults) {
  Reply reply = defaults;
  Fields fields(value, where);
  fields.read("times", reply.times, kPositive);
  read_group(fields, "timing", [&](Fields& group) { read_timing(group, reply.timing); });
  read_group(fields, "tokens", [&](Fields& group) { read_tokens(group, reply.tokens); });
  read_group(fields, "events", [&](Fields& group) { read_events(group, reply.events); });
  read_group(fields, "framing", [&](Fields& group) { read_framing(group, reply.framing); });
  read_group(fields, "http", [&](Fields& group) {
    group.choose<Body>("body", reply.body,
                       {{"chunked", Body::kChunked}, {"until_close", Body::kUntilClose}});
    group.choose<AfterReply>("after_reply", reply.after,
                             {{"keep_alive", AfterReply::kKeepAlive},
                              {"close", AfterReply::kClose},
                              {"close_unannounced", AfterReply::kCloseUnannounced}});
  });
  read_group(fields, "fault", [&](Fields& group) { read_fault(group, reply.fault); });
  fields.finish();
  return reply;
}

void read_server(Fields& fields, Script& script) {
  fields.choose<Dialect>("dialect", script.dialect,
                         {{"vllm", Dialect::kVllm},
                          {"sglang", Dialect::kSglang},
                          {"llama.cpp", Dialect::kLlamaCpp},
                          {"tensorrt-llm", Dialect::kTensorRtLlm}});
  fields.read("model", script.model);
  fields.read("version", script.version);
  fields.read("slots", script.slots, kCount);
  fields.read("kv_tokens", script.kv_tokens, {1, 1e12});
  fields.read("ready_after_s", script.ready_after_s);
  fields.read("metrics", script.has_metrics);
  fields.read("api_key", script.api_key);
  script.dies_after_s = fields.number("dies_after_s");
  script.dies_after_requests = fields.integer("dies_after_requests", kPositive);
  script.refuses_after_requests = fields.integer("refuses_after_requests", kPositive);
}

}  // namespace

Script parse_script(const Json& document, const std::string& where) {
  Script script;
  Fields fields(document, where);
  const std::optional<std::int64_t> version = fields.integer("schema_version", {0, 1e6});
  if (!version || *version != 1) {
    throw Error(ErrorCode::kInput, where + ": expected \"schema_version\": 1");
  }
  fields.read("about", script.about);
  read_group(fields, "server", [&](Fields& group) { read_server(group, script); });
  const Reply plain = default_reply(script.dialect);
  Reply defaults = plain;
  if (const Json* value = fields.find("defaults")) {
    defaults = read_reply(*value, fields.at("defaults"), plain);
  }
  const Json* replies = fields.find("replies");
  fields.finish();
  if (replies == nullptr) {
    script.replies.push_back(defaults);
    return script;
  }
  if (!replies->is_array() || replies->empty() || replies->size() > kMaxReplies) {
    throw Error(ErrorCode::kInput, where + "/replies: expected an array of replies, not empty");
  }
  for (std::size_t i = 0; i < replies->size(); ++i) {
    script.replies.push_back(
        read_reply((*replies)[i], fmt::format("{}/replies/{}", where, i), defaults));
  }
  return script;
}

Script read_script(const std::filesystem::path& file) {
  return parse_script(json::parse_file(file.string()), file.string());
}

}  // namespace moe::scripted_server
