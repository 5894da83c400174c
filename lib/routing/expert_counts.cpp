#include "lib/routing/expert_counts.hpp"

#include "lib/base/error.hpp"
#include "lib/base/int_math.hpp"

namespace moe::routing {

const char* format_name(Format format) {
  switch (format) {
    case Format::kMoekitTrace:
      return "moekit routing trace";
    case Format::kTokenIds:
      return "array of expert ids";
    case Format::kSglangStat:
      return "SGLang dump (stat)";
    case Format::kSglangPerPass:
      return "SGLang dump (per_pass)";
    case Format::kSglangPerToken:
      return "SGLang dump (per_token)";
    case Format::kSglangJson:
      return "SGLang expert location JSON";
    case Format::kTensorRtStatistic:
      return "TensorRT-LLM expert statistic";
    case Format::kTensorRtRaw:
      return "TensorRT-LLM expert statistic (raw)";
    case Format::kVllmRoutedExperts:
      return "vLLM routed experts";
    case Format::kRouterLogits:
      return "router logits";
    case Format::kCountMatrix:
      return "count matrix";
    case Format::kEsftText:
      return "ESFT expert weights";
    case Format::kJsonLines:
      return "JSON lines";
    case Format::kExpertIdCsv:
      return "CSV of expert ids";
  }
  return "";
}

const char* window_unit_name(WindowUnit unit) {
  switch (unit) {
    case WindowUnit::kWhole:
      return "whole";
    case WindowUnit::kTokens:
      return "tokens";
    case WindowUnit::kSteps:
      return "steps";
    case WindowUnit::kSeconds:
      return "seconds";
  }
  return "";
}

std::vector<std::int64_t> ExpertCounts::total() const {
  std::vector<std::int64_t> sum(static_cast<std::size_t>(num_layers() * num_experts()), 0);
  for (std::int64_t w = 0; w < num_windows(); ++w) {
    const std::span<const std::int64_t> of_window = window(w);
    for (std::size_t i = 0; i < sum.size(); ++i) {
      const auto next = checked_add(sum[i], of_window[i]);
      if (!next.has_value()) {
        throw Error(ErrorCode::kInput,
                    info.name + ": the counts of one expert pass 2^63; the file is damaged");
      }
      sum[i] = *next;
    }
  }
  return sum;
}

}  // namespace moe::routing
