#pragma once

// The two slopes of the roofline (Williams, Waterman, Patterson 2009), sampled between the passes
// of a run in about five milliseconds: how fast the engine's own threads read the engine's own
// weights, and how fast they multiply. Measured minutes before a run they would not do: on a shared
// host both change twofold within seconds. Reading the weights themselves needs no other memory,
// and takes them from where they really lie: the cache when they fit there, huge pages when they
// have them.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/api.hpp"
#include "lib/base/clock.hpp"
#include "lib/base/thread_pool.hpp"
#include "lib/engine/instruction_peak.hpp"
#include "lib/engine/product_loop.hpp"
#include "lib/engine/width_probe.hpp"

namespace moe::engine {

struct RooflineSample {
  double read_bytes_per_s = 0.0;
  double ops_per_s = 0.0;
  std::array<CoreProbe, 3> probes;  // before, between and after the two
};

class RooflineSampler {
 public:
  // `of` is the product that does most of the work. Its peak is that of the level's multiply
  // instruction, or of the kernel where there is none. All must outlive the sampler.
  RooflineSampler(ThreadPool& pool, std::span<const std::byte> weights, const PeakCase& of,
                  CoreWatch& watch, const Clock& clock);

  [[nodiscard]] RooflineSample sample();
  // "tdpbf16ps" or "kernel": what the peak was measured with.
  [[nodiscard]] const char* peak_name() const;

 private:
  // The best of a few tries.
  template <typename Body>
  [[nodiscard]] double shortest_s(Body&& body);
  void read_slice();
  void multiply(std::int64_t num_calls);
  [[nodiscard]] double ops_per_call() const;

  ThreadPool& pool_;
  CoreWatch& watch_;
  const Clock& clock_;
  const MultiplyInstruction* instruction_ = nullptr;
  ProductLoop product_;  // used without an instruction
  const std::uint64_t* words_ = nullptr;
  std::int64_t slice_words_ = 0;  // of one thread
  std::int64_t num_slices_ = 0;   // of all threads together in the block
  std::int64_t num_passes_ = 1;   // over a slice: several where the weights are small
  std::int64_t next_slice_ = 0;
  std::int64_t num_calls_ = 1;
};

}  // namespace moe::engine
