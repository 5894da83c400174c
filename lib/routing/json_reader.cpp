// One JSON document: SGLang's expert location file, vLLM's API response with routed experts, or
// counts as nested lists, alone or in named sets.

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/base/text.hpp"
#include "lib/json/read.hpp"
#include "lib/routing/array_sources.hpp"
#include "lib/routing/id_cleaner.hpp"
#include "lib/routing/readers.hpp"

namespace moe::routing {
namespace {

using json::Json;

constexpr double kMaxCount = 9.0e18;

class JsonReader {
 public:
  explicit JsonReader(const ReaderRequest& request) : request_(request) {}

  RoutingInput read() {
    const SharedMap& map = request_.maps.front();
    const std::string_view text(reinterpret_cast<const char*>(map->bytes().data()),
                                map->bytes().size());
    const Json document = json::parse(text, map->path().string());
    if (document.is_array()) {
      if (!document.empty() && document[0].is_object()) return read_responses(document);
      return read_counts(document, "document");
    }
    if (!document.is_object()) fail("expected counts or routed experts");
    if (document.contains("logical_count")) {
      RoutingInput input = read_counts(document["logical_count"], "logical_count");
      input.info.format = Format::kSglangJson;
      return input;
    }
    if (document.contains("physical_to_logical_map")) {
      fail(
          "holds a placement (physical_to_logical_map), not a load; give the counts that it was "
          "made from");
    }
    if (has_routed_experts(document)) return read_responses(Json::array({document}));
    return read_set(document);
  }

 private:
  [[noreturn]] void fail(const std::string& message) const {
    throw Error(ErrorCode::kInput, request_.where() + ": " + message);
  }

  // --- counts ---
  RoutingInput read_set(const Json& document) {
    if (document.contains("counts")) return read_counted(document, "counts");
    std::string names;
    for (const auto& [name, set] : document.items()) {
      if (!set.is_object() || !set.contains("counts")) continue;
      if (name == request_.set_name) return read_counted(set, name);
      names += (names.empty() ? "" : ", ") + printable(name);
    }
    if (names.empty()) {
      fail("expected logical_count, counts, or routed_experts; found none of them");
    }
    fail(request_.set_name.empty()
             ? fmt::format("holds several sets of counts; name one of them after '#': {}", names)
             : fmt::format("has no set {}; it has {}", printable(request_.set_name), names));
  }

  RoutingInput read_counted(const Json& set, const std::string& name) {
    RoutingInput input = read_counts(set["counts"], name);
    InputInfo& info = input.info;
    if (set.contains("top_k") && set["top_k"].is_number_integer()) {
      const auto top_k = set["top_k"].get<std::int64_t>();
      if (top_k >= 1 && top_k <= info.num_experts) info.top_k = static_cast<std::int32_t>(top_k);
    }
    if (set.contains("model") && set["model"].is_string()) {
      info.model = set["model"].get<std::string>();
    }
    if (set.contains("num_experts") && set["num_experts"] != info.num_experts) {
      fail(fmt::format("{}: num_experts does not fit rows of {}", printable(name),
                       info.num_experts));
    }
    if (!set.contains("layers")) return input;
    const Json& layers = set["layers"];
    if (!layers.is_array() || static_cast<std::int64_t>(layers.size()) != info.num_layers()) {
      fail(fmt::format("{}: layers: expected a list of {} numbers", printable(name),
                       info.num_layers()));
    }
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const bool is_number = layers[i].is_number_integer();
      const std::int64_t number = is_number ? layers[i].get<std::int64_t>() : -1;
      if (number < 0 || number > 65535 || (i > 0 && number <= info.layers[i - 1])) {
        fail(printable(name) + ": layers: expected ascending numbers from 0 to 65535");
      }
      info.layers[i] = static_cast<std::int32_t>(number);
    }
    return input;
  }

