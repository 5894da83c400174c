#pragma once

// Offsets inside a packed panel (kernels/api.hpp has the picture). Everything has internal linkage
// because files of every instruction-set level include this header.

#include <cstddef>
#include <cstdint>

#include "kernels/api.hpp"

namespace moe::kernels {
namespace {

inline constexpr std::int64_t kFp8ScaleBytes = kPanelRows * 4;
inline constexpr std::int64_t kMxfp4GroupBytes = kPanelRows + kMxfp4Group / 2 * kPanelRows;

[[nodiscard]] constexpr inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) noexcept {
  return (a + b - 1) / b;
}

// Byte offset of fp8 block `block` in a panel whose blocks are `block_cols` columns wide.
[[nodiscard]] constexpr inline std::int64_t fp8_block_offset(std::int64_t block,
                                                             std::int64_t block_cols) noexcept {
  return block * (kFp8ScaleBytes + block_cols * kPanelRows);
}

// int8 and int4 codes lie in groups of columns that take four bytes of each output.
inline constexpr std::int64_t kCodeBytes = 4;
inline constexpr std::int64_t kCodeGroupBytes = kPanelRows * kCodeBytes;
[[nodiscard]] constexpr inline std::int64_t code_group_cols(WeightFormat format) noexcept {
  return format == WeightFormat::kInt8 ? kCodeBytes : 2 * kCodeBytes;
}
// Bytes of the scales and offsets before the codes of an int8 or int4 block.
[[nodiscard]] constexpr inline std::int64_t scales_bytes(BlockFormat block) noexcept {
  const std::int64_t scale_bytes = block.scale == ScaleFormat::kF32        ? 4
                                   : block.scale == ScaleFormat::kTwoLevel ? 1
                                                                           : 2;
  return kPanelRows * scale_bytes;
}
[[nodiscard]] constexpr inline std::int64_t block_header_bytes(BlockFormat block) noexcept {
  return scales_bytes(block) + (block.offset == OffsetKind::kCentred ? 0 : kPanelRows);
}
[[nodiscard]] constexpr inline std::int64_t int_block_bytes(WeightFormat format,
                                                            std::int64_t block_cols,
                                                            BlockFormat block) noexcept {
  return block_header_bytes(block) +
         ceil_div(block_cols, code_group_cols(format)) * kCodeGroupBytes;
}
// Blocks in a panel, and where one begins. With scales of one level a super block is a block.
struct BlockPlace {
  const std::byte* header;  // scales, offsets, then codes
  const std::byte* supers;  // two-level: the f16 scales, then those of offsets

  [[nodiscard]] constexpr BlockPlace moved(std::int64_t bytes) const noexcept {
    return {header + bytes, supers + bytes};
  }
};
struct BlockLayout {
  std::int64_t block_bytes;
  std::int64_t super_bytes = 0;   // before the blocks of a super block
  std::int64_t super_blocks = 1;  // of a super block

  [[nodiscard]] constexpr std::int64_t offset_of(std::int64_t idx) const noexcept {
    return idx / super_blocks * (super_bytes + super_blocks * block_bytes) + super_bytes +
           idx % super_blocks * block_bytes;
  }
  [[nodiscard]] constexpr BlockPlace place(const std::byte* panel,
                                           std::int64_t idx) const noexcept {
    const std::byte* const header = panel + offset_of(idx);
    return {header, header - idx % super_blocks * block_bytes - super_bytes};
  }
  // Bytes of a panel with `num_blocks` blocks.
  [[nodiscard]] constexpr std::int64_t bytes(std::int64_t num_blocks) const noexcept {
    return num_blocks * block_bytes + ceil_div(num_blocks, super_blocks) * super_bytes;
  }
};
[[nodiscard]] constexpr inline BlockLayout int_block_layout(WeightFormat format,
                                                            std::int64_t block_cols,
                                                            BlockFormat block) noexcept {
  BlockLayout layout{.block_bytes = int_block_bytes(format, block_cols, block)};
  if (block.scale == ScaleFormat::kTwoLevel) {
    layout.super_bytes = kPanelRows * (block.offset == OffsetKind::kTwoLevel ? 4 : 2);
    layout.super_blocks = kSuperBlockCols / block_cols;
  }
  return layout;
}
// Walks over the blocks of a panel.
class BlockCursor {
 public:
  constexpr BlockCursor(const BlockLayout& layout, const std::byte* panel,
                        std::int64_t idx) noexcept
      : layout_(layout),
        place_(layout.place(panel, idx)),
        left_(layout.super_blocks - idx % layout.super_blocks) {}

  [[nodiscard]] constexpr const BlockPlace& place() const noexcept { return place_; }
  constexpr void advance() noexcept {
    place_.header += layout_.block_bytes;
    if (--left_ == 0) {
      left_ = layout_.super_blocks;
      place_.supers = place_.header;
      place_.header += layout_.super_bytes;
    }
  }

 private:
  BlockLayout layout_;
  BlockPlace place_;
  std::int64_t left_;  // blocks of the super block, this one included
};

// Where the code of an int8 or int4 column is, from the codes of its block: the byte, and how far
// up in it.
struct CodePlace {
  std::int64_t byte;
  int shift;
};
[[nodiscard]] constexpr inline CodePlace code_place(WeightFormat format, std::int64_t col,
                                                    std::int64_t lane) noexcept {
  const std::int64_t group_cols = code_group_cols(format);
  const std::int64_t in_group = col % group_cols;
  return {.byte = col / group_cols * kCodeGroupBytes + lane * kCodeBytes + in_group % kCodeBytes,
          .shift = in_group < kCodeBytes ? 0 : 4};
}

// int8 activations.
inline constexpr std::int64_t kInt8BlockAlignment = 4;
// 127 / x is finite from here on.
inline constexpr float kLeastInt8Magnitude = 0x1p-100F;

// Elements that the codes of a block with this many columns take.
[[nodiscard]] constexpr inline std::int64_t padded_codes(std::int64_t cols) noexcept {
  return ceil_div(cols, kInt8BlockAlignment) * kInt8BlockAlignment;
}
// Columns of a block of activations: one block when the weights have one.
[[nodiscard]] constexpr inline std::int64_t activation_block_cols(
    std::int64_t cols, std::int64_t block_cols) noexcept {
  return block_cols < cols ? block_cols : cols;
}
// What an int8 or int4 code is when the weight is zero, where that is the same for all.
[[nodiscard]] constexpr inline std::int32_t common_zero(WeightFormat format,
                                                        BlockFormat block) noexcept {
  return format == WeightFormat::kInt4 && block.offset == OffsetKind::kCentred ? 8 : 0;
}

}  // namespace
}  // namespace moe::kernels
