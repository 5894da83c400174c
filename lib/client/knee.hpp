#pragma once

// The highest load that a server takes within a service level: pure, it only asks for points.

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace moe::client {

struct LoadPoint {
  double load = 0.0;  // requests a second, or clients
  bool meets = false;
};

struct KneeOptions {
  double start = 1.0;
  double growth = 2.0;            // until a load fails
  double resolution_ratio = 0.1;  // the search ends when the two ends are this close
  std::int64_t max_points = 12;
  double max_load = 1e6;
  bool is_whole = false;  // loads are whole numbers
};

struct Knee {
  std::vector<LoadPoint> points;  // in the order they were tried
  double best = 0.0;              // highest load that met the level; 0: none did
  bool is_bounded = false;        // a higher load was tried and failed
};

// `meets` measures one load; nullopt ends the search (the run was interrupted, the server is gone).
[[nodiscard]] Knee find_knee(const KneeOptions& options,
                             const std::function<std::optional<bool>(double load)>& meets);

}  // namespace moe::client
