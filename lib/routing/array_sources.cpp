#include "lib/routing/array_sources.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/base/int_math.hpp"
#include "lib/routing/id_cleaner.hpp"
#include "lib/routing/top_scores.hpp"

namespace moe::routing {
namespace {

constexpr std::size_t kReleaseBytes = std::size_t{4} << 20;
constexpr std::size_t kPageBytes = 4096;
// Ids of a block: 256 KiB stay in the second-level cache between reader and tally.
constexpr std::int64_t kBlockCells = 65536;
constexpr std::int64_t kMinBlockTokens = 16;
// Counts at or above 2^63 as floats cannot be told from damage.
constexpr double kMaxRealCount = 9.0e18;

// Wide numbers that do not fit become the largest int32, which is out of every range.
template <typename Element>
std::int32_t narrow_id(Element element) {
  if constexpr (sizeof(Element) < sizeof(std::int32_t) || std::is_same_v<Element, std::int32_t>) {
    return element;
  } else {
    return std::in_range<std::int32_t>(element) ? static_cast<std::int32_t>(element)
                                                : std::numeric_limits<std::int32_t>::max();
  }
}

template <typename Element>
void copy_ids(const ArrayView& rows, std::int64_t begin, std::int64_t num_tokens,
              std::int64_t out_stride, std::int32_t* out) {
  const auto size = static_cast<std::int64_t>(sizeof(Element));
  const std::int64_t row_bytes = rows.strides[0] * size;
  const std::int64_t column_bytes = rows.strides[1] * size;
  const std::int64_t top_k = rows.shape[1];
  const std::byte* row = rows.bytes.data() + begin * row_bytes;
  for (std::int64_t t = 0; t < num_tokens && column_bytes == size; ++t) {
    for (std::int64_t k = 0; k < top_k; ++k) {
      Element element;
      std::memcpy(&element, row + k * size, sizeof(Element));
      out[k] = narrow_id(element);
    }
    row += row_bytes;
    out += out_stride;
  }
  for (std::int64_t t = 0; t < num_tokens && column_bytes != size; ++t) {
    for (std::int64_t k = 0; k < top_k; ++k) {
      Element element;
      std::memcpy(&element, row + k * column_bytes, sizeof(Element));
      out[k] = narrow_id(element);
    }
    row += row_bytes;
    out += out_stride;
  }
}

class SegmentSource final : public TokenSource {
 public:
  SegmentSource(InputInfo info, SegmentPlan plan, std::int64_t block_tokens)
      : info_(std::move(info)), plan_(std::move(plan)), block_tokens_(block_tokens) {
    rewind();
  }

  void rewind() override {
    observations_.clear();
    segment_idx_ = 0;
    offset_ = 0;
    segment_ = TokenSegment{};
    request_ = 0;
    position_ = 0;
    sequence_idx_ = 0;
    cleaner_.reset();
    releasers_.assign(static_cast<std::size_t>(info_.num_layers()),
                      PageReleaser(plan_.maps.empty() ? nullptr : plan_.maps.front().get()));
  }

  std::int64_t num_tokens() const override { return plan_.num_tokens; }

  bool next(TokenBlock& block) override {
    while (offset_ == segment_.num_tokens) {
      if (segment_idx_ == plan_.num_segments) return false;
      start_segment();
    }
    const std::int64_t cells = info_.num_layers() * info_.top_k;
    const std::int64_t most = std::max<std::int64_t>(kMinBlockTokens, kBlockCells / cells);
    const std::int64_t count = std::min({block_tokens_, most, segment_.num_tokens - offset_});
    block.resize(count, info_);
    if (is_packed_) {
      fill_packed(block);
    } else {
      for (std::int64_t layer = 0; layer < info_.num_layers(); ++layer) fill_layer(layer, block);
    }
    if (cleaner_.has_value()) cleaner_->report(observations_);
    for (std::int64_t t = 0; t < count; ++t) number_token(static_cast<std::size_t>(t), block);
    offset_ += count;
    return true;
  }

 private:
  void start_segment() {
    segment_ = TokenSegment{};
    plan_.fill(segment_idx_++, segment_);
    MOE_CHECK(static_cast<std::int64_t>(segment_.rows.size()) == info_.num_layers());
    offset_ = 0;
    if (!segment_.sequence_tokens.empty()) {
      sequence_idx_ = 0;
      if (position_ > 0) ++request_;
      position_ = 0;
    }
    is_packed_ = has_packed_rows();
    if (cleaner_.has_value()) return;
    for (const ArrayView& rows : segment_.rows) {
      if (rows.rank() == 2) cleaner_.emplace(info_, rows.type);
      if (cleaner_.has_value()) return;
    }
  }

