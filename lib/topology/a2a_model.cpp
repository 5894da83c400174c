#include "lib/topology/a2a_model.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/base/int_math.hpp"

namespace moe::topology {
namespace {

// NVSwitch boxes reach 0.86 to 0.94 of NCCL's constant in published runs; this is used where nobody
// measured the GPU.
constexpr double kCredibleShare = 0.9;
constexpr double kCredibleFloor = 12e-6;

// Time of a series for a volume, whatever number of ranks it was measured with.
double time_at_volume(const CollectiveSeries& series, double volume) {
  return series.time_s(volume / volume_factor(series.op, series.num_ranks));
}

}  // namespace

const char* schedule_name(Schedule schedule) {
  switch (schedule) {
    case Schedule::kFlat:
      return "flat";
    case Schedule::kTwoLevel:
      return "two-level";
  }
  return "";
}

const char* basis_name(Basis basis) {
  switch (basis) {
    case Basis::kMeasuredLaw:
      return "measured law";
    case Basis::kExtrapolated:
      return "measured law at other rank counts";
    case Basis::kOtherGpu:
      return "measured law of a similar GPU";
    case Basis::kCeiling:
      return "share of the ceiling";
  }
  return "";
}

std::vector<const CollectiveSeries*> A2aModel::series_of(const std::string& gpu,
                                                         const std::string& library) const {
  std::vector<const CollectiveSeries*> found;
  for (const CollectiveSeries& series : laws_.collectives) {
    if (series.gpu == gpu && series.op == "alltoall" && series.library == library) {
      found.push_back(&series);
    }
  }
  std::sort(found.begin(), found.end(),
            [](const auto* a, const auto* b) { return a->num_ranks < b->num_ranks; });
  return found;
}

const CollectiveSeries* A2aModel::find(const std::string& gpu, const std::string& library,
                                       const std::string& op, std::int64_t num_ranks) const {
  for (const CollectiveSeries& series : laws_.collectives) {
    if (series.gpu == gpu && series.library == library && series.op == op &&
        series.num_ranks == num_ranks) {
      return &series;
    }
  }
  return nullptr;
}

A2aModel::Intra A2aModel::intra_time(const A2aInput& input, std::int64_t num_ranks,
                                     double volume) const {
  Intra intra;
  if (num_ranks < 2 || volume <= 0.0) return intra;
  std::vector<const CollectiveSeries*> series = series_of(input.gpu, input.library);
  double rate_ratio = 1.0;
  const GpuType* gpu = catalog_.find_gpu(input.gpu);
  if (series.empty() && gpu != nullptr && fabric_bytes_per_s(catalog_, *gpu) > 0.0) {
    for (const GpuType& other : catalog_.gpus) {
      if (other.sm != gpu->sm || other.num_nvlinks == 0) continue;
      series = series_of(other.id, input.library);
      if (series.empty()) continue;
      rate_ratio = fabric_bytes_per_s(catalog_, *gpu) / fabric_bytes_per_s(catalog_, other);
      intra.basis = Basis::kOtherGpu;
      intra.how = fmt::format("laws of {}, scaled by the rate of the links", other.id);
      break;
    }
  }
  if (series.empty()) {
    intra.basis = Basis::kCeiling;
    intra.how = fmt::format("assumed: {} of the ceiling and a floor of {:.0f} us", kCredibleShare,
                            kCredibleFloor * 1e6);
    const double rate = input.cluster.intra_bytes_per_s * kCredibleShare;
    intra.time_s = kCredibleFloor + volume / rate;
    return intra;
  }
  volume /= rate_ratio;
  const auto above = std::find_if(series.begin(), series.end(),
                                  [&](const auto* entry) { return entry->num_ranks >= num_ranks; });
  if (above != series.end() && (*above)->num_ranks == num_ranks) {
    intra.time_s = time_at_volume(**above, volume);
    if (intra.how.empty()) {
      intra.basis = Basis::kMeasuredLaw;
      intra.how = fmt::format("{} points of {} {} on {} GPUs", (*above)->num_points,
                              (*above)->library, (*above)->version, num_ranks);
    }
    return intra;
  }
  if (intra.basis != Basis::kOtherGpu) intra.basis = Basis::kExtrapolated;
  if (above != series.end() && above != series.begin()) {
    // Between two measured counts: linear in the logarithms.
    const CollectiveSeries& low = **(above - 1);
    const CollectiveSeries& high = **above;
    const double share = std::log(as_real(num_ranks) / as_real(low.num_ranks)) /
                         std::log(as_real(high.num_ranks) / as_real(low.num_ranks));
    intra.time_s = std::exp((1.0 - share) * std::log(time_at_volume(low, volume)) +
                            share * std::log(time_at_volume(high, volume)));
    intra.how += fmt::format("between {} and {} GPUs", low.num_ranks, high.num_ranks);
    return intra;
  }
  const CollectiveSeries& nearest = above == series.end() ? *series.back() : **above;
  // More peers cost what the last doubling of the measured counts cost, each.
  double peer_s = 0.0;
  if (above == series.end() && series.size() > 1) {
    const CollectiveSeries& before = **(series.end() - 2);
    peer_s = std::max(0.0, (nearest.law.alpha_s - before.law.alpha_s) /
                               as_real(nearest.num_ranks - before.num_ranks));
  }
  const double extra = as_real(std::max<std::int64_t>(0, num_ranks - nearest.num_ranks)) * peer_s;
  intra.time_s = time_at_volume(nearest, volume) + extra;
  intra.how += fmt::format("from {} GPUs, {:.2f} us more for each further one", nearest.num_ranks,
                           peer_s * 1e6);
  return intra;
}

double A2aModel::network_time(const A2aInput& input, double volume, double num_messages) const {
  const NetworkDefaults& network = catalog_.network;
  const double rate = network_bytes_per_s(input.cluster) * network.ceiling_share;
  return network.floor_s + network.message_s * std::max(0.0, num_messages - 1.0) + volume / rate;
}

A2aTime A2aModel::predict(const A2aInput& input, double bytes) const {
  const Cluster& cluster = input.cluster;
  MOE_CHECK(cluster.num_ranks >= 2 && bytes > 0.0);
  const double n = as_real(cluster.num_ranks);
  const std::int64_t domain = std::min(cluster.gpus_per_domain, cluster.num_ranks);
  const double remote = bytes * remote_share(cluster);
  const double local = bytes * (as_real(domain) - 1.0) / n;
  A2aTime result;
  Intra intra;
  if (remote == 0.0) {
    intra = intra_time(input, domain, local);
    result.intra_s = intra.time_s;
    result.time_s = intra.time_s;
  } else {
    if (network_bytes_per_s(cluster) <= 0.0) {
      throw Error(ErrorCode::kInput,
                  "no way between GPUs of different rails: a rail-only network needs PXN "
                  "(NCCL_PXN_DISABLE=0) or a spine");
    }
    const double num_domains = std::ceil(n / as_real(domain));
    const bool is_two_level = input.schedule == Schedule::kTwoLevel;
    const bool aligns = is_two_level || (cluster.uses_pxn && cluster.fabric != Fabric::kFlat);
    // What is not on its target's rail crosses the domain's links on the way.
    const double to_rail = aligns ? remote * (as_real(domain) - 1.0) / as_real(domain) : 0.0;
    intra = intra_time(input, domain, local + to_rail);
    const double messages = aligns ? num_domains - 1.0 : n - as_real(domain);
    A2aInput sent = input;
    if (is_two_level) sent.cluster.uses_pxn = true;
    result.intra_s = intra.time_s;
    result.inter_s = network_time(sent, remote, messages);
    // Two-level: the network waits for the gathering; flat: both run at once.
    result.time_s =
        is_two_level ? result.intra_s + result.inter_s : std::max(result.intra_s, result.inter_s);
  }
  result.intra_basis = intra.basis;
  result.how = intra.how;
  if (remote > 0.0) {
    result.how += fmt::format("{}between domains: {:.1f} GB/s a GPU x {} assumed",
                              intra.how.empty() ? "" : "; ", network_bytes_per_s(cluster) / 1e9,
                              catalog_.network.ceiling_share);
  }
  result.algbw_bytes_per_s = bytes / result.time_s;
  result.busbw_bytes_per_s = result.algbw_bytes_per_s * (n - 1.0) / n;
  return result;
}

double A2aModel::floor_s(const A2aInput& input) const {
  return predict(input, as_real(input.cluster.num_ranks)).time_s;
}

double A2aModel::half_bandwidth_bytes(const A2aInput& input) const {
  const double goal = a2a_ceiling(input.cluster).busbw_bytes_per_s / 2.0;
  double low = 1.0;
  double high = 1e13;
  if (predict(input, high).busbw_bytes_per_s < goal) return 0.0;
  for (int i = 0; i < 80; ++i) {
    const double middle = std::sqrt(low * high);
    (predict(input, middle).busbw_bytes_per_s < goal ? low : high) = middle;
  }
  return high;
}

Overlap overlap_chunks(const A2aModel& model, const A2aInput& input, double bytes, double compute_s,
                       std::int64_t num_chunks) {
  MOE_CHECK(num_chunks >= 1);
  Overlap overlap;
  overlap.num_chunks = num_chunks;
  const double chunks = as_real(num_chunks);
  const double send = model.predict(input, bytes / chunks).time_s;
  const double compute = compute_s / chunks;
  // Compute of a chunk starts when it has arrived and the chunk before is done.
  overlap.total_s = send + (chunks - 1.0) * std::max(send, compute) + compute;
  overlap.bubble_share = 1.0 - compute_s / overlap.total_s;
  return overlap;
}

std::vector<const MoeSeries*> find_moe(const MeasuredLaws& laws, const MoeQuery& query) {
  std::vector<const MoeSeries*> found;
  for (const MoeSeries& series : laws.moe) {
    const auto fits = [](const std::string& wanted, const std::string& is) {
      return wanted.empty() || wanted == is;
    };
    if (fits(query.gpu, series.gpu) && fits(query.api, series.api) &&
        fits(query.phase, series.phase) && fits(query.dtype, series.dtype) &&
        (query.num_ranks == 0 || query.num_ranks == series.num_ranks)) {
      found.push_back(&series);
    }
  }
  return found;
}

}  // namespace moe::topology
