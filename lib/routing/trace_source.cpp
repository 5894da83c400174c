// The toolkit's own trace (trace.hpp), read step by step from the mapped file.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/base/parse_number.hpp"
#include "lib/routing/array_file.hpp"
#include "lib/routing/array_sources.hpp"
#include "lib/routing/id_cleaner.hpp"
#include "lib/routing/readers.hpp"
#include "lib/routing/row_group.hpp"
#include "lib/routing/trace_columns.hpp"

namespace moe::routing {
namespace {

constexpr std::int64_t kScanRows = 65536;

using Columns = std::array<ArrayView, kTraceColumns.size()>;

template <typename Element>
Element element_at(const ArrayView& column, std::int64_t index) {
  Element value;
  std::memcpy(&value, column.bytes.data() + index * static_cast<std::int64_t>(sizeof(Element)),
              sizeof(Element));
  return value;
}

class TraceSource final : public TokenSource {
 public:
  TraceSource(InputInfo info, Columns columns, SharedMap map, std::vector<std::int32_t> layer_idx,
              std::int64_t block_tokens)
      : info_(std::move(info)),
        columns_(std::move(columns)),
        map_(std::move(map)),
        layer_idx_(std::move(layer_idx)),
        block_tokens_(block_tokens),
        group_(info_) {
    rewind();
  }

  void rewind() override {
    observations_.clear();
    row_ = 0;
    group_.clear();
    releasers_.assign(columns_.size(), PageReleaser(map_.get()));
  }

  bool next(TokenBlock& block) override {
    return group_.next_block(block, block_tokens_, [this] {
      if (row_ < num_rows()) read_group();
    });
  }

 private:
  [[nodiscard]] std::int64_t num_rows() const { return columns_[kStep].shape[0]; }

  void read_group() {
    const auto top_k = static_cast<std::size_t>(info_.top_k);
    std::vector<std::int32_t> ids(top_k);
    std::vector<float> weights(top_k);
    for (; row_ < num_rows(); ++row_) {
      RowGroup::Row row;
      row.step = element_at<std::int32_t>(columns_[kStep], row_);
      row.layer_idx =
          layer_idx_[static_cast<std::size_t>(element_at<std::int32_t>(columns_[kLayer], row_))];
      if (group_.is_next_group(row)) break;
      row.request = element_at<std::int32_t>(columns_[kRequest], row_);
      row.token = element_at<std::int32_t>(columns_[kToken], row_);
      row.phase = element_at<Phase>(columns_[kPhase], row_);
      row.time_s = element_at<double>(columns_[kTime], row_);
      const std::int64_t first = row_ * info_.top_k;
      std::memcpy(ids.data(), columns_[kIds].bytes.data() + first * 4, top_k * 4);
      std::memcpy(weights.data(), columns_[kWeights].bytes.data() + first * 4, top_k * 4);
      check(row, ids, weights);
      last_step_ = row.step;
      group_.add(row, ids.data(), weights.data());
    }
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const std::int64_t width = kTraceColumns[c].is_per_expert ? info_.top_k : 1;
      releasers_[c].used_up_to(columns_[c].bytes.data() +
                               row_ * width * kTraceColumns[c].element_bytes);
    }
  }

  void check(const RowGroup::Row& row, const std::vector<std::int32_t>& ids,
             const std::vector<float>& weights) const {
    for (const float weight : weights) {
      if (!std::isfinite(weight))
        fail_input(where(), fmt::format("weights row {}: not finite", row_));
    }
    for (const std::int32_t id : ids) {
      if (id >= 0 && id < info_.num_experts) continue;
      fail_input(where(), fmt::format("ids row {}: expected 0 to {}, found {}", row_,
                                      info_.num_experts - 1, id));
    }
    if (row.phase != Phase::kPrefill && row.phase != Phase::kDecode) {
      fail_input(where(), fmt::format("phase row {}: expected 0 or 1", row_));
    }
    if (row.token < 0 || row.request < 0 || row.step < 0) {
      fail_input(where(),
                 fmt::format("row {}: token, request and step must not be negative", row_));
    }
    if (row_ > 0 && row.step < last_step_) {
      fail_input(where(), fmt::format("step row {}: expected ascending steps", row_));
    }
    if (!std::isfinite(row.time_s))
      fail_input(where(), fmt::format("time_s row {}: not finite", row_));
  }

  [[nodiscard]] std::string where() const { return map_->path().string(); }

