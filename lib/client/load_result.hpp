#pragma once

// What a run of load leaves behind.

#include <cstdint>
#include <string>
#include <vector>

#include "lib/client/request_record.hpp"

namespace moe::client {

// The client about itself: whether its figures can be the server's.
struct SelfMeasure {
  double cpu_s = 0.0;  // of the loops' threads
  double wall_s = 0.0;
  std::int32_t num_loops = 0;
  std::vector<double> send_lag_s;       // one a request: real minus intended send
  std::vector<double> receive_delay_s;  // of reads: taken up minus arrived (a sample of them)
  double longest_pass_s = 0.0;          // of one pass of a loop, in which nothing else is seen
  double read_window_s = 0.0;           // the longest time that bytes were let lie on purpose
  std::int64_t num_reads = 0;
  std::int64_t num_bytes = 0;
  bool has_kernel_times = false;  // arrivals come from the kernel's receive time stamps
  bool has_short_slice = false;   // the scheduler lets the loops in soon (loop_thread.hpp)
};

enum class LoadEnd : std::uint8_t {
  kCount,       // all requests of the plan
  kTime,        // its time was up
  kConverged,   // the interval of the median is tight enough
  kSaturated,   // the queue only grew
  kServerGone,  // nothing but failures of the connection any more
  kInterrupted,
};
[[nodiscard]] const char* name_of(LoadEnd end);

// Requests in flight over time, for charts.
struct InFlightSample {
  double time_s = 0.0;
  std::int64_t in_flight = 0;
};

struct LoadResult {
  std::vector<RequestRecord> records;  // by index; warm-up included, marked
  SelfMeasure self;
  LoadEnd end = LoadEnd::kCount;
  std::string end_detail;
  double measured_begin_s = 0.0;  // after the warm-up, on the run's clock
  double measured_end_s = 0.0;    // end of the last measured request
  double drain_s = 0.0;           // from the last send to the last end
  std::vector<InFlightSample> in_flight;
  std::int64_t peak_in_flight = 0;
  std::int64_t num_planned = 0;      // measured requests that fell due
  std::int64_t num_dropped = 0;      // fell due and were never sent
  double started_monotonic_s = 0.0;  // CLOCK_MONOTONIC at 0
  double started_unix_s = 0.0;       // wall clock at 0, to match a server's log
};

}  // namespace moe::client
