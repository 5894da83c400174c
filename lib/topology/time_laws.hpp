#pragma once

// Measured time as a function of volume, and the constants that describe it (alpha, beta, a
// square-root term; for dispatch and combine a few more). Data: scenarios/measured.

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "lib/topology/least_squares.hpp"
#include "lib/topology/measured_points.hpp"

namespace moe::topology {

using Json = nlohmann::ordered_json;

// time = alpha + V / beta + gamma x sqrt(V), V = bytes x factor: what one rank really sends.
struct SizeLaw {
  double alpha_s = 0.0;
  double s_per_byte = 0.0;  // 1 / beta
  double s_per_sqrt_byte = 0.0;

  [[nodiscard]] double time_s(double volume_bytes) const;
};

// Where the measured times lie against the law: ratio at a size, linear between in the logarithms,
// constant outside. Protocol changes of a library are steps that no smooth law has.
struct Knot {
  double bytes = 0.0;
  double ratio = 1.0;
};

struct CollectiveSeries {
  std::string gpu;
  std::string library;
  std::string version;
  std::string op;
  std::int64_t num_ranks = 0;
  std::int64_t num_points = 0;
  SizeLaw plain;  // alpha and beta alone
  SizeLaw law;
  std::vector<Knot> knots;  // ascending bytes
  double max_bytes = 0.0;   // largest size measured
  // On points that took no part in the fit (a quarter of the sizes).
  ErrorSummary plain_error;
  ErrorSummary law_error;
  ErrorSummary error;
  std::vector<double> held_out;  // those errors one by one; empty when the constants were read

  // `bytes` as nccl-tests counts them.
  [[nodiscard]] double time_s(double bytes) const;
};

// What one rank sends in an operation of n ranks, over the bytes that nccl-tests prints.
[[nodiscard]] double volume_factor(const std::string& op, std::int64_t num_ranks);

// Sum of non-negative terms of an MoE shape.
struct MoeSeries {
  std::string gpu;
  std::string library;
  std::string version;
  std::string api;
  std::string phase;
  std::string dtype;
  std::int64_t num_ranks = 0;
  std::int64_t num_nodes = 0;
  std::int64_t num_points = 0;
  std::int64_t default_sms = 0;                       // the budget measured most; 0: not applicable
  std::vector<std::pair<std::string, double>> terms;  // name and seconds for one unit of it
  ErrorSummary error;                                 // on points that took no part in the fit
  std::vector<double> held_out;  // those errors one by one; empty when the constants were read

  [[nodiscard]] double time_s(const MoePoint& point) const;
};

// The value of a term for a shape; throws Error(kInput) for a name that is none.
[[nodiscard]] double moe_term(const std::string& name, const MoePoint& point);

struct MeasuredLaws {
  std::string source;
  std::vector<CollectiveSeries> collectives;
  std::vector<MoeSeries> moe;
};

// Fits every series of the points. Points of one (GPU, library, version, op, ranks) form a series,
// all element types together: a byte is a byte. Deterministic.
[[nodiscard]] std::vector<CollectiveSeries> fit_collectives(
    const std::vector<CollectivePoint>& points);
[[nodiscard]] std::vector<MoeSeries> fit_moe(const std::vector<MoePoint>& points);

// Whole logs, each as one series without knots whose largest relative error is as small as it can
// be: short and clean, they need no protection from outliers. `error` is that of the fit itself.
[[nodiscard]] std::vector<CollectiveSeries> fit_logs(const std::vector<CollectivePoint>& points);

// One series from its points alone, without held-out errors. At least three points.
[[nodiscard]] CollectiveSeries fit_series(const std::vector<const CollectivePoint*>& points);

[[nodiscard]] Json laws_to_json(const MeasuredLaws& laws);
// Throws Error(kInput) that names the place.
[[nodiscard]] MeasuredLaws laws_from_json(const Json& document, const std::string& where);
[[nodiscard]] MeasuredLaws read_laws(const std::filesystem::path& path);

}  // namespace moe::topology
