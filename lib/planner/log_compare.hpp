#pragma once

// Prediction against an engine's start-up log, term by term.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/model/architecture.hpp"
#include "lib/planner/engine_log.hpp"
#include "lib/planner/weights.hpp"

namespace moe::planner {

enum class TermVerdict : std::uint8_t {
  kExact,  // equal, or equal within the digits printed
  kClose,  // within `tolerance`
  kDifferent,
  kNotPrinted,    // the log does not say
  kNotPredicted,  // the log says and the model has no term for it alone
};
[[nodiscard]] std::string_view verdict_name(TermVerdict verdict);

struct LogTerm {
  std::string name;  // "KV cache tokens"
  std::string unit;  // "bytes", "1"
  std::optional<double> predicted;
  std::optional<double> logged;
  double slack = 0.0;  // of the printed value
  TermVerdict verdict = TermVerdict::kNotPrinted;
  std::string how;  // the prediction in words
};

struct LogCompareOptions {
  WeightOptions weights;
  double tolerance = 0.01;  // kClose
  // Settings that replace what the log says, or stand in where it does not; 0 and empty: none.
  Layout layout;
  bool has_layout = false;
  std::int64_t block_tokens = 0;
  std::string kv_dtype;
};

struct LogComparison {
  Layout layout;
  std::vector<LogTerm> terms;
  // What the model says of a start that the log shows refused, or the other way round; empty when
  // both agree.
  std::string start_difference;
  bool predicts_start = false;
};

[[nodiscard]] LogComparison compare_log(const EngineLog& log,
                                        const model::Architecture& architecture,
                                        const LogCompareOptions& options);

}  // namespace moe::planner
