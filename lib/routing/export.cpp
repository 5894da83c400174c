#include "lib/routing/export.hpp"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/base/atomic_file.hpp"
#include "lib/base/error.hpp"
#include "lib/routing/trace_writer.hpp"
#include "lib/routing/windows.hpp"

namespace moe::routing {
namespace {

constexpr std::int64_t kFlushRows = 1 << 18;

[[noreturn]] void fail(const RoutingInput& input, const std::string& message) {
  throw Error(ErrorCode::kInput, input.info.name + ": " + message);
}

void require_tokens(const RoutingInput& input) {
  if (input.tokens != nullptr) return;
  fail(input, fmt::format("{} holds counts only; a trace needs token rows",
                          format_name(input.info.format)));
}

// Experts that every row uses; rows without any are skipped.
std::int64_t used_per_row(RoutingInput& input) {
  std::int64_t used = -1;
  TokenBlock block;
  input.tokens->rewind();
  while (input.tokens->next(block)) {
    for (std::int64_t row = 0; row < block.num_tokens * block.num_layers; ++row) {
      const std::int32_t* ids = block.ids.data() + row * block.top_k;
      const auto unused = std::count(ids, ids + block.top_k, kUnusedSlot);
      const std::int64_t here = block.top_k - unused;
      if (here == 0) continue;
      if (used < 0) used = here;
      if (here == used) continue;
      fail(input, fmt::format("rows use {} and {} experts; a trace needs the same number in each, "
                              "JSON lines do not",
                              used, here));
    }
  }
  if (used < 0) fail(input, "no token has an expert");
  return used;
}

// Rows of one layer of a block, in the form of the writer.
struct LayerRows {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  std::vector<std::int32_t> requests;
  std::vector<std::int64_t> tokens;

  void add(const TokenBlock& block, std::int64_t t, std::int64_t layer, std::int64_t used) {
    const std::int64_t row = (t * block.num_layers + layer) * block.top_k;
    std::int64_t num_used = 0;
    for (std::int64_t k = 0; k < block.top_k; ++k) {
      const auto at = static_cast<std::size_t>(row + k);
      if (block.ids[at] < 0) continue;
      ++num_used;
      ids.push_back(block.ids[at]);
      weights.push_back(block.weights.empty() ? 1.0F / static_cast<float>(used)
                                              : block.weights[at]);
    }
    if (num_used == 0) return;
    const auto i = static_cast<std::size_t>(t);
    requests.push_back(static_cast<std::int32_t>(block.request[i]));
    tokens.push_back(block.token[i]);
  }
};

// Tokens [begin, end) of one step, phase and time.
void append_rows(const TokenBlock& block, std::int64_t begin, std::int64_t end, std::int64_t used,
                 const InputInfo& info, TraceWriter& writer) {
  for (std::int64_t l = 0; l < block.num_layers; ++l) {
    LayerRows rows;
    for (std::int64_t t = begin; t < end; ++t) rows.add(block, t, l, used);
    if (rows.tokens.empty()) continue;
    const auto first = static_cast<std::size_t>(begin);
    TraceWriter::Rows out;
    out.num_tokens = static_cast<std::int64_t>(rows.tokens.size());
    out.ids = rows.ids.data();
    out.weights = rows.weights.data();
    out.request = rows.requests.data();
    out.token = rows.tokens.data();
    out.step = static_cast<std::int32_t>(block.step[first]);
    out.layer = info.layers[static_cast<std::size_t>(l)];
    out.phase = block.phase[first];
    out.time_s = info.has_time ? block.time_s[first] : 0.0;
    writer.append(out);
  }
}

void check_block(const RoutingInput& input, const TokenBlock& block) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max();
  for (std::int64_t t = 0; t < block.num_tokens; ++t) {
    const auto i = static_cast<std::size_t>(t);
    const bool fits = block.step[i] >= 0 && block.step[i] <= kMax && block.request[i] <= kMax &&
                      block.token[i] >= 0 && block.token[i] <= kMax;
    if (!fits) fail(input, "step, request or token is negative or passes 2^31");
  }
}

}  // namespace

void export_trace(RoutingInput& input, const std::filesystem::path& file,
                  const std::map<std::string, std::string>& extra) {
  require_tokens(input);
  const InputInfo& info = input.info;
  const std::int64_t used = used_per_row(input);
  TraceInfo trace;
  trace.model = info.model;
  trace.num_layers = info.layers.back() + 1;
  trace.num_experts = info.num_experts;
  trace.top_k = static_cast<std::int32_t>(used);
  trace.extra = extra;
  TraceWriter writer(file, trace);
  TokenBlock block;
  std::int64_t num_pending = 0;
  input.tokens->rewind();
  while (input.tokens->next(block)) {
    check_block(input, block);
    std::int64_t begin = 0;
    for (std::int64_t t = 1; t <= block.num_tokens; ++t) {
      const auto a = static_cast<std::size_t>(begin);
      const auto b = static_cast<std::size_t>(t);
      const bool is_same = t < block.num_tokens && block.step[a] == block.step[b] &&
                           block.phase[a] == block.phase[b] &&
                           (!info.has_time || block.time_s[a] == block.time_s[b]);
      if (is_same) continue;
      append_rows(block, begin, t, used, info, writer);
      begin = t;
    }
    num_pending += block.num_tokens * block.num_layers;
    if (num_pending < kFlushRows) continue;
    writer.flush();
    num_pending = 0;
  }
  writer.commit();
}

