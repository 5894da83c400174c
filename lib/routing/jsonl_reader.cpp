// JSON lines: one object a line, either one token in one layer ("topk_ids": [k]) or one batch in
// one layer ("topk_experts": [tokens][k]). A line {"type": "meta", ...} may say what the model is.

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/json/read.hpp"
#include "lib/routing/id_cleaner.hpp"
#include "lib/routing/readers.hpp"
#include "lib/routing/row_group.hpp"
#include "lib/routing/text_lines.hpp"

namespace moe::routing {
namespace {

// The names that writers use for one thing.
using Names = std::initializer_list<const char*>;
constexpr Names kIdNames = {"topk_ids", "topk_experts", "expert_ids", "experts"};
constexpr Names kWeightNames = {"topk_weights", "weights"};
constexpr Names kLayerNames = {"layer", "layer_id", "layer_idx"};
constexpr Names kStepNames = {"step", "batch_id", "forward_pass_id", "iteration"};
constexpr Names kTokenNames = {"token_idx", "token", "origin_rows", "position"};
constexpr Names kRequestNames = {"req_id", "request_id", "request"};
constexpr std::int64_t kMaxTopK = 4096;

const json::Json* find(const json::Json& object, Names names) {
  for (const char* name : names) {
    const auto found = object.find(name);
    if (found != object.end() && !found->is_null()) return &*found;
  }
  return nullptr;
}

// One line as rows of one layer.
struct Rows {
  std::int64_t layer = 0;
  std::optional<std::int64_t> step;
  std::optional<double> time_s;
  bool is_decode = false;
  std::int64_t top_k = 0;  // of the longest row
  std::vector<std::vector<std::int64_t>> ids;
  std::vector<std::vector<float>> weights;  // empty: none
  std::vector<std::int64_t> tokens;         // empty: none
  std::vector<std::string> requests;        // empty: none; one: for all rows
};

class LineParser {
 public:
  explicit LineParser(const std::string& place) : place_(place) {}

  Rows parse(const json::Json& line) const {
    Rows rows;
    const json::Json* layer = find(line, kLayerNames);
    rows.layer = layer != nullptr ? integer(*layer, "layer") : 0;
    if (rows.layer < 0 || rows.layer > 65535) fail("layer: expected 0 to 65535");
    if (const json::Json* step = find(line, kStepNames)) rows.step = integer(*step, "step");
    read_time(line, rows);
    if (const json::Json* phase = find(line, {"phase", "forward_mode"})) {
      rows.is_decode = phase->is_string() && phase->get<std::string>() == "decode";
    }
    read_ids(*find(line, kIdNames), rows);
    if (const json::Json* weights = find(line, kWeightNames)) read_weights(*weights, rows);
    if (const json::Json* tokens = find(line, kTokenNames)) {
      for (const json::Json* token : items(*tokens)) {
        rows.tokens.push_back(integer(*token, "token"));
      }
      if (rows.tokens.size() != rows.ids.size()) fail("expected one token index a row");
    }
    if (const json::Json* requests = find(line, kRequestNames)) {
      for (const json::Json* request : items(*requests)) {
        rows.requests.push_back(request->is_string() ? request->get<std::string>()
                                                     : request->dump());
      }
      if (rows.requests.size() != 1 && rows.requests.size() != rows.ids.size()) {
        fail("expected one request id, or one a row");
      }
    }
    return rows;
  }

 private:
  [[noreturn]] void fail(const std::string& message) const {
    throw Error(ErrorCode::kInput, place_ + ": " + message);
  }

  std::int64_t integer(const json::Json& value, const char* what) const {
    if (!value.is_number_integer()) fail(std::string(what) + ": expected a whole number");
    return value.get<std::int64_t>();
  }

  static std::vector<const json::Json*> items(const json::Json& value) {
    std::vector<const json::Json*> result;
    if (!value.is_array()) return {&value};
    for (const json::Json& item : value) result.push_back(&item);
    return result;
  }

  void read_time(const json::Json& line, Rows& rows) const {
    const json::Json* seconds = find(line, {"time_s", "timestamp"});
    const json::Json* milliseconds = find(line, {"time_ms"});
    const json::Json* time = seconds != nullptr ? seconds : milliseconds;
    if (time == nullptr) return;
    if (!time->is_number()) fail("time: expected a number");
    rows.time_s = time->get<double>() * (seconds != nullptr ? 1.0 : 1e-3);
  }

