#pragma once

// Whether a core is ours alone. On shared hosts the other hyperthread of a core may belong to
// somebody else, and nothing in the guest says so: no steal time, no sibling in its topology. What
// shows is the width: how many additions the core completes a cycle for us. Four independent chains
// of additions are timed against one chain of multiplications, whose latency is a fixed number of
// cycles, so the figure does not depend on the clock frequency. A busy neighbour takes a third of
// it (seen: 3.5 falls to 2.4 on Emerald Rapids), and with it half and more of the vector and tile
// rate. Other processors reach other widths, so the line is drawn relative to the widest reading of
// the same processor.

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/thread_pool.hpp"

namespace moe::engine {

enum class CoreState : std::uint8_t {
  kFree,     // as wide as the widest reading of its processor
  kShared,   // somebody else works on the same core
  kUnknown,  // nothing to compare with, or one level only that may be either
};
[[nodiscard]] const char* core_state_name(CoreState state);  // "free", "shared", "unknown"

struct WidthReading {
  double adds_per_cycle = 0.0;  // 0: the probe does not exist for this kind of processor
  std::int32_t cpu = 0;         // where it ran, as the system numbers processors
};

// The probe itself, about 40 microseconds on the calling thread: the median of five bursts, so that
// one interruption does not count.
[[nodiscard]] WidthReading measure_width() noexcept;

using WidthSampler = std::function<WidthReading()>;

// One reading per thread of a pool, all at the same time.
struct CoreProbe {
  std::vector<WidthReading> threads;
};

// Of one processor: what was read so far.
struct WidthRange {
  static constexpr double kBinsPerUnit = 64.0;
  static constexpr std::size_t kNumBins = 320;

  double least = 0.0;
  double most = 0.0;
  std::int64_t num_readings = 0;
  std::array<std::int64_t, kNumBins> histogram{};  // of adds per cycle, in bins of 1 / kBinsPerUnit

  // Readings below a width, to within a bin.
  [[nodiscard]] std::int64_t num_below(double adds_per_cycle) const;
};

// What is known of the processors that were probed, and the verdict on a reading.
class WidthReference {
 public:
  // Below this share of the widest reading a core counts as shared. 0.9 lies between the two
  // levels that were seen (Emerald Rapids 2.4 and 3.5, Zen 3 2.0 and 3.85: 0.69 and 0.52) and
  // outside the noise of a free core (within 5 %).
  static constexpr double kFreeShare = 0.9;
  // Four chains cannot exceed four additions a cycle. A core at four fifths of that has nothing
  // left for a neighbour of the same weight: it is free even when no other level was ever seen.
  static constexpr double kSurelyFreeAddsPerCycle = 3.2;
  static constexpr std::int64_t kMinReadings = 8;

  void add(const WidthReading& reading);
  void add(const CoreProbe& probe);
  [[nodiscard]] CoreState state(const WidthReading& reading) const;
  // Free when all threads are, shared when one is.
  [[nodiscard]] CoreState state(const CoreProbe& probe) const;
  // Of a sample that lies between the first and the last of these.
  [[nodiscard]] CoreState state(std::span<const CoreProbe> probes) const;
  // Every processor that was seen, by its number.
  [[nodiscard]] const std::map<std::int32_t, WidthRange>& processors() const { return ranges_; }
  // One line: how the line between free and shared was drawn.
  [[nodiscard]] std::string describe() const;

 private:
  std::map<std::int32_t, WidthRange> ranges_;
};

// Both in one: probes all threads of a pool and remembers. Must not run beside other work on it.
class CoreWatch {
 public:
  explicit CoreWatch(WidthSampler sampler = measure_width) : sampler_(std::move(sampler)) {}

  // A few milliseconds: enough to see a core that changes hands every millisecond in both states.
  void calibrate(ThreadPool& pool);
  // Into `out`, whose threads are reserved by its first use.
  void probe(ThreadPool& pool, CoreProbe& out);
  [[nodiscard]] const WidthReference& reference() const { return reference_; }

 private:
  WidthSampler sampler_;
  WidthReference reference_;
};

}  // namespace moe::engine
