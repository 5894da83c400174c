#include <cstdlib>
#include <initializer_list>

#include <simdjson.h>

#include "lib/client/http_fetch.hpp"
#include "lib/client/server_metrics.hpp"

namespace moe::client {
namespace {

using simdjson::dom::element;

constexpr std::size_t kMaxModels = 1000;
constexpr double kInfoTimeout_s = 5.0;

// The first of these members that is a text.
std::string text_of(const element& object, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    std::string_view text;
    if (object[key].get(text) == simdjson::SUCCESS && !text.empty()) return std::string(text);
  }
  return {};
}

void read_models(const element& page, ServerIdentity& identity) {
  simdjson::dom::array models;
  if (page["data"].get(models) != simdjson::SUCCESS) return;
  for (const element model : models) {
    std::string id = text_of(model, {"id"});
    if (!id.empty() && identity.models.size() < kMaxModels) {
      identity.models.push_back(std::move(id));
    }
    std::int64_t tokens = 0;
    const bool has_limit = model["max_model_len"].get(tokens) == simdjson::SUCCESS ||
                           model["meta"]["n_ctx"].get(tokens) == simdjson::SUCCESS;
    if (has_limit && tokens > 0 && !identity.max_model_tokens) identity.max_model_tokens = tokens;
    if (text_of(model, {"owned_by"}) == "llamacpp") identity.kind = ServerKind::kLlamaCpp;
    if (text_of(model, {"owned_by"}) == "sglang") identity.kind = ServerKind::kSglang;
    if (text_of(model, {"owned_by"}) == "vllm") identity.kind = ServerKind::kVllm;
  }
}

std::optional<double> label_number(const MetricSample& sample, std::string_view key) {
  const std::string text(sample.label(key));
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const bool is_number =
      !text.empty() && end == text.c_str() + text.size() && value >= 0.0 && value <= 1e15;
  return is_number ? std::optional(value) : std::nullopt;
}

void read_cache_size(const MetricsPage& page, ServerIdentity& identity) {
  for (const MetricSample& sample : page.samples) {
    if (sample.name != "vllm:cache_config_info") continue;
    const std::optional<double> tokens = label_number(sample, "kv_cache_size_tokens");
    const std::optional<double> blocks = label_number(sample, "num_gpu_blocks");
    const std::optional<double> block_tokens = label_number(sample, "block_size");
    std::optional<double> size = tokens;
    if (!size && blocks && block_tokens) size = *blocks * *block_tokens;
    if (size) identity.kv_cache_tokens = identity.kv_cache_tokens.value_or(0.0) + *size;
  }
  const std::optional<double> total = page.sum("sglang:max_total_num_tokens");
  if (total) identity.kv_cache_tokens = total;
}

}  // namespace

ServerIdentity read_identity(const IdentityTexts& texts) {
  ServerIdentity identity;
  simdjson::dom::parser parser;
  element page;
  const auto is_read = [&](const std::string& text) {
    return !text.empty() && parser.parse(text).get(page) == simdjson::SUCCESS && page.is_object();
  };
  if (is_read(texts.models)) read_models(page, identity);
  if (is_read(texts.version)) identity.version = text_of(page, {"version"});
  if (is_read(texts.server_info)) {
    if (identity.version.empty()) identity.version = text_of(page, {"version"});
    if (identity.kind == ServerKind::kUnknown) identity.kind = ServerKind::kSglang;
  }
  if (is_read(texts.props)) {
    const std::string build = text_of(page, {"build_info"});
    if (!build.empty()) identity.version = build;
    if (!build.empty()) identity.kind = ServerKind::kLlamaCpp;
  }
  const MetricsPage metrics = parse_metrics_page(texts.metrics);
  // A page of metrics is the surest sign: a proxy may answer the other paths for its server.
  const ServerKind kind = kind_of(metrics);
  if (kind != ServerKind::kUnknown) identity.kind = kind;
  read_cache_size(metrics, identity);
  return identity;
}

ServerIdentity identify_server(const Endpoint& endpoint) {
  FetchOptions options;
  options.timeout_s = kInfoTimeout_s;
  const auto body = [&](const char* path) {
    FetchResult result = http_fetch(endpoint, path, options);
    return result.status == 200 ? std::move(result.body) : std::string();
  };
  IdentityTexts texts;
  texts.models = body("/v1/models");
  texts.version = body("/version");
  texts.metrics = body("/metrics");
  // Only where the others have not told: each unknown path is a line in the server's log.
  ServerIdentity identity = read_identity(texts);
  if (identity.kind == ServerKind::kVllm && !identity.version.empty()) return identity;
  texts.server_info = body("/get_server_info");
  texts.props = body("/props");
  return read_identity(texts);
}

}  // namespace moe::client