  void read_ids(const json::Json& value, Rows& rows) const {
    if (!value.is_array()) fail("expected a list of expert ids");
    const bool is_batch = !value.empty() && value[0].is_array();
    for (const json::Json* row : is_batch ? items(value) : std::vector{&value}) {
      if (!row->is_array()) fail("expected a list of expert ids for each token");
      std::vector<std::int64_t>& ids = rows.ids.emplace_back();
      for (const json::Json& id : *row) ids.push_back(integer(id, "expert id"));
      rows.top_k = std::max(rows.top_k, static_cast<std::int64_t>(ids.size()));
    }
    if (rows.top_k > kMaxTopK) fail(fmt::format("a token with {} experts", rows.top_k));
  }

  void read_weights(const json::Json& value, Rows& rows) const {
    if (!value.is_array()) fail("expected a list of weights");
    const bool is_batch = !value.empty() && value[0].is_array();
    for (const json::Json* row : is_batch ? items(value) : std::vector{&value}) {
      std::vector<float>& weights = rows.weights.emplace_back();
      for (const json::Json& weight : *row) {
        if (!weight.is_number()) fail("expected numbers as weights");
        weights.push_back(weight.get<float>());
      }
    }
    if (rows.weights.size() != rows.ids.size()) fail("expected weights for every token");
    for (std::size_t i = 0; i < rows.ids.size(); ++i) {
      if (rows.weights[i].size() != rows.ids[i].size()) fail("expected as many weights as experts");
    }
  }

  const std::string& place_;
};

class JsonLinesSource final : public TokenSource {
 public:
  JsonLinesSource(InputInfo info, SharedMap map, const OpenOptions& options)
      : info_(std::move(info)),
        lines_(std::move(map)),
        block_tokens_(options.block_tokens),
        cleaner_(info_, std::nullopt),
        group_(info_) {}

  void rewind() override {
    observations_.clear();
    lines_.rewind();
    group_.clear();
    pending_.reset();
    next_row_ = 0;
    token_of_layer_.clear();
    requests_.clear();
    last_step_ = 0;
    max_step_ = 0;
    has_step_ = false;
    last_time_s_.reset();
  }

  bool next(TokenBlock& block) override {
    return group_.next_block(block, block_tokens_, [this] { fill_group(); });
  }

 private:
  void fill_group() {
    while (true) {
      if (!pending_.has_value() && !read_line()) break;
      if (!add_pending()) break;
    }
    cleaner_.report(observations_);
  }

  bool read_line() {
    while (const auto line = lines_.next()) {
      const std::string place = lines_.place();
      const json::Json object = json::parse(*line, place);
      if (!object.is_object() || find(object, kIdNames) == nullptr) continue;
      pending_ = LineParser(place).parse(object);
      next_row_ = 0;
      return true;
    }
    return false;
  }

  // Moves rows of the pending line into the group; false when the group is complete before them.
  bool add_pending() {
    const auto top_k = static_cast<std::size_t>(info_.top_k);
    std::vector<std::int32_t> ids(top_k);
    std::vector<float> weights(top_k);
    for (; next_row_ < pending_->ids.size(); ++next_row_) {
      RowGroup::Row row = row_of(*pending_, next_row_);
      if (group_.is_next_group(row)) return false;
      std::fill(ids.begin(), ids.end(), kUnusedSlot);
      std::fill(weights.begin(), weights.end(), 0.0F);
      const std::vector<std::int64_t>& given = pending_->ids[next_row_];
      for (std::size_t k = 0; k < given.size() && k < top_k; ++k) {
        ids[k] = std::in_range<std::int32_t>(given[k]) ? static_cast<std::int32_t>(given[k])
                                                       : std::numeric_limits<std::int32_t>::max();
        if (!pending_->weights.empty()) weights[k] = pending_->weights[next_row_][k];
      }
      cleaner_.clean(row.layer_idx, std::span(ids).first(given.size()));
      note_order(row);
      if (pending_->tokens.empty()) ++token_of_layer_[row.layer_idx];
      group_.add(row, ids.data(), weights.data());
    }
    pending_.reset();
    return true;
  }

  RowGroup::Row row_of(const Rows& rows, std::size_t index) {
    RowGroup::Row row;
    // Steps must ascend for those who read on; what the file says is compared in note_order.
    row.step = rows.step.has_value() ? std::max(*rows.step, max_step_) : max_step_;
    row.layer_idx = std::distance(info_.layers.begin(),
                                  std::lower_bound(info_.layers.begin(), info_.layers.end(),
                                                   static_cast<std::int32_t>(rows.layer)));
    row.token = rows.tokens.empty() ? token_of_layer_[row.layer_idx] : rows.tokens[index];
    if (!rows.requests.empty()) {
      const std::string& name = rows.requests[rows.requests.size() == 1 ? 0 : index];
      row.request =
          requests_.emplace(name, static_cast<std::int64_t>(requests_.size())).first->second;
    }
    row.phase = rows.is_decode ? Phase::kDecode : Phase::kPrefill;
    row.time_s = rows.time_s.value_or(last_time_s_.value_or(0.0));
    return row;
  }

