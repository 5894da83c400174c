#include "lib/engine/width_probe.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>

#include <fmt/format.h>
#include <sched.h>

#include "lib/base/check.hpp"

namespace moe::engine {
namespace {

#if defined(__x86_64__)

constexpr int kBursts = 5;
constexpr std::uint32_t kRounds = 320;
// Of one round, which both loops unroll to.
constexpr double kAddsPerRound = 64.0;
constexpr double kMultipliesPerRound = 16.0;
// A 32-bit multiplication takes three cycles on every x86-64 processor since 2008 (Agner Fog,
// "Instruction tables"); it is the clock of the probe. Were it another number, all widths of the
// machine would be off by one factor, which a threshold relative to the widest does not feel.
constexpr double kMultiplyCycles = 3.0;
constexpr double kMostAddsPerCycle = 4.0 * 1.05;  // four chains, and what the timer may be off

double seconds_of(std::chrono::steady_clock::duration time) noexcept {
  return std::chrono::duration<double>(time).count();
}

// The step is a register: additions of small constants are folded by the renamer of some cores.
void add_in_four_chains(std::uint32_t rounds) noexcept {
  std::uint64_t a = 1;
  std::uint64_t b = 2;
  std::uint64_t c = 3;
  std::uint64_t d = 4;
  asm volatile(
      "1:\n\t"
      ".rept 16\n\t"
      "add %[step], %[a]\n\t"
      "add %[step], %[b]\n\t"
      "add %[step], %[c]\n\t"
      "add %[step], %[d]\n\t"
      ".endr\n\t"
      "dec %[rounds]\n\t"
      "jnz 1b\n\t"
      : [a] "+r"(a), [b] "+r"(b), [c] "+r"(c), [d] "+r"(d), [rounds] "+r"(rounds)
      : [step] "r"(std::uint64_t{0x9e3779b97f4a7c15})
      : "cc");
}

void multiply_in_one_chain(std::uint32_t rounds) noexcept {
  std::uint32_t x = 3;
  asm volatile(
      "1:\n\t"
      ".rept 16\n\t"
      "imul %[factor], %[x]\n\t"
      ".endr\n\t"
      "dec %[rounds]\n\t"
      "jnz 1b\n\t"
      : [x] "+r"(x), [rounds] "+r"(rounds)
      : [factor] "r"(std::uint32_t{0x2545f491})
      : "cc");
}

double burst_adds_per_cycle() noexcept {
  using std::chrono::steady_clock;
  const auto begin = steady_clock::now();
  add_in_four_chains(kRounds);
  const auto middle = steady_clock::now();
  multiply_in_one_chain(kRounds);
  const auto end = steady_clock::now();
  const double adds_s = seconds_of(middle - begin) / (kRounds * kAddsPerRound);
  const double cycle_s =
      seconds_of(end - middle) / (kRounds * kMultipliesPerRound * kMultiplyCycles);
  return adds_s > 0.0 ? cycle_s / adds_s : 0.0;
}

#endif

}  // namespace

const char* core_state_name(CoreState state) {
  switch (state) {
    case CoreState::kFree:
      return "free";
    case CoreState::kShared:
      return "shared";
    case CoreState::kUnknown:
      return "unknown";
  }
  MOE_CHECK(false);
  return "";
}

WidthReading measure_width() noexcept {
  WidthReading reading;
  reading.cpu = static_cast<std::int32_t>(std::max(0, sched_getcpu()));
#if defined(__x86_64__)
  std::array<double, kBursts> bursts{};
  for (double& burst : bursts) burst = burst_adds_per_cycle();
  std::nth_element(bursts.begin(), bursts.begin() + kBursts / 2, bursts.end());
  const double median = bursts[kBursts / 2];
  // More than the chains allow: the thread was stopped while the multiplications were timed.
  if (median <= kMostAddsPerCycle) reading.adds_per_cycle = median;
#endif
  return reading;
}

std::int64_t WidthRange::num_below(double adds_per_cycle) const {
  std::int64_t count = 0;
  for (std::size_t bin = 0; bin < histogram.size(); ++bin) {
    if (static_cast<double>(bin) >= adds_per_cycle * kBinsPerUnit) break;
    count += histogram[bin];
  }
  return count;
}

void WidthReference::add(const WidthReading& reading) {
  if (reading.adds_per_cycle <= 0.0) return;
  WidthRange& range = ranges_[reading.cpu];
  range.least = range.num_readings == 0 ? reading.adds_per_cycle
                                        : std::min(range.least, reading.adds_per_cycle);
  range.most = std::max(range.most, reading.adds_per_cycle);
  ++range.num_readings;
  const auto bin = static_cast<std::size_t>(reading.adds_per_cycle * WidthRange::kBinsPerUnit);
  ++range.histogram[std::min(bin, range.histogram.size() - 1)];
}

void WidthReference::add(const CoreProbe& probe) {
  for (const WidthReading& reading : probe.threads) add(reading);
}

CoreState WidthReference::state(const WidthReading& reading) const {
  const auto found = ranges_.find(reading.cpu);
  if (reading.adds_per_cycle <= 0.0 || found == ranges_.end()) return CoreState::kUnknown;
  const WidthRange& range = found->second;
  if (range.num_readings < kMinReadings) return CoreState::kUnknown;
  if (reading.adds_per_cycle < kFreeShare * range.most) return CoreState::kShared;
  const bool has_two_levels = range.least < kFreeShare * range.most;
  const bool is_surely_free = range.most >= kSurelyFreeAddsPerCycle;
  return has_two_levels || is_surely_free ? CoreState::kFree : CoreState::kUnknown;
}

CoreState WidthReference::state(const CoreProbe& probe) const {
  return state(std::span(&probe, 1));
}

CoreState WidthReference::state(std::span<const CoreProbe> probes) const {
  bool has_reading = false;
  bool is_free = true;
  for (const CoreProbe& probe : probes) {
    for (const WidthReading& reading : probe.threads) {
      const CoreState one = state(reading);
      if (one == CoreState::kShared) return CoreState::kShared;
      is_free = is_free && one == CoreState::kFree;
      has_reading = true;
    }
  }
  return has_reading && is_free ? CoreState::kFree : CoreState::kUnknown;
}

std::string WidthReference::describe() const {
  if (ranges_.empty()) return "no width probe for this kind of processor: the state is unknown";
  double least = std::numeric_limits<double>::infinity();
  double most = 0.0;
  bool has_two_levels = false;
  for (const auto& [cpu, range] : ranges_) {
    least = std::min(least, range.least);
    most = std::max(most, range.most);
    has_two_levels = has_two_levels || range.least < kFreeShare * range.most;
  }
  std::string rule = fmt::format(
      "shared below {:.2f} of the widest reading of the same processor; readings from {:.2f} to "
      "{:.2f} additions a cycle",
      kFreeShare, least, most);
  if (has_two_levels) return rule;
  return rule + (most >= kSurelyFreeAddsPerCycle
                     ? fmt::format(": one level only, and wide enough ({:.1f} of at most 4) to be "
                                   "the free one",
                                   most)
                     : ": one level only, which may be the free or the shared one");
}

void CoreWatch::calibrate(ThreadPool& pool) {
  constexpr int kRoundsOfCalibration = 64;
  CoreProbe scratch;
  for (int round = 0; round < kRoundsOfCalibration; ++round) probe(pool, scratch);
}

void CoreWatch::probe(ThreadPool& pool, CoreProbe& out) {
  out.threads.resize(static_cast<std::size_t>(pool.num_threads()));
  pool.run([&](int thread_idx) { out.threads[static_cast<std::size_t>(thread_idx)] = sampler_(); });
  reference_.add(out);
}

}  // namespace moe::engine
