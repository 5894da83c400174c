#include "lib/routing/trace.hpp"

#include <array>
#include <cmath>
#include <cstring>
#include <span>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/base/file_map.hpp"
#include "lib/base/int_math.hpp"
#include "lib/base/parse_number.hpp"
#include "lib/json/read.hpp"
#include "lib/routing/trace_columns.hpp"

namespace moe::routing {
namespace {

constexpr std::int32_t kMaxTraceExperts = 65536;
constexpr std::int32_t kMaxTraceLayers = 65536;

// One trace file while it is being read; every message starts with its name.
class Reader {
 public:
  Reader(const FileMap& map, const TraceLimits& limits) : map_(map), limits_(limits) {}

  Trace read() {
    const json::Json header = read_header();
    Trace trace;
    read_metadata(header, trace.info);
    locate_columns(header, trace.info);
    copy_column(kTime, trace.time_s);
    copy_column(kIds, trace.ids);
    copy_column(kWeights, trace.weights);
    copy_column(kStep, trace.step);
    copy_column(kLayer, trace.layer);
    copy_column(kToken, trace.token);
    copy_column(kRequest, trace.request);
    copy_column(kPhase, trace.phase);
    check_rows(trace);
    return trace;
  }

 private:
  [[noreturn]] void fail(const std::string& message) const {
    throw Error(ErrorCode::kInput, fmt::format("{}: {}", map_.path().string(), message));
  }

  json::Json read_header() {
    const std::span<const std::byte> bytes = map_.bytes();
    std::uint64_t header_bytes = 0;
    if (bytes.size() < sizeof(header_bytes))
      fail("expected a safetensors file, found 8 bytes or less");
    std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
    if (header_bytes > static_cast<std::uint64_t>(limits_.max_header_bytes) ||
        header_bytes > bytes.size() - sizeof(header_bytes)) {
      fail(
          fmt::format("expected a header of at most {} bytes inside the file, found a length of {}",
                      limits_.max_header_bytes, header_bytes));
    }
    data_ = bytes.subspan(sizeof(header_bytes) + header_bytes);
    const auto* text = reinterpret_cast<const char*>(bytes.data() + sizeof(header_bytes));
    json::Json header =
        json::parse(std::string_view(text, header_bytes), map_.path().string() + ": header");
    if (!header.is_object()) fail("expected a JSON object as header");
    return header;
  }

  std::string metadata_text(const json::Json& metadata, const char* key) const {
    const auto found = metadata.find(key);
    if (found == metadata.end() || !found->is_string()) {
      fail(fmt::format("expected a text \"{}\" in __metadata__", key));
    }
    return found->get<std::string>();
  }

  std::int32_t metadata_count(const json::Json& metadata, const char* key, std::int32_t max) const {
    const std::string text = metadata_text(metadata, key);
    const auto value = parse_number<std::int32_t>(text);
    if (!value || *value < 1 || *value > max) {
      fail(fmt::format("__metadata__ {}: expected 1 to {}, found \"{}\"", key, max, text));
    }
    return *value;
  }

  void read_metadata(const json::Json& header, TraceInfo& info) const {
    if (!header.contains("__metadata__") || !header.at("__metadata__").is_object()) {
      fail("expected an object __metadata__");
    }
    const json::Json& metadata = header.at("__metadata__");
    if (metadata_text(metadata, "format") != kTraceFormat) {
      fail(fmt::format("expected __metadata__ with format \"{}\"", kTraceFormat));
    }
    const std::string version = metadata_text(metadata, "schema_version");
    if (version != fmt::format("{}", kTraceSchemaVersion)) {
      fail(fmt::format("expected schema_version {}, found \"{}\"", kTraceSchemaVersion, version));
    }
    info.model = metadata_text(metadata, "model");
    info.num_layers = metadata_count(metadata, "num_layers", kMaxTraceLayers);
    info.num_experts = metadata_count(metadata, "num_experts", kMaxTraceExperts);
    info.top_k = metadata_count(metadata, "top_k", info.num_experts);
    for (const auto& [key, value] : metadata.items()) {
      const bool is_known = key == "format" || key == "schema_version" || key == "model" ||
                            key == "num_layers" || key == "num_experts" || key == "top_k";
      if (is_known) continue;
      if (!value.is_string()) fail(fmt::format("__metadata__ {}: expected a text", key));
      info.extra[key] = value.get<std::string>();
    }
  }

  [[nodiscard]] std::int64_t whole_number(const json::Json& value, std::string_view what) const {
    if (!value.is_number_integer() || value.get<std::int64_t>() < 0) {
      fail(fmt::format("{}: expected whole numbers of 0 or more", what));
    }
    return value.get<std::int64_t>();
  }

