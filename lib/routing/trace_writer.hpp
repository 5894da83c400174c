#pragma once

// Writes a routing trace whose length is not known beforehand. Rows gather in memory; flush() moves
// them to a scratch file per column beside the target, so that memory stays flat over a long run
// and nothing is written inside a timed region; commit() puts the columns together. The target
// appears whole at commit() or not at all.

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <vector>

#include "lib/routing/trace.hpp"

namespace moe::routing {

class TraceWriter {
 public:
  // Throws Error(kRuntime) when files cannot be made in the target's folder.
  TraceWriter(std::filesystem::path target, TraceInfo info);
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;
  ~TraceWriter();

  // One layer of one forward pass: ids and weights [num_tokens, top_k], the others [num_tokens].
  struct Rows {
    std::int64_t num_tokens = 0;
    const std::int32_t* ids = nullptr;
    const float* weights = nullptr;
    const std::int32_t* request = nullptr;
    const std::int64_t* token = nullptr;
    std::int32_t step = 0;
    std::int32_t layer = 0;
    Phase phase = Phase::kPrefill;
    double time_s = 0.0;
  };
  void append(const Rows& rows);

  // Makes room for rows so that append() does not allocate.
  void reserve(std::int64_t num_rows);
  // Throws Error(kRuntime) when the disk is full.
  void flush();
  void commit();

  [[nodiscard]] std::int64_t num_rows() const { return num_flushed_ + pending_.num_rows(); }

 private:
  struct ScratchFile;

  std::filesystem::path target_;
  Trace pending_;  // rows since the last flush
  std::int64_t num_flushed_ = 0;
  std::vector<std::unique_ptr<ScratchFile>> scratch_;  // one per column
};

}  // namespace moe::routing