  void note_order(RowGroup::Row& row) {
    if (pending_->step.has_value()) {
      if (*pending_->step < last_step_) {
        observe("steps.backwards", 1,
                fmt::format("step {} after {} in {}", *pending_->step, last_step_, lines_.place()));
      } else if (*pending_->step > last_step_ + 1 && has_step_) {
        observe("steps.gap", *pending_->step - last_step_ - 1,
                fmt::format("step {} after {} in {}", *pending_->step, last_step_, lines_.place()));
      }
      last_step_ = *pending_->step;
      has_step_ = true;
      max_step_ = std::max(max_step_, last_step_);
    }
    last_time_s_ = row.time_s;
  }

  InputInfo info_;
  TextLines lines_;
  std::int64_t block_tokens_;
  IdCleaner cleaner_;
  RowGroup group_;
  std::optional<Rows> pending_;
  std::size_t next_row_ = 0;
  std::unordered_map<std::int64_t, std::int64_t> token_of_layer_;
  std::unordered_map<std::string, std::int64_t> requests_;
  std::int64_t last_step_ = 0;
  std::int64_t max_step_ = 0;
  bool has_step_ = false;
  std::optional<double> last_time_s_;
};

// A first pass: layers, the widest row, the largest id, and what lines carry.
class JsonLinesScan {
 public:
  explicit JsonLinesScan(const ReaderRequest& request) : request_(request) {}

  RoutingInput read() {
    TextLines lines(request_.maps.front());
    while (const auto line = lines.next()) {
      const std::string place = lines.place();
      const json::Json object = json::parse(*line, place);
      if (!object.is_object()) throw Error(ErrorCode::kInput, place + ": expected an object");
      if (find(object, kIdNames) == nullptr) {
        read_meta(object);
        continue;
      }
      add(LineParser(place).parse(object));
    }
    if (layers_.empty() || top_k_ == 0) {
      throw Error(ErrorCode::kInput, request_.where() +
                                         ": expected lines with topk_ids or topk_experts, found "
                                         "none");
    }
    return finish();
  }

 private:
  void read_meta(const json::Json& object) {
    if (object.contains("num_experts") && object["num_experts"].is_number_integer()) {
      const auto value = object["num_experts"].get<std::int64_t>();
      if (value > 0 && value <= 65536) num_experts_ = static_cast<std::int32_t>(value);
    }
    for (const char* key : {"model_id", "model"}) {
      if (object.contains(key) && object[key].is_string()) model_ = object[key].get<std::string>();
    }
  }

  void add(const Rows& rows) {
    layers_.insert(static_cast<std::int32_t>(rows.layer));
    top_k_ = std::max(top_k_, rows.top_k);
    for (const std::vector<std::int64_t>& ids : rows.ids) {
      for (const std::int64_t id : ids) largest_ = std::max(largest_, id);
    }
    has_weights_ |= !rows.weights.empty();
    has_time_ |= rows.time_s.has_value();
    has_requests_ |= !rows.requests.empty();
  }

  RoutingInput finish() {
    RoutingInput input;
    InputInfo& info = input.info;
    info.format = Format::kJsonLines;
    info.model = model_;
    info.layers.assign(layers_.begin(), layers_.end());
    info.top_k = static_cast<std::int32_t>(top_k_);
    info.num_shared_experts = request_.options.num_shared_experts;
    info.num_experts = request_.options.num_experts.value_or(num_experts_);
    if (info.num_experts == 0) {
      const std::int64_t inferred = largest_ + 1 - info.num_shared_experts;
      check_shape(request_.where(), info.num_layers(), inferred);
      info.num_experts = static_cast<std::int32_t>(inferred);
      add_observation(input.observations, "experts.inferred", inferred,
                      fmt::format("no line says how many experts there are: {} from the largest id "
                                  "(--experts says it)",
                                  inferred));
    }
    check_shape(request_.where(), info.num_layers(), info.num_experts);
    info.has_tokens = true;
    info.has_weights = has_weights_;
    info.has_time = has_time_;
    info.has_requests = has_requests_;
    info.name = request_.maps.front()->path().stem().string();
    input.tokens = std::make_unique<JsonLinesSource>(info, request_.maps.front(), request_.options);
    return input;
  }

  const ReaderRequest& request_;
  std::set<std::int32_t> layers_;
  std::int64_t top_k_ = 0;
  std::int64_t largest_ = -1;
  std::int32_t num_experts_ = 0;
  std::string model_;
  bool has_weights_ = false;
  bool has_time_ = false;
  bool has_requests_ = false;
};

}  // namespace

RoutingInput open_json_lines(const ReaderRequest& request) {
  return JsonLinesScan(request).read();
}

}  // namespace moe::routing
