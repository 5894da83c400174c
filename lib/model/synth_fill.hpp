#pragma once

// Cheap deterministic random tensors: element i of a tensor is a table entry chosen by 13 bits of a
// counter-based hash of i, so any piece can be made on its own. Internal to the checkpoint writer.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "lib/model/dtype.hpp"

namespace moe::model {

inline constexpr std::size_t kFillTableEntries = 8192;

// What the elements are drawn from.
enum class FillKind : std::uint8_t {
  kNormal,        // mean + stdev * z
  kSignedNormal,  // +-(mean + stdev * z)
  kUniform,       // uniform in [0.75, 1.25] * stdev
  kMxfp4Codes,    // two codes a byte of normals of stdev 2
  kMxfp4Scales,   // exponents: 2^(e - 127) near stdev / 2
};

// What is different about the first column or row.
enum class PatchKind : std::uint8_t {
  kNone,
  kFirstColumn,   // element (r, 0) = column[r % column.size()]
  kFirstRowZero,  // rows r with r % period == 0 are zero
};

struct FillPlan {
  FillKind kind = FillKind::kNormal;
  double mean = 0.0;
  double stdev = 1.0;
  std::vector<float> values;  // not empty: exactly these, nothing random
  PatchKind patch = PatchKind::kNone;
  std::int64_t cols = 0;    // elements of a row, for the patch
  std::int64_t period = 1;  // rows of one matrix, for kFirstRowZero
  std::vector<float> column;
};

// Encoded table entries, dtype_bits / 8 bytes each.
using FillTable = std::vector<std::byte>;

class Filler {
 public:
  explicit Filler(std::uint64_t seed) : seed_(seed) {}

  // The table of a plan; tables are kept, plans of a model share few. Not thread-safe.
  [[nodiscard]] std::shared_ptr<const FillTable> table(const FillPlan& plan, Dtype dtype);

  // Elements [first, first + bytes / element size) of the tensor called `name`. Thread-safe.
  void fill(const FillPlan& plan, const FillTable& table, Dtype dtype, std::string_view name,
            std::int64_t first, std::span<std::byte> out) const;

 private:
  std::uint64_t seed_;
  std::map<std::tuple<FillKind, double, double, Dtype>, std::shared_ptr<const FillTable>> tables_;
};

// `value` as F32, F16, BF16, F8_E4M3 or U8 bytes.
void encode_element(double value, Dtype dtype, std::byte* out);

}  // namespace moe::model
