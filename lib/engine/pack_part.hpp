#pragma once

// Packs the panels of one slice of a checkpoint matrix, whatever form it is stored in.

#include <cstddef>
#include <cstdint>

#include "kernels/api.hpp"
#include "lib/engine/pack_plan.hpp"

namespace moe::engine {

// Columns of a block in the packed format; 0: the format has none, or always the same.
[[nodiscard]] std::int64_t packed_block_cols(const model::MatrixView& view);
// A slice that the kernels' packer cannot address in the stored format: it is widened to f32.
[[nodiscard]] bool cuts_blocks(const MatrixSlice& slice);
[[nodiscard]] kernels::BlockFormat block_format(const model::MatrixView& view);

class PartPacker {
 public:
  // Panel p goes to out + p * step, panel_bytes long.
  PartPacker(const MatrixSlice& slice, kernels::WeightFormat format, std::int64_t panel_bytes,
             std::byte* out, std::int64_t step);

  [[nodiscard]] std::int64_t num_panels() const { return num_panels_; }
  // All panels need all of the source: they are packed in one call.
  [[nodiscard]] bool is_indivisible() const { return is_widened_ && slice_->is_transposed; }
  // False: a value is not finite.
  [[nodiscard]] bool pack(std::int64_t begin, std::int64_t end) const;

 private:
  const MatrixSlice* slice_;
  kernels::WeightFormat format_;
  std::int64_t panel_bytes_;
  std::byte* out_;
  std::int64_t step_;
  std::int64_t num_panels_;
  bool is_widened_;
  bool is_coded_;
  kernels::SourceMatrix source_;  // neither widened nor coded
};

// Gives the pages that the slice lies in back to the system: clean pages of a file, which are read
// again if somebody needs them. `from_cache`: out of the file cache as well, which makes room
// where memory is short.
void drop_pages(const MatrixSlice& slice, bool from_cache);

}  // namespace moe::engine