  // [layers][experts], or [steps][layers][experts].
  RoutingInput read_counts(const Json& value, const std::string& what) {
    const bool is_deep = depth_of(value) == 3;
    if (!is_deep && depth_of(value) != 2) {
      fail(printable(what) + ": expected numbers in lists [layers][experts]");
    }
    RoutingInput input;
    InputInfo& info = input.info;
    info.format = Format::kCountMatrix;
    const Json& first = is_deep ? value[0] : value;
    const std::size_t num_layers = first.size();
    const std::size_t num_experts = first[0].size();
    check_shape(request_.where(), static_cast<std::int64_t>(num_layers),
                static_cast<std::int64_t>(num_experts));
    info.layers =
        number_layers(static_cast<std::int64_t>(num_layers), request_.options.first_layer);
    info.num_experts = static_cast<std::int32_t>(num_experts);
    info.top_k = request_.options.top_k.value_or(0);
    std::vector<CountStep> steps;
    for (std::size_t s = 0; s < (is_deep ? value.size() : 1); ++s) {
      CountStep step;
      step.step = static_cast<std::int64_t>(s);
      const Json& matrix = is_deep ? value[s] : value;
      if (!matrix.is_array() || matrix.size() != num_layers) {
        fail(fmt::format("{}: expected {} layers in every step", printable(what), num_layers));
      }
      for (std::size_t l = 0; l < num_layers; ++l) {
        const Json& row = matrix[l];
        if (!row.is_array() || row.size() != num_experts) {
          fail(fmt::format("{}: layer {}: expected {} numbers", printable(what), l, num_experts));
        }
        for (const Json& count : row) step.counts.push_back(count_of(count, l, input));
      }
      steps.push_back(std::move(step));
    }
    input.counts = make_memory_count_source(std::move(steps));
    return input;
  }

  static int depth_of(const Json& value) {
    int depth = 0;
    const Json* at = &value;
    while (at->is_array() && !at->empty() && depth < 4) {
      at = &(*at)[0];
      ++depth;
    }
    return at->is_number() ? depth : 0;
  }

  std::int64_t count_of(const Json& value, std::size_t layer, RoutingInput& input) const {
    if (!value.is_number()) fail(fmt::format("layer {}: expected numbers", layer));
    if (value.is_number_unsigned() &&
        value.get<std::uint64_t>() >
            static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      fail(fmt::format("layer {}: a count of 2^63 or more", layer));
    }
    std::int64_t count = 0;
    if (value.is_number_integer()) {
      count = value.get<std::int64_t>();
    } else {
      const auto real = value.get<double>();
      if (std::abs(real) > kMaxCount) fail(fmt::format("layer {}: a count of {}", layer, real));
      count = std::llround(real);
      if (static_cast<double>(count) != real) {
        add_observation(input.observations, "counts.fractional", 1,
                        fmt::format("{} became {}", real, count));
      }
    }
    if (count >= 0) return count;
    add_observation(
        input.observations, "counts.negative", 1,
        fmt::format("{} in layer {}: a 32-bit counter that wrapped around", count, layer));
    return 0;
  }

  // --- routed experts ---
  static bool has_routed_experts(const Json& object) {
    return object.contains("routed_experts") || object.contains("prompt_routed_experts") ||
           (object.contains("choices") && object["choices"].is_array());
  }

  RoutingInput read_responses(const Json& responses) {
    for (const Json& response : responses) {
      if (!response.is_object()) fail("expected a list of responses");
      if (response.contains("prompt_routed_experts")) start_request();
      add_part(response, "prompt_routed_experts");
      add_part(response, "routed_experts");
      if (!response.contains("choices") || !response["choices"].is_array()) continue;
      for (const Json& choice : response["choices"]) {
        if (!choice.is_object()) continue;
        add_part(choice, "prompt_routed_experts");
        add_part(choice, "routed_experts");
        start_request();
      }
    }
    if (num_layers_ == 0) {
      fail(
          "no routed experts in the response: the server must run with "
          "--enable-return-routed-experts");
    }
    return make_tokens();
  }

