#include "lib/model/synth_fill.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "lib/base/check.hpp"
#include "lib/base/fnv1a.hpp"
#include "lib/base/rng.hpp"

namespace moe::model {
namespace {

using Quantiles = std::array<double, kFillTableEntries>;

// Of the standard normal at the middles of 8192 equal shares. No lambda, which the compiler would
// evaluate for ten seconds.
Quantiles make_normal_quantiles() {
  Quantiles quantiles{};
  double low = -6.0;  // the quantiles rise, so each search starts where the last one ended
  for (std::size_t index = 0; index < quantiles.size(); ++index) {
    const double probability =
        (static_cast<double>(index) + 0.5) / static_cast<double>(kFillTableEntries);
    double high = 6.0;
    double bottom = low;
    while (high - bottom > 1e-12) {
      const double middle = 0.5 * (bottom + high);
      (0.5 * std::erfc(-middle / std::sqrt(2.0)) < probability ? bottom : high) = middle;
    }
    low = bottom;
    quantiles[index] = bottom;
  }
  return quantiles;
}

const Quantiles& normal_quantiles() {
  static const Quantiles quantiles = make_normal_quantiles();
  return quantiles;
}

// The nearest of the sixteen values 0, .5, 1, 1.5, 2, 3, 4, 6 and their negatives.
unsigned mxfp4_code(double value) {
  constexpr std::array<double, 8> kValues = {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0};
  unsigned best = 0;
  for (unsigned code = 1; code < 8; ++code) {
    if (std::fabs(std::fabs(value) - kValues[code]) < std::fabs(std::fabs(value) - kValues[best])) {
      best = code;
    }
  }
  return value < 0.0 ? best | 8u : best;
}

// Two codes: the low 7 bits of the index choose one, the high 6 bits the other.
double mxfp4_pair(std::size_t index) {
  const auto quantile = [](std::size_t share, std::size_t shares) {
    return normal_quantiles()[share * (kFillTableEntries / shares) +
                              kFillTableEntries / shares / 2];
  };
  const unsigned low = mxfp4_code(2.0 * quantile(index % 128, 128));
  const unsigned high = mxfp4_code(2.0 * quantile(index / 128, 64));
  return static_cast<double>(low | high << 4);
}

double table_value(const FillPlan& plan, std::size_t index) {
  const double z = normal_quantiles()[index];
  switch (plan.kind) {
    case FillKind::kNormal:
      return plan.mean + plan.stdev * z;
    case FillKind::kSignedNormal:
      return (index % 2 == 0 ? 1.0 : -1.0) * (plan.mean + plan.stdev * z);
    case FillKind::kUniform:
      return plan.stdev *
             (0.75 + 0.5 * static_cast<double>(index) / static_cast<double>(kFillTableEntries));
    case FillKind::kMxfp4Codes:
      return mxfp4_pair(index);
    case FillKind::kMxfp4Scales: {
      // Codes have stdev 2; exponents e and e + 1 in equal shares have a mean square of 2.5 * 4^e.
      const double exponent = std::round(std::log2(plan.stdev / 2.0 / std::sqrt(2.5))) + 127.0;
      return std::clamp(exponent + static_cast<double>(index % 2), 0.0, 254.0);
    }
  }
  MOE_CHECK(false);
}

// Four elements a hash.
template <typename Element>
void fill_random(const Rng& rng, const Element* table, std::int64_t first, std::int64_t count,
                 Element* out) {
  constexpr std::uint64_t kMask = kFillTableEntries - 1;
  const auto element_at = [&](std::int64_t index) {
    const std::uint64_t bits = rng.bits_at(static_cast<std::uint64_t>(index) / 4);
    return table[(bits >> (static_cast<std::uint64_t>(index) % 4 * 16)) & kMask];
  };
  std::int64_t at = 0;
  for (; at < count && (first + at) % 4 != 0; ++at) out[at] = element_at(first + at);
  for (; at + 4 <= count; at += 4) {
    const std::uint64_t bits = rng.bits_at(static_cast<std::uint64_t>(first + at) / 4);
    out[at] = table[bits & kMask];
    out[at + 1] = table[(bits >> 16) & kMask];
    out[at + 2] = table[(bits >> 32) & kMask];
    out[at + 3] = table[(bits >> 48) & kMask];
  }
  for (; at < count; ++at) out[at] = element_at(first + at);
}

template <typename Element>
void patch_elements(const FillPlan& plan, Dtype dtype, std::int64_t first, std::int64_t count,
                    Element* out) {
  const std::int64_t cols = plan.cols;
  if (plan.patch == PatchKind::kFirstColumn) {
    for (std::int64_t row = (first + cols - 1) / cols; row * cols < first + count; ++row) {
      const float value = plan.column[static_cast<std::size_t>(row) % plan.column.size()];
      encode_element(static_cast<double>(value), dtype,
                     reinterpret_cast<std::byte*>(out + (row * cols - first)));
    }
  } else if (plan.patch == PatchKind::kFirstRowZero) {
    const std::int64_t matrix = cols * plan.period;
    for (std::int64_t begin = first / matrix * matrix; begin < first + count; begin += matrix) {
      const std::int64_t from = std::max(begin, first);
      const std::int64_t to = std::min(begin + cols, first + count);
      if (from < to) std::fill(out + (from - first), out + (to - first), Element{0});
    }
  }
}

template <typename Element>
void fill_elements(const FillPlan& plan, const FillTable& table, Dtype dtype, const Rng& rng,
                   std::int64_t first, std::span<std::byte> out) {
  const auto count = static_cast<std::int64_t>(out.size() / sizeof(Element));
  auto* elements = reinterpret_cast<Element*>(out.data());
  fill_random(rng, reinterpret_cast<const Element*>(table.data()), first, count, elements);
  if (plan.patch != PatchKind::kNone) patch_elements(plan, dtype, first, count, elements);
}

}  // namespace

void encode_element(double value, Dtype dtype, std::byte* out) {
  const auto narrow = static_cast<float>(value);
  const auto store = [out](auto bits) { std::memcpy(out, &bits, sizeof(bits)); };
  switch (dtype) {
    case Dtype::kF32:
      store(narrow);
      return;
    case Dtype::kBf16:
      store(f32_to_bf16(narrow));
      return;
    case Dtype::kF16:
      store(f32_to_f16(narrow));
      return;
    case Dtype::kF8E4m3:
      store(f32_to_f8_e4m3(narrow));
      return;
    case Dtype::kU8:
      store(static_cast<std::uint8_t>(value));
      return;
    default:
      MOE_CHECK(false);
  }
}

std::shared_ptr<const FillTable> Filler::table(const FillPlan& plan, Dtype dtype) {
  auto& slot = tables_[{plan.kind, plan.mean, plan.stdev, dtype}];
  if (slot == nullptr) {
    const auto element_bytes = static_cast<std::size_t>(dtype_bits(dtype) / 8);
    FillTable table(kFillTableEntries * element_bytes);
    for (std::size_t index = 0; index < kFillTableEntries; ++index) {
      encode_element(table_value(plan, index), dtype, table.data() + index * element_bytes);
    }
    slot = std::make_shared<const FillTable>(std::move(table));
  }
  return slot;
}

void Filler::fill(const FillPlan& plan, const FillTable& table, Dtype dtype, std::string_view name,
                  std::int64_t first, std::span<std::byte> out) const {
  if (!plan.values.empty()) {
    const auto element_bytes = static_cast<std::size_t>(dtype_bits(dtype) / 8);
    for (std::size_t at = 0; at < out.size() / element_bytes; ++at) {
      encode_element(static_cast<double>(plan.values[static_cast<std::size_t>(first) + at]), dtype,
                     out.data() + at * element_bytes);
    }
    return;
  }
  const Rng rng(seed_, fnv1a64(name));
  switch (dtype_bits(dtype)) {
    case 8:
      fill_elements<std::uint8_t>(plan, table, dtype, rng, first, out);
      return;
    case 16:
      fill_elements<std::uint16_t>(plan, table, dtype, rng, first, out);
      return;
    case 32:
      fill_elements<std::uint32_t>(plan, table, dtype, rng, first, out);
      return;
    default:
      MOE_CHECK(false);
  }
}

}  // namespace moe::model
