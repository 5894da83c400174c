#include "lib/planner/collective_time.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/json/read.hpp"
#include "lib/planner/measured_json.hpp"

namespace moe::planner {
namespace {

// Where no all-reduce was measured: a share of the link's rate and a launch, both from what the
// measured GPUs show in the median.
constexpr double kDefaultBusShare = 0.7;
constexpr double kDefaultAlphaS = 10e-6;
// Dispatch and combine in one scale-up domain, from the DeepEP and NVLink fits: 11 to 24 us a
// phase, 250 to 320 GB/s of 450 per selection.
constexpr double kAllToAllAlphaS = 15e-6;
constexpr double kAllToAllLinkShare = 0.6;
// FP8 with a 4-byte scale per 128, and BF16.
constexpr double kDispatchBytes = 1.0 + 4.0 / 128.0;
constexpr double kCombineBytes = 2.0;

const CollectiveRow* nearest(const std::vector<CollectiveRow>& rows, std::string_view gpu,
                             std::string_view library, std::int32_t num_ranks) {
  const CollectiveRow* best = nullptr;
  for (const CollectiveRow& row : rows) {
    if (row.gpu != gpu || row.library != library) continue;
    if (best == nullptr ||
        std::abs(row.num_ranks - num_ranks) < std::abs(best->num_ranks - num_ranks)) {
      best = &row;
    }
  }
  return best;
}

}  // namespace

CollectiveTable::CollectiveTable(std::vector<CollectiveRow> rows) : rows_(std::move(rows)) {}

CollectiveFit CollectiveTable::all_reduce(const Accelerator& gpu, std::string_view engine,
                                          std::int32_t num_ranks, const ScaleOut& network) const {
  CollectiveFit fit;
  // PCIe cards have no scale-up domain, but share a host.
  const std::int32_t domain = std::max({1, gpu.scale_up_gpus, gpu.gpus_per_node});
  const std::int32_t inside = std::min(num_ranks, domain);
  const CollectiveRow* row = nearest(rows_, gpu.id, engine, inside);
  if (row == nullptr || row->num_ranks != inside) {
    const CollectiveRow* nccl = nearest(rows_, gpu.id, "nccl", inside);
    if (row == nullptr || (nccl != nullptr && nccl->num_ranks == inside)) row = nccl;
  }
  if (row != nullptr) {
    fit.alpha_s = row->alpha_s;
    fit.bytes_per_s = row->bytes_per_s;
    fit.s_per_sqrt_byte = row->s_per_sqrt_byte;
    fit.is_measured = row->num_ranks == inside;
    fit.source = fmt::format("{} {} all-reduce of {}", row->gpu, row->library, row->num_ranks);
  } else {
    fit.alpha_s = kDefaultAlphaS;
    fit.bytes_per_s = std::max(1e6, kDefaultBusShare * gpu.scale_up_bytes_per_s);
    fit.source =
        fmt::format("{} of the link's rate and {} us", kDefaultBusShare, kDefaultAlphaS * 1e6);
  }
  if (num_ranks > domain) {
    // Two levels: inside the domain, then between domains over each GPU's own link.
    fit.is_between_nodes = true;
    fit.is_measured = false;
    fit.alpha_s += 2.0 * network.latency_s;
    const double outside = network.bytes_per_s * network.efficiency * domain;
    fit.bytes_per_s = 1.0 / (1.0 / fit.bytes_per_s + 1.0 / outside);
    fit.source += ", then between nodes over the scale-out link";
  }
  return fit;
}

double all_reduce_time_s(const CollectiveFit& fit, std::int32_t num_ranks, double bytes) {
  if (num_ranks <= 1) return 0.0;
  const double ranks = static_cast<double>(num_ranks);
  return fit.alpha_s + 2.0 * (ranks - 1.0) / ranks * bytes / fit.bytes_per_s +
         fit.s_per_sqrt_byte * std::sqrt(bytes);
}

AllToAllTime moe_all_to_all_time_s(const Accelerator& gpu, std::int32_t num_ranks,
                                   const ScaleOut& network, double num_tokens, double top_k,
                                   double hidden_size, bool is_deduplicated) {
  AllToAllTime time;
  if (num_ranks <= 1) return time;
  const double ranks = static_cast<double>(num_ranks);
  const double domain =
      std::min(ranks, static_cast<double>(std::max({1, gpu.scale_up_gpus, gpu.gpus_per_node})));
  const double nodes = std::max(1.0, ranks / domain);
  // Expected number of different places among n that top_k selections reach.
  const auto places = [&](double n) { return n * (1.0 - std::pow(1.0 - 1.0 / n, top_k)); };
  const double bytes = num_tokens * hidden_size * (kDispatchBytes + kCombineBytes);
  const double inside = bytes * places(ranks) * (domain - 1.0) / ranks;
  const double copies = is_deduplicated ? places(nodes) : top_k;
  const double outside = bytes * copies * (nodes - 1.0) / nodes;
  time.alpha_s = 2.0 * kAllToAllAlphaS;
  time.inside_s = inside / std::max(1e6, kAllToAllLinkShare * gpu.scale_up_bytes_per_s);
  if (outside > 0.0) {
    time.alpha_s += 2.0 * network.latency_s;
    time.outside_s = outside / (network.bytes_per_s * network.efficiency);
    // The two kinds of link carry their parts at the same time.
    if (time.outside_s >= time.inside_s) {
      time.inside_s = 0.0;
    } else {
      time.outside_s = 0.0;
    }
  }
  return time;
}

CollectiveTable parse_collective_table(std::string_view json_text, const std::string& where) {
  const json::Json document = json::parse(json_text, where);
  std::vector<CollectiveRow> rows;
  std::size_t index = 0;
  for (const json::Json& entry : array_at(document, "all_reduce", where)) {
    const std::string here = fmt::format("{}: all_reduce[{}]", where, index++);
    CollectiveRow row;
    row.gpu = text_at(entry, "gpu", here);
    row.library = text_at(entry, "library", here);
    row.num_ranks = static_cast<std::int32_t>(number_at(entry, "num_ranks", 2, 4096, here));
    row.alpha_s = number_at(entry, "alpha_s", 0.0, 1.0, here);
    row.bytes_per_s = number_at(entry, "bytes_per_s", 1e6, 1e15, here);
    row.s_per_sqrt_byte = number_at(entry, "s_per_sqrt_byte", 0.0, 1.0, here);
    rows.push_back(std::move(row));
  }
  return CollectiveTable(std::move(rows));
}

}  // namespace moe::planner