  // All layers of a token side by side, as in an array [tokens, layers, k].
  [[nodiscard]] bool has_packed_rows() const {
    if (plan_.is_scores) return false;
    const ArrayView& first = segment_.rows.front();
    for (std::size_t l = 0; l < segment_.rows.size(); ++l) {
      const ArrayView& rows = segment_.rows[l];
      if (rows.rank() != 2 || rows.type != first.type || rows.strides != first.strides ||
          rows.strides[1] != 1 || rows.shape != first.shape || rows.shape[1] != info_.top_k ||
          rows.bytes.data() != first.bytes.data() + static_cast<std::int64_t>(l) * info_.top_k *
                                                        element_bytes(first.type)) {
        return false;
      }
    }
    return true;
  }

  void fill_packed(TokenBlock& block) {
    const std::int64_t width = block.num_layers * block.top_k;
    ArrayView tokens = segment_.rows.front();
    tokens.shape[1] = width;
    read_id_rows(tokens, offset_, block.num_tokens, width, block.ids.data());
    const auto top_k = static_cast<std::size_t>(block.top_k);
    for (std::int64_t t = 0; t < block.num_tokens; ++t) {
      const std::span ids(block.ids.data() + t * width, static_cast<std::size_t>(width));
      if (cleaner_->is_clean(ids)) continue;
      for (std::int64_t layer = 0; layer < block.num_layers; ++layer) {
        cleaner_->clean(layer, ids.subspan(static_cast<std::size_t>(layer) * top_k, top_k));
      }
    }
    const std::int64_t end = offset_ + block.num_tokens;
    if (end < tokens.shape[0]) releasers_.front().used_up_to(tokens.at(end).bytes.data());
  }

  void fill_layer(std::int64_t layer, TokenBlock& block) {
    const ArrayView& rows = segment_.rows[static_cast<std::size_t>(layer)];
    if (rows.rank() != 2) return;
    const std::int64_t stride = block.num_layers * block.top_k;
    std::int32_t* ids = block.ids.data() + layer * block.top_k;
    if (plan_.is_scores) {
      float* weights = block.weights.data() + layer * block.top_k;
      for (std::int64_t t = 0; t < block.num_tokens; ++t) {
        fill_from_scores(rows.at(offset_ + t), ids + t * stride, weights + t * stride);
      }
    } else {
      read_id_rows(rows, offset_, block.num_tokens, stride, ids);
      for (std::int64_t t = 0; t < block.num_tokens; ++t) {
        cleaner_->clean(layer, std::span(ids + t * stride, static_cast<std::size_t>(block.top_k)));
      }
    }
    const std::int64_t end = offset_ + block.num_tokens;
    if (end < rows.shape[0]) {
      releasers_[static_cast<std::size_t>(layer)].used_up_to(rows.at(end).bytes.data());
    }
  }

  void fill_from_scores(const ArrayView& row, std::int32_t* ids, float* weights) {
    scores_.resize(static_cast<std::size_t>(info_.num_experts));
    read_reals(row, 0, scores_);
    const auto top_k = static_cast<std::size_t>(info_.top_k);
    if (!pick_top_scores(scores_, std::span(ids, top_k), std::span(weights, top_k))) {
      observe("scores.not_finite", 1, "a token with scores that are not finite has no experts");
    }
  }

  void number_token(std::size_t t, TokenBlock& block) {
    while (sequence_idx_ < segment_.sequence_tokens.size() &&
           position_ == segment_.sequence_tokens[sequence_idx_]) {
      ++sequence_idx_;
      ++request_;
      position_ = 0;
    }
    block.step[t] = segment_.step;
    block.request[t] = request_;
    block.token[t] = position_++;
    block.phase[t] = segment_.phase;
  }

  InputInfo info_;
  SegmentPlan plan_;
  std::int64_t block_tokens_;
  std::int64_t segment_idx_ = 0;
  TokenSegment segment_;
  bool is_packed_ = false;
  std::int64_t offset_ = 0;
  std::int64_t request_ = 0;
  std::int64_t position_ = 0;
  std::size_t sequence_idx_ = 0;
  std::optional<IdCleaner> cleaner_;
  std::vector<PageReleaser> releasers_;
  std::vector<double> scores_;
};

class ArrayCountSource final : public CountSource {
 public:
  ArrayCountSource(InputInfo info, CountPlan plan)
      : info_(std::move(info)),
        plan_(std::move(plan)),
        releaser_(plan_.maps.empty() ? nullptr : plan_.maps.front().get()) {}

  void rewind() override {
    observations_.clear();
    step_idx_ = 0;
    releaser_ = PageReleaser(plan_.maps.empty() ? nullptr : plan_.maps.front().get());
  }

  bool next(CountStep& step) override {
    if (step_idx_ == plan_.num_steps) return false;
    parts_.clear();
    step.step = plan_.fill(step_idx_++, parts_);
    step.counts.assign(static_cast<std::size_t>(info_.num_layers() * info_.num_experts), 0);
    for (const CountPart& part : parts_) add(part, step);
    if (!parts_.empty()) releaser_.used_up_to(parts_.front().values.bytes.data());
    return true;
  }