void export_json_lines(RoutingInput& input, const std::filesystem::path& file) {
  require_tokens(input);
  const InputInfo& info = input.info;
  AtomicFile out(file);
  nlohmann::ordered_json meta;
  meta["type"] = "meta";
  meta["model_id"] = info.model;
  meta["num_experts"] = info.num_experts;
  meta["top_k"] = info.top_k;
  out.write(meta.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  TokenBlock block;
  input.tokens->rewind();
  while (input.tokens->next(block)) {
    std::string text;
    for (std::int64_t t = 0; t < block.num_tokens; ++t) {
      for (std::int64_t l = 0; l < block.num_layers; ++l) {
        const auto i = static_cast<std::size_t>(t);
        const std::int64_t row = (t * block.num_layers + l) * block.top_k;
        std::string ids;
        std::string weights;
        for (std::int64_t k = 0; k < block.top_k; ++k) {
          const auto at = static_cast<std::size_t>(row + k);
          if (block.ids[at] < 0) continue;
          ids += fmt::format("{}{}", ids.empty() ? "" : ", ", block.ids[at]);
          if (block.weights.empty()) continue;
          weights += fmt::format("{}{}", weights.empty() ? "" : ", ", block.weights[at]);
        }
        if (ids.empty()) continue;
        text += fmt::format(R"({{"type": "route", "step": {}, "req_id": {}, "token_idx": {}, )",
                            block.step[i], block.request[i], block.token[i]);
        if (info.has_time) text += fmt::format(R"("time_s": {}, )", block.time_s[i]);
        text += fmt::format(R"("layer": {}, "topk_ids": [{}])",
                            info.layers[static_cast<std::size_t>(l)], ids);
        if (!weights.empty()) text += fmt::format(R"(, "topk_weights": [{}])", weights);
        text += "}\n";
      }
    }
    out.write(text);
  }
  out.commit();
}

void export_sglang_json(RoutingInput& input, const std::filesystem::path& file) {
  const ExpertCounts counts = count_windows(input);
  const std::vector<std::int64_t> total = counts.total();
  AtomicFile out(file);
  out.write("{\"logical_count\": [");
  std::size_t next = 0;
  for (std::int32_t layer = 0; layer <= counts.info.layers.back(); ++layer) {
    const bool has_load = counts.info.layers[next] == layer;
    std::string row = layer == 0 ? "\n[" : ",\n[";
    for (std::int64_t e = 0; e < counts.num_experts(); ++e) {
      const std::int64_t count = has_load
                                     ? total[next * static_cast<std::size_t>(counts.num_experts()) +
                                             static_cast<std::size_t>(e)]
                                     : 0;
      row += fmt::format("{}{}", e > 0 ? ", " : "", count);
    }
    out.write(row + "]");
    if (has_load) ++next;
  }
  out.write("\n]}\n");
  out.commit();
}

void export_counts_csv(RoutingInput& input, const std::filesystem::path& file) {
  const ExpertCounts counts = count_windows(input);
  const std::vector<std::int64_t> total = counts.total();
  AtomicFile out(file);
  out.write("layer,expert,count\n");
  for (std::int64_t l = 0; l < counts.num_layers(); ++l) {
    std::string rows;
    for (std::int64_t e = 0; e < counts.num_experts(); ++e) {
      rows += fmt::format("{},{},{}\n", counts.info.layers[static_cast<std::size_t>(l)], e,
                          total[static_cast<std::size_t>(l * counts.num_experts() + e)]);
    }
    out.write(rows);
  }
  out.commit();
}

void export_counts_npy(RoutingInput& input, const std::filesystem::path& file) {
  const bool has_steps = input.counts != nullptr;
  WindowSpec spec;
  if (has_steps) {
    spec.unit = WindowUnit::kSteps;
    spec.length = 1;
  }
  std::int64_t num_steps = 0;
  for_each_window(input, spec, [&](const Window&, std::span<const std::int64_t>) { ++num_steps; });
  // The header is padded so that the data begins at a multiple of 64 (format version 1).
  std::string header =
      fmt::format("{{'descr': '<i8', 'fortran_order': False, 'shape': ({}, {}, {}), }}", num_steps,
                  input.info.num_layers(), input.info.num_experts);
  constexpr std::size_t kPrefix = 10;
  while ((kPrefix + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  AtomicFile out(file);
  const auto length = static_cast<std::uint16_t>(header.size());
  out.write(std::string_view("\x93NUMPY\x01\x00", 8));
  out.write(std::as_bytes(std::span(&length, 1)));
  out.write(header);
  for_each_window(input, spec, [&](const Window&, std::span<const std::int64_t> counts) {
    out.write(std::as_bytes(counts));
  });
  out.commit();
}

}  // namespace moe::routing