  InputInfo info_;
  Columns columns_;
  SharedMap map_;
  std::vector<std::int32_t> layer_idx_;  // by model layer number; -1 for dense layers
  std::int64_t block_tokens_;
  RowGroup group_;
  std::int64_t row_ = 0;
  std::int64_t last_step_ = 0;
  std::vector<PageReleaser> releasers_;
};

std::int32_t metadata_count(const ArrayFile& file, const std::string& where, const char* key) {
  const std::string text = file.metadata_text(key);
  const auto value = parse_number<std::int32_t>(text);
  if (!value || *value < 1 || *value > 65536) {
    fail_input(where, fmt::format("__metadata__ {}: expected 1 to 65536, found \"{}\"", key, text));
  }
  return *value;
}

Columns locate_columns(const ArrayFile& file, const std::string& where, std::int64_t top_k) {
  Columns columns;
  std::int64_t num_rows = 0;
  for (std::size_t c = 0; c < kTraceColumns.size(); ++c) {
    const TraceColumn& column = kTraceColumns[c];
    const std::string name(column.name);
    const ArrayView* array = file.find(name);
    if (array == nullptr) fail_input(where, "tensor " + name + " is missing");
    if (array->type != element_of_safetensors(column.dtype)) {
      fail_input(where, fmt::format("tensor {}: expected dtype {}", name, column.dtype));
    }
    if (c == 0) num_rows = array->rank() == 1 ? array->shape[0] : 0;
    const bool fits = array->rank() == (column.is_per_expert ? 2U : 1U) &&
                      array->shape[0] == num_rows &&
                      (!column.is_per_expert || array->shape[1] == top_k);
    if (!fits) {
      fail_input(where, fmt::format("tensor {}: expected {} rows{}, found {}", name, num_rows,
                                    column.is_per_expert ? fmt::format(" of {}", top_k) : "",
                                    array->shape_text()));
    }
    columns[c] = *array;
  }
  return columns;
}

}  // namespace

RoutingInput open_moekit_trace(const ReaderRequest& request) {
  const SharedMap& map = request.maps.front();
  const std::string where = request.where();
  const ArrayFile file = open_safetensors(map);
  if (file.metadata_text("schema_version") != fmt::format("{}", kTraceSchemaVersion)) {
    fail_input(where, fmt::format("expected schema_version {}, found \"{}\"", kTraceSchemaVersion,
                                  file.metadata_text("schema_version")));
  }
  RoutingInput input;
  InputInfo& info = input.info;
  info.format = Format::kMoekitTrace;
  info.model = file.metadata_text("model");
  info.num_experts = metadata_count(file, where, "num_experts");
  info.top_k = metadata_count(file, where, "top_k");
  if (info.top_k > info.num_experts)
    fail_input(where, "__metadata__ top_k is larger than num_experts");
  const std::int32_t num_layers = metadata_count(file, where, "num_layers");
  info.has_tokens = true;
  info.has_weights = true;
  info.has_time = true;
  info.has_requests = true;
  info.name = map->path().stem().string();
  Columns columns = locate_columns(file, where, info.top_k);

  std::vector<std::int32_t> layer_idx(static_cast<std::size_t>(num_layers), -1);
  PageReleaser releaser(map.get());
  std::vector<std::int32_t> layers;
  for (std::int64_t row = 0; row < columns[kLayer].shape[0]; row += kScanRows) {
    const std::int64_t count = std::min(kScanRows, columns[kLayer].shape[0] - row);
    layers.resize(static_cast<std::size_t>(count));
    read_integers(columns[kLayer], row, std::span(layers));
    for (const std::int32_t layer : layers) {
      if (layer < 0 || layer >= num_layers) {
        fail_input(where, fmt::format("layer: expected 0 to {}, found {}", num_layers - 1, layer));
      }
      layer_idx[static_cast<std::size_t>(layer)] = 0;
    }
    releaser.used_up_to(columns[kLayer].bytes.data() + (row + count) * 4);
  }
  for (std::int32_t layer = 0; layer < num_layers; ++layer) {
    std::int32_t& idx = layer_idx[static_cast<std::size_t>(layer)];
    if (idx < 0) continue;
    idx = static_cast<std::int32_t>(info.layers.size());
    info.layers.push_back(layer);
  }
  if (info.layers.empty()) fail_input(where, "the trace has no rows");
  check_shape(where, info.num_layers(), info.num_experts);
  input.tokens = std::make_unique<TraceSource>(info, std::move(columns), map, std::move(layer_idx),
                                               request.options.block_tokens);
  return input;
}

}  // namespace moe::routing
