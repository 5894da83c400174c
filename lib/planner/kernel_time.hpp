#pragma once

// What kernels of real engines reach on real GPUs: time = t0 + bytes / (share of bandwidth) + flops
// / (share of peak), fitted per GPU, engine and number format (scenarios/measured/kernels.json).

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moe::planner {

enum class KernelKind : std::uint8_t {
  kMoe,
  kGemm,
  kDecodeAttention,
  kPrefillAttention,
  kDecodeMla,
  kPrefillMla,
};
[[nodiscard]] std::string_view kernel_kind_name(KernelKind kind);

// How near a fit is to what was asked for.
enum class FitMatch : std::uint8_t {
  kExact,
  kOtherEngine,  // same GPU and format
  kOtherGpu,     // same engine and format
  kFormatOnly,   // same format
  kDefault,      // no measurement of the format: the median of all fits of the kernel
};
[[nodiscard]] std::string_view fit_match_name(FitMatch match);

struct KernelFit {
  double t0_s = 0.0;
  double bytes_share = 0.8;  // of the memory bandwidth
  double flops_share = 0.6;  // of the dense peak of the format
  double held_out_error = 0.0;
  FitMatch match = FitMatch::kDefault;
  std::string source;  // "b200-sxm trtllm nvfp4"
};

struct KernelRow {
  KernelKind kind = KernelKind::kMoe;
  std::string gpu;     // id of hardware.json
  std::string engine;  // engine_name()
  std::string format;  // "bf16", "fp8-block128", "nvfp4", ...; attention: of the cache
  double t0_s = 0.0;
  double bytes_share = 0.0;
  double flops_share = 0.0;
  double held_out_error = 0.0;
};

class KernelTable {
 public:
  KernelTable() = default;
  explicit KernelTable(std::vector<KernelRow> rows);

  [[nodiscard]] KernelFit find(KernelKind kind, std::string_view gpu, std::string_view engine,
                               std::string_view format) const;
  [[nodiscard]] const std::vector<KernelRow>& rows() const { return rows_; }

 private:
  std::vector<KernelRow> rows_;
};

// Throws Error(kInput) naming the entry and the field.
[[nodiscard]] KernelTable parse_kernel_table(std::string_view json_text, const std::string& where);

}  // namespace moe::planner