  void start_request() {
    if (num_tokens_ > 0) sequence_tokens_.push_back(num_tokens_);
    num_tokens_ = 0;
  }

  void add_part(const Json& object, const char* key) {
    const auto found = object.find(key);
    if (found == object.end() || found->is_null()) return;
    if (!found->is_array()) fail(fmt::format("{}: expected [tokens][layers][k]", key));
    for (const Json& token : *found) {
      if (!token.is_array() || token.empty() || !token[0].is_array() || token[0].empty()) {
        fail(fmt::format("{}: expected [tokens][layers][k]", key));
      }
      if (num_layers_ == 0) {
        num_layers_ = token.size();
        top_k_ = token[0].size();
      }
      if (token.size() != num_layers_) {
        fail(fmt::format("{}: expected {} layers for every token", key, num_layers_));
      }
      for (const Json& layer : token) {
        if (!layer.is_array() || layer.size() != top_k_) {
          fail(fmt::format("{}: expected {} experts in every layer", key, top_k_));
        }
        for (const Json& id : layer) {
          if (!id.is_number_integer()) fail(fmt::format("{}: expected whole numbers", key));
          const auto number = id.get<std::int64_t>();
          ids_.push_back(std::in_range<std::int32_t>(number)
                             ? static_cast<std::int32_t>(number)
                             : std::numeric_limits<std::int32_t>::max());
        }
      }
      ++num_tokens_;
    }
  }

  RoutingInput make_tokens() {
    start_request();
    RoutingInput input;
    InputInfo& info = input.info;
    info.format = Format::kVllmRoutedExperts;
    info.layers =
        number_layers(static_cast<std::int64_t>(num_layers_), request_.options.first_layer);
    info.has_tokens = true;
    info.has_requests = true;
    info.num_shared_experts = request_.options.num_shared_experts;
    info.top_k = static_cast<std::int32_t>(top_k_);
    const std::int32_t largest = *std::max_element(ids_.begin(), ids_.end());
    info.num_experts = request_.options.num_experts.value_or(0);
    if (info.num_experts == 0) {
      info.num_experts = std::min(largest, 65536) + 1 - info.num_shared_experts;
      add_observation(input.observations, "experts.inferred", info.num_experts,
                      fmt::format("the response does not say how many experts there are: {} from "
                                  "the largest id (--experts says it)",
                                  info.num_experts));
    }
    check_shape(request_.where(), info.num_layers(), info.num_experts);
    auto ids = std::make_shared<const std::vector<std::int32_t>>(std::move(ids_));
    const auto row = static_cast<std::int64_t>(num_layers_ * top_k_);
    ArrayView view;
    view.type = ElementType::kI32;
    view.shape = {static_cast<std::int64_t>(ids->size()) / row, info.top_k};
    view.strides = {row, 1};
    SegmentPlan plan;
    plan.num_segments = 1;
    plan.num_tokens = view.shape[0];
    plan.fill = [ids, view, lengths = sequence_tokens_, top_k = top_k_, num_layers = num_layers_](
                    std::int64_t, TokenSegment& segment) {
      segment.num_tokens = view.shape[0];
      segment.sequence_tokens = lengths;
      for (std::size_t l = 0; l < num_layers; ++l) {
        ArrayView rows = view;
        rows.bytes = std::as_bytes(std::span(*ids).subspan(l * top_k));
        segment.rows.push_back(std::move(rows));
      }
    };
    input.tokens = make_segment_source(info, std::move(plan), request_.options.block_tokens);
    return input;
  }

  const ReaderRequest& request_;
  std::size_t num_layers_ = 0;
  std::size_t top_k_ = 0;
  std::vector<std::int32_t> ids_;  // [tokens, layers, k]
  std::int64_t num_tokens_ = 0;    // of the request at hand
  std::vector<std::int64_t> sequence_tokens_;
};

}  // namespace

RoutingInput open_json(const ReaderRequest& request) {
  return JsonReader(request).read();
}

}  // namespace moe::routing
