#include "lib/planner/kernel_time.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/base/text.hpp"
#include "lib/json/read.hpp"
#include "lib/planner/measured_json.hpp"

namespace moe::planner {
namespace {

constexpr std::array kKernelKinds = {KernelKind::kMoe,
                                     KernelKind::kGemm,
                                     KernelKind::kDecodeAttention,
                                     KernelKind::kPrefillAttention,
                                     KernelKind::kDecodeMla,
                                     KernelKind::kPrefillMla};

// The upper one of two middle values: a constant that was fitted, no mean of two fits.
double median(std::vector<double> values) {
  const std::size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(middle),
                   values.end());
  return values[middle];
}

KernelFit from_row(const KernelRow& row, FitMatch match) {
  return {.t0_s = row.t0_s,
          .bytes_share = row.bytes_share,
          .flops_share = row.flops_share,
          .held_out_error = row.held_out_error,
          .match = match,
          .source = row.gpu + " " + row.engine + " " + row.format};
}

// Several rows answer: the median of each constant, so that one odd kernel decides nothing.
KernelFit from_median(const std::vector<const KernelRow*>& rows, FitMatch match,
                      const std::string& what) {
  const auto collect = [&](double KernelRow::*field) {
    std::vector<double> values;
    values.reserve(rows.size());
    for (const KernelRow* row : rows) values.push_back(row->*field);
    return median(std::move(values));
  };
  return {.t0_s = collect(&KernelRow::t0_s),
          .bytes_share = collect(&KernelRow::bytes_share),
          .flops_share = collect(&KernelRow::flops_share),
          .held_out_error = collect(&KernelRow::held_out_error),
          .match = match,
          .source = fmt::format("median of {} fits{}", rows.size(), what)};
}

}  // namespace

std::string_view kernel_kind_name(KernelKind kind) {
  switch (kind) {
    case KernelKind::kMoe:
      return "moe";
    case KernelKind::kGemm:
      return "gemm";
    case KernelKind::kDecodeAttention:
      return "decode_attention";
    case KernelKind::kPrefillAttention:
      return "prefill_attention";
    case KernelKind::kDecodeMla:
      return "decode_mla";
    case KernelKind::kPrefillMla:
      return "prefill_mla";
  }
  return "moe";
}

std::string_view fit_match_name(FitMatch match) {
  switch (match) {
    case FitMatch::kExact:
      return "measured";
    case FitMatch::kOtherEngine:
      return "another engine on the same GPU";
    case FitMatch::kOtherGpu:
      return "the same engine on other GPUs";
    case FitMatch::kFormatOnly:
      return "other engines on other GPUs";
    case FitMatch::kDefault:
      return "other formats";
  }
  return "measured";
}

KernelTable::KernelTable(std::vector<KernelRow> rows) : rows_(std::move(rows)) {}

KernelFit KernelTable::find(KernelKind kind, std::string_view gpu, std::string_view engine,
                            std::string_view format) const {
  using Rule = std::function<bool(const KernelRow&)>;
  const auto is_format = [&](const KernelRow& row) { return row.format == format; };
  const std::array<std::pair<FitMatch, Rule>, 5> rules = {{
      {FitMatch::kExact,
       [&](const KernelRow& row) {
         return is_format(row) && row.gpu == gpu && row.engine == engine;
       }},
      {FitMatch::kOtherEngine,
       [&](const KernelRow& row) { return is_format(row) && row.gpu == gpu; }},
      {FitMatch::kOtherGpu,
       [&](const KernelRow& row) { return is_format(row) && row.engine == engine; }},
      {FitMatch::kFormatOnly, is_format},
      {FitMatch::kDefault, [](const KernelRow&) { return true; }},
  }};
  for (const auto& [match, rule] : rules) {
    std::vector<const KernelRow*> found;
    for (const KernelRow& row : rows_) {
      if (row.kind == kind && rule(row)) found.push_back(&row);
    }
    if (found.size() == 1) return from_row(*found.front(), match);
    if (!found.empty()) {
      return from_median(found, match, fmt::format(" ({})", fit_match_name(match)));
    }
  }
  KernelFit fit;  // an empty table: the constants of the published hand checks
  fit.source = "no kernel table: 0.8 of bandwidth, 0.6 of peak";
  return fit;
}

KernelTable parse_kernel_table(std::string_view json_text, const std::string& where) {
  const json::Json document = json::parse(json_text, where);
  std::vector<KernelRow> rows;
  std::size_t index = 0;
  for (const json::Json& entry : array_at(document, "fits", where)) {
    const std::string here = fmt::format("{}: fits[{}]", where, index++);
    KernelRow row;
    const std::string kind = text_at(entry, "kernel", here);
    const auto it = std::find_if(kKernelKinds.begin(), kKernelKinds.end(),
                                 [&](KernelKind k) { return kernel_kind_name(k) == kind; });
    if (it == kKernelKinds.end()) {
      throw Error(ErrorCode::kInput,
                  fmt::format("{}: unknown kernel \"{}\"", here, printable(kind)));
    }
    row.kind = *it;
    row.gpu = text_at(entry, "gpu", here);
    row.engine = text_at(entry, "engine", here);
    row.format = text_at(entry, "format", here);
    row.t0_s = number_at(entry, "t0_s", 0.0, 1.0, here);
    row.bytes_share = number_at(entry, "bytes_share", 1e-4, 10.0, here);
    row.flops_share = number_at(entry, "flops_share", 1e-4, 10.0, here);
    row.held_out_error = number_or(entry, "held_out_error", 0.0, 0.0, 1e3, here);
    rows.push_back(std::move(row));
  }
  return KernelTable(std::move(rows));
}

}  // namespace moe::planner