  // Checks dtype, shape and offsets of every column; the first one fixes the number of rows.
  void locate_columns(const json::Json& header, const TraceInfo& info) {
    for (std::size_t i = 0; i < kTraceColumns.size(); ++i) {
      const TraceColumn& column = kTraceColumns[i];
      const std::string name(column.name);
      const auto found = header.find(name);
      if (found == header.end() || !found->is_object()) fail("tensor " + name + " is missing");
      const json::Json& tensor = *found;
      if (!tensor.contains("dtype") || tensor["dtype"] != column.dtype) {
        fail(fmt::format("tensor {}: expected dtype {}", name, column.dtype));
      }
      const std::size_t rank = column.is_per_expert ? 2 : 1;
      if (!tensor.contains("shape") || !tensor["shape"].is_array() ||
          tensor["shape"].size() != rank) {
        fail(fmt::format("tensor {}: expected {} dimensions", name, rank));
      }
      const std::int64_t rows = whole_number(tensor["shape"][0], name);
      if (i == 0) num_rows_ = rows;
      if (rows != num_rows_ || rows > limits_.max_rows) {
        fail(fmt::format("tensor {}: expected {} rows, found {}", name, num_rows_, rows));
      }
      const std::int64_t width = column.is_per_expert ? info.top_k : 1;
      if (column.is_per_expert && whole_number(tensor["shape"][1], name) != width) {
        fail(fmt::format("tensor {}: expected {} columns (top_k)", name, width));
      }
      const std::int64_t bytes = rows * width * column.element_bytes;  // < 2^31 * 2^16 * 2^3
      if (!tensor.contains("data_offsets") || !tensor["data_offsets"].is_array() ||
          tensor["data_offsets"].size() != 2) {
        fail(fmt::format("tensor {}: expected two data_offsets", name));
      }
      const std::int64_t begin = whole_number(tensor["data_offsets"][0], name);
      const std::int64_t end = whole_number(tensor["data_offsets"][1], name);
      if (end > static_cast<std::int64_t>(data_.size()) || begin > end || end - begin != bytes) {
        fail(fmt::format("tensor {}: expected {} bytes inside the file, found [{}, {}) of {}", name,
                         bytes, begin, end, data_.size()));
      }
      columns_[i] = data_.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(bytes));
    }
  }

  template <typename Element>
  void copy_column(std::size_t column, std::vector<Element>& out) const {
    const std::span<const std::byte> bytes = columns_[column];
    out.resize(bytes.size() / sizeof(Element));
    if (!bytes.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  }

  void check_rows(const Trace& trace) const {
    const auto top_k = static_cast<std::size_t>(trace.info.top_k);
    std::vector<std::int64_t> last_row_of(static_cast<std::size_t>(trace.info.num_experts), -1);
    for (std::size_t row = 0; row < trace.step.size(); ++row) {
      for (std::size_t k = row * top_k; k < (row + 1) * top_k; ++k) {
        const std::int32_t id = trace.ids[k];
        if (id < 0 || id >= trace.info.num_experts) {
          fail(fmt::format("ids row {}: expected 0 to {}, found {}", row,
                           trace.info.num_experts - 1, id));
        }
        std::int64_t& last_row = last_row_of[static_cast<std::size_t>(id)];
        if (last_row == static_cast<std::int64_t>(row)) {
          fail(fmt::format("ids row {}: expert {} is named twice", row, id));
        }
        last_row = static_cast<std::int64_t>(row);
        if (!std::isfinite(trace.weights[k])) fail(fmt::format("weights row {}: not finite", row));
      }
      if (trace.layer[row] < 0 || trace.layer[row] >= trace.info.num_layers) {
        fail(fmt::format("layer row {}: expected 0 to {}, found {}", row, trace.info.num_layers - 1,
                         trace.layer[row]));
      }
      if (trace.token[row] < 0 || trace.request[row] < 0 || trace.step[row] < 0) {
        fail(fmt::format("row {}: token, request and step must not be negative", row));
      }
      if (row > 0 && trace.step[row] < trace.step[row - 1]) {
        fail(fmt::format("step row {}: expected ascending steps", row));
      }
      if (trace.phase[row] != Phase::kPrefill && trace.phase[row] != Phase::kDecode) {
        fail(fmt::format("phase row {}: expected 0 or 1", row));
      }
      if (!std::isfinite(trace.time_s[row])) fail(fmt::format("time_s row {}: not finite", row));
    }
  }

  const FileMap& map_;
  TraceLimits limits_;
  std::span<const std::byte> data_;
  std::int64_t num_rows_ = 0;
  std::array<std::span<const std::byte>, kTraceColumns.size()> columns_;
};

}  // namespace

std::vector<std::vector<std::int64_t>> Trace::expert_counts(Phase of) const {
  std::vector<std::vector<std::int64_t>> counts(static_cast<std::size_t>(info.num_layers));
  const auto top_k = static_cast<std::size_t>(info.top_k);
  for (std::size_t row = 0; row < step.size(); ++row) {
    if (phase[row] != of) continue;
    std::vector<std::int64_t>& of_layer = counts[static_cast<std::size_t>(layer[row])];
    of_layer.resize(static_cast<std::size_t>(info.num_experts));
    for (std::size_t k = row * top_k; k < (row + 1) * top_k; ++k) {
      ++of_layer[static_cast<std::size_t>(ids[k])];
    }
  }
  return counts;
}

Trace read_trace(const std::filesystem::path& file, const TraceLimits& limits) {
  const FileMap map(file);
  return Reader(map, limits).read();
}

}  // namespace moe::routing