 private:
  void add(const CountPart& part, CountStep& step) {
    const bool is_physical = !info_.physical_to_logical.empty();
    read(part.values);
    const std::int32_t* map =
        is_physical ? info_.physical_to_logical.data() + part.layer_idx * info_.num_slots : nullptr;
    std::int64_t* counts = step.counts.data() + part.layer_idx * info_.num_experts;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      if (values_[i] == 0) continue;
      if (values_[i] < 0) {
        observe("counts.negative", 1,
                fmt::format("{} in layer {}, slot {}: a 32-bit counter that wrapped around",
                            values_[i], info_.layers[static_cast<std::size_t>(part.layer_idx)], i));
        continue;
      }
      const auto column = static_cast<std::int64_t>(i);
      std::int64_t& count = counts[is_physical ? map[column] : column];
      const auto sum = checked_add(count, values_[i]);
      if (!sum.has_value()) {
        throw Error(ErrorCode::kInput, info_.name + ": the counts of one expert pass 2^63");
      }
      count = *sum;
    }
  }

  void read(const ArrayView& row) {
    const auto n = static_cast<std::size_t>(row.shape[0]);
    values_.resize(n);
    if (is_integer(row.type)) return read_integers(row, 0, std::span(values_));
    reals_.resize(n);
    read_reals(row, 0, reals_);
    for (std::size_t i = 0; i < n; ++i) {
      if (!std::isfinite(reals_[i]) || std::abs(reals_[i]) > kMaxRealCount) {
        throw Error(ErrorCode::kInput, fmt::format("{}: a count is {}, expected a finite number",
                                                   info_.name, reals_[i]));
      }
      values_[i] = std::llround(reals_[i]);
      if (static_cast<double>(values_[i]) != reals_[i]) {
        observe("counts.fractional", 1, fmt::format("{} became {}", reals_[i], values_[i]));
      }
    }
  }

  InputInfo info_;
  CountPlan plan_;
  PageReleaser releaser_;
  std::int64_t step_idx_ = 0;
  std::vector<CountPart> parts_;
  std::vector<std::int64_t> values_;
  std::vector<double> reals_;
};

class MemoryCountSource final : public CountSource {
 public:
  explicit MemoryCountSource(std::vector<CountStep> steps) : steps_(std::move(steps)) {}

  void rewind() override { step_idx_ = 0; }

  bool next(CountStep& step) override {
    if (step_idx_ == steps_.size()) return false;
    step = steps_[step_idx_++];
    return true;
  }

 private:
  std::vector<CountStep> steps_;
  std::size_t step_idx_ = 0;
};

}  // namespace

void PageReleaser::used_up_to(const std::byte* address) {
  if (map_ == nullptr) return;
  const std::byte* begin = map_->bytes().data();
  if (address < begin || address > begin + map_->bytes().size()) return;
  const auto offset = static_cast<std::size_t>(address - begin);
  if (!has_begun_) {
    has_begun_ = true;
    released_ = offset / kPageBytes * kPageBytes;
  }
  if (offset < released_ + kReleaseBytes) return;
  const std::size_t end = offset / kPageBytes * kPageBytes;
  map_->advise_done(released_, end - released_);
  released_ = end;
}

void read_id_rows(const ArrayView& rows, std::int64_t begin, std::int64_t num_tokens,
                  std::int64_t out_stride, std::int32_t* out) {
  switch (rows.type) {
    case ElementType::kBool:
    case ElementType::kU8:
      return copy_ids<std::uint8_t>(rows, begin, num_tokens, out_stride, out);
    case ElementType::kI8:
      return copy_ids<std::int8_t>(rows, begin, num_tokens, out_stride, out);
    case ElementType::kU16:
      return copy_ids<std::uint16_t>(rows, begin, num_tokens, out_stride, out);
    case ElementType::kI16:
      return copy_ids<std::int16_t>(rows, begin, num_tokens, out_stride, out);
    case ElementType::kU32:
      return copy_ids<std::uint32_t>(rows, begin, num_tokens, out_stride, out);
    case ElementType::kI32:
      return copy_ids<std::int32_t>(rows, begin, num_tokens, out_stride, out);
    case ElementType::kU64:
      return copy_ids<std::uint64_t>(rows, begin, num_tokens, out_stride, out);
    case ElementType::kI64:
      return copy_ids<std::int64_t>(rows, begin, num_tokens, out_stride, out);
    case ElementType::kF16:
    case ElementType::kBf16:
    case ElementType::kF32:
    case ElementType::kF64:
      break;
  }
  MOE_CHECK(false);
}

std::unique_ptr<TokenSource> make_segment_source(const InputInfo& info, SegmentPlan plan,
                                                 std::int64_t block_tokens) {
  return std::make_unique<SegmentSource>(info, std::move(plan), block_tokens);
}

std::unique_ptr<CountSource> make_count_source(const InputInfo& info, CountPlan plan) {
  return std::make_unique<ArrayCountSource>(info, std::move(plan));
}

std::unique_ptr<CountSource> make_memory_count_source(std::vector<CountStep> steps) {
  return std::make_unique<MemoryCountSource>(std::move(steps));
}

}  // namespace moe::routing
