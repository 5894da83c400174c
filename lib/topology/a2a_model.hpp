#pragma once

// Time of an all-to-all over a cluster: measured laws inside an NVLink domain where there are some,
// ceilings and stated assumptions elsewhere. Every prediction says what it rests on.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/topology/ceilings.hpp"
#include "lib/topology/link_catalog.hpp"
#include "lib/topology/time_laws.hpp"

namespace moe::topology {

enum class Schedule : std::uint8_t {
  kFlat,      // every pair sends at once
  kTwoLevel,  // gathered by rail inside the domain, then one message for each domain and rail
};
[[nodiscard]] const char* schedule_name(Schedule schedule);

enum class Basis : std::uint8_t { kMeasuredLaw, kExtrapolated, kOtherGpu, kCeiling };
[[nodiscard]] const char* basis_name(Basis basis);

struct A2aInput {
  Cluster cluster;
  std::string gpu;  // id in the catalog
  std::string library = "nccl";
  Schedule schedule = Schedule::kFlat;
};

struct A2aTime {
  double time_s = 0.0;
  double intra_s = 0.0;
  double inter_s = 0.0;
  double busbw_bytes_per_s = 0.0;
  double algbw_bytes_per_s = 0.0;
  Basis intra_basis = Basis::kCeiling;
  std::string how;  // what it rests on, in words
};

class A2aModel {
 public:
  A2aModel(const LinkCatalog& catalog, const MeasuredLaws& laws) : catalog_(catalog), laws_(laws) {}

  // `bytes` is what one rank sends in all, its own part included. Throws Error(kInput) when there
  // is no way between the domains (rail-only network without PXN).
  [[nodiscard]] A2aTime predict(const A2aInput& input, double bytes) const;

  // Smallest time, and the size at which half of the ceiling's bandwidth is reached.
  [[nodiscard]] double floor_s(const A2aInput& input) const;
  [[nodiscard]] double half_bandwidth_bytes(const A2aInput& input) const;

  // Series of one operation at a number of ranks; nullptr when nobody measured it.
  [[nodiscard]] const CollectiveSeries* find(const std::string& gpu, const std::string& library,
                                             const std::string& op, std::int64_t num_ranks) const;

 private:
  struct Intra {
    double time_s = 0.0;
    Basis basis = Basis::kCeiling;
    std::string how;
  };
  [[nodiscard]] Intra intra_time(const A2aInput& input, std::int64_t num_ranks,
                                 double volume) const;
  [[nodiscard]] std::vector<const CollectiveSeries*> series_of(const std::string& gpu,
                                                               const std::string& library) const;
  [[nodiscard]] double network_time(const A2aInput& input, double volume,
                                    double num_messages) const;

  const LinkCatalog& catalog_;
  const MeasuredLaws& laws_;
};

// Chunks sent while the experts of the chunk before compute.
struct Overlap {
  std::int64_t num_chunks = 1;
  double total_s = 0.0;       // dispatch and compute, overlapped
  double bubble_share = 0.0;  // of the total in which compute waits
};
[[nodiscard]] Overlap overlap_chunks(const A2aModel& model, const A2aInput& input, double bytes,
                                     double compute_s, std::int64_t num_chunks);

// The series of a dispatch or combine; an exact match of everything that is not empty.
struct MoeQuery {
  std::string gpu;
  std::string api;
  std::string phase;
  std::string dtype;  // empty: any
  std::int64_t num_ranks = 0;
};
[[nodiscard]] std::vector<const MoeSeries*> find_moe(const MeasuredLaws& laws,
                                                     const MoeQuery& query);

}  // namespace moe::topology
