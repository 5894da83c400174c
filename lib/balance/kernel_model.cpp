#include "lib/balance/kernel_model.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/base/int_math.hpp"
#include "lib/json/read.hpp"

namespace moe::balance {
namespace {

using json::Json;

const Json& member(const Json& object, const char* key, const std::string& where) {
  if (!object.is_object() || !object.contains(key)) {
    throw Error(ErrorCode::kInput, fmt::format("{}: expected an object with \"{}\"", where, key));
  }
  return object.at(key);
}

double positive(const Json& object, const char* key, const std::string& where, bool may_be_zero) {
  const Json& value = member(object, key, where);
  if (!value.is_number() || value.get<double>() < 0.0 ||
      (!may_be_zero && value.get<double>() == 0.0)) {
    throw Error(ErrorCode::kInput, fmt::format("{}: expected a number {} in \"{}\"", where,
                                               may_be_zero ? "from 0 up" : "above 0", key));
  }
  return value.get<double>();
}

std::string text_of(const Json& object, const char* key, const std::string& where) {
  const Json& value = member(object, key, where);
  if (!value.is_string()) {
    throw Error(ErrorCode::kInput, fmt::format("{}: expected a text in \"{}\"", where, key));
  }
  return value.get<std::string>();
}

}  // namespace

std::vector<KernelFit> read_kernel_fits(std::string_view text, const std::string& where) {
  const Json document = json::parse(text, where);
  const Json& peaks = member(document, "peaks", where);
  const Json& quants = member(document, "quant", where);
  const Json& rows = member(document, "moe", where);
  if (!rows.is_array()) {
    throw Error(ErrorCode::kInput, fmt::format("{}: expected an array \"moe\"", where));
  }
  std::vector<KernelFit> fits;
  for (const Json& row : rows) {
    const std::string place = fmt::format("{}: /moe/{}", where, fits.size());
    KernelFit fit;
    fit.gpu = text_of(row, "gpu", place);
    fit.engine = text_of(row, "engine", place);
    fit.quant = text_of(row, "quant", place);
    const Json& peak = member(peaks, fit.gpu.c_str(), place);
    const Json& quant = member(quants, fit.quant.c_str(), place);
    const std::string arithmetic = text_of(quant, "arithmetic", place);
    fit.bytes_per_weight = positive(quant, "bytes_per_weight", place, false);
    fit.floor_s = 1e-6 * positive(row, "t0_us", place, true);
    fit.bytes_per_s =
        1e9 * positive(peak, "bw", place, false) * positive(row, "eff_bytes", place, false);
    fit.flops_per_s = 1e12 * positive(peak, arithmetic.c_str(), place, false) *
                      positive(row, "eff_flops", place, false);
    fit.pad_rows = positive(row, "pad_rows", place, true);
    const Json& p = member(row, "p", place);
    fit.takes_larger = p.is_string() && p.get<std::string>() == "max";
    if (!fit.takes_larger) fit.p = positive(row, "p", place, false);
    fit.held_out_error = positive(member(row, "held", place), "median_abs_err", place, true);
    fits.push_back(std::move(fit));
  }
  return fits;
}

const KernelFit& find_kernel_fit(const std::vector<KernelFit>& fits, const std::string& gpu,
                                 const std::string& engine, const std::string& quant) {
  std::set<std::string> gpus;
  std::set<std::string> rest;
  for (const KernelFit& fit : fits) {
    gpus.insert(fit.gpu);
    if (fit.gpu != gpu) continue;
    rest.insert(fit.engine + "/" + fit.quant);
    if (fit.engine == engine && fit.quant == quant) return fit;
  }
  if (rest.empty()) {
    throw Error(ErrorCode::kUsage, fmt::format("no measured expert kernels of GPU \"{}\"; there "
                                               "are {}",
                                               gpu, fmt::join(gpus, ", ")));
  }
  throw Error(ErrorCode::kUsage,
              fmt::format("no measured expert kernels of {} with {}/{}; there are {}", gpu, engine,
                          quant, fmt::join(rest, ", ")));
}

double kernel_time_s(const KernelFit& fit, const ExpertShape& shape, double rows, double hits,
                     double tokens) {
  const double hidden = static_cast<double>(shape.hidden_size);
  const double inter = static_cast<double>(shape.moe_intermediate_size);
  const double flops = 6.0 * hidden * inter * (rows + fit.pad_rows * hits);
  const double bytes = hits * 3.0 * hidden * inter * fit.bytes_per_weight +
                       2.0 * (2.0 * tokens * hidden + rows * (2.0 * hidden + 3.0 * inter));
  const double bytes_s = bytes / fit.bytes_per_s;
  const double flops_s = flops / fit.flops_per_s;
  if (fit.takes_larger) return fit.floor_s + std::max(bytes_s, flops_s);
  if (fit.p == 1.0) return fit.floor_s + bytes_s + flops_s;
  return fit.floor_s + std::pow(std::pow(bytes_s, fit.p) + std::pow(flops_s, fit.p), 1.0 / fit.p);
}

double step_time(const Placement& placement, std::span<const double> speeds,
                 std::span<const double> counts, double tokens, const KernelFit* fit,
                 const ExpertShape& shape) {
  const std::size_t num_experts = as_index(placement.num_experts);
  MOE_CHECK(counts.size() == as_index(placement.num_layers) * num_experts);
  double sum = 0.0;
  for (std::int32_t layer = 0; layer < placement.num_layers; ++layer) {
    const std::vector<std::int32_t> replicas = replica_counts(placement, layer);
    const std::span<const double> row = counts.subspan(as_index(layer) * num_experts, num_experts);
    const std::span<const std::int32_t> slots = placement.layer(layer);
    double slowest = 0.0;
    for (std::int32_t gpu = 0; gpu < placement.num_gpus(); ++gpu) {
      double rows = 0.0;
      double hits = 0.0;
      for (std::int32_t slot = placement.slot_begin[as_index(gpu)];
           slot < placement.slot_begin[as_index(gpu) + 1]; ++slot) {
        const std::size_t expert = as_index(slots[as_index(slot)]);
        const double share = row[expert] / static_cast<double>(replicas[expert]);
        rows += share;
        // Less than one copy a replica: some replicas get none.
        hits += std::min(1.0, share);
      }
      const double speed = speeds.empty() ? 1.0 : speeds[as_index(gpu)];
      const double time = fit == nullptr
                              ? rows
                              : (hits > 0.0 ? kernel_time_s(*fit, shape, rows, hits, tokens) : 0.0);
      slowest = std::max(slowest, time / speed);
    }
    sum += slowest;
  }
  return sum;
}

}  // namespace moe::balance
