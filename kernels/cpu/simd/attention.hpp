#pragma once

// Attention with a running maximum ("online softmax", Milakov and Gimelshein, arXiv 1805.02867;
// blocks as in FlashAttention, arXiv 2205.14135), written once over the vector type S of a level.
// Rows are (query, head) pairs that share the keys and values; up to kAttentionRows of them pass
// over the keys together. Every number of a row depends on that row alone: key blocks begin at
// multiples of kAttentionKeys, and a key that a row does not see takes part with weight zero, which
// changes no bits. So a query has the same result alone and in any batch.

#include <cstddef>
#include <cstdint>

#include "kernels/api.hpp"
#include "kernels/cpu/attention_blocking.hpp"
#include "kernels/cpu/layout.hpp"
#include "kernels/cpu/simd/lanes.hpp"
#include "kernels/cpu/simd/math.hpp"
#include "kernels/cpu/simd/row_block.hpp"
#include "kernels/cpu/simd/tile.hpp"

namespace moe::kernels::simd {

inline constexpr int kKeyPanels = static_cast<int>(kAttentionKeys / 16);
// Dims of the keys that are taken at a time: 16 KiB for a block of keys.
inline constexpr std::int64_t kLogitDims = 64;

// A group of rows. Key positions are absolute.
struct AttentionGroup {
  const float* q[kAttentionRows];
  float* out[kAttentionRows];
  std::int64_t first_key[kAttentionRows];  // of the row
  std::int64_t last_key[kAttentionRows];
  int num_rows;
  std::int64_t begin;  // keys [begin, end) are seen by some row; no other is read
  std::int64_t end;
  // In the scratch:
  float* logits;  // [kAttentionRows][kAttentionKeys], then the weights
  float* values;  // [kAttentionRows][padded v_dim]
  float* maximum;
  float* denominator;
  float correction[kAttentionRows];  // of this block: e^(old maximum - new maximum)
};

// Four keys by 16 dims to [16 dims] rows of 16 keys, at four neighbouring keys.
template <class S>
[[gnu::always_inline]] inline void store_transposed(const typename S::V (&key)[4],
                                                    float* out) noexcept {
  const auto low01 = S::unpack_low(key[0], key[1]);
  const auto high01 = S::unpack_high(key[0], key[1]);
  const auto low23 = S::unpack_low(key[2], key[3]);
  const auto high23 = S::unpack_high(key[2], key[3]);
  const typename S::V dims[4] = {
      S::unpack_low_pairs(low01, low23), S::unpack_high_pairs(low01, low23),
      S::unpack_low_pairs(high01, high23), S::unpack_high_pairs(high01, high23)};
#pragma GCC unroll 4
  for (int d = 0; d < 4; ++d) {
    S::template store_quarter<0>(out + d * kLanes, dims[d]);
    S::template store_quarter<1>(out + (d + 4) * kLanes, dims[d]);
    S::template store_quarter<2>(out + (d + 8) * kLanes, dims[d]);
    S::template store_quarter<3>(out + (d + 12) * kLanes, dims[d]);
  }
}

// Dims [dim, dim + num_dims) of the keys of one block, as panels [kKeyPanels][kLogitDims][16].
// Keys outside the group become zeros.
template <class S>
void transpose_keys(const AttentionArgs& args, const AttentionGroup& group, std::int64_t block,
                    std::int64_t dim, std::int64_t num_dims, float* out) noexcept {
  for (std::int64_t first = 0; first < kAttentionKeys && block + first < group.end; first += 4) {
    float* panel = out + first / 16 * kLogitDims * 16 + first % 16;
    for (std::int64_t d = 0; d < num_dims; d += 16) {
      typename S::V key[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const std::int64_t position = block + first + i;
        if (position < group.begin || position >= group.end) {
          key[i] = S::broadcast(0.0F);
          continue;
        }
        const float* at = args.k + position * args.k_stride + dim + d;
        key[i] = num_dims - d >= 16 ? S::load(at) : S::load_partial(at, num_dims - d);
      }
      store_transposed<S>(key, panel + d * kLanes);
    }
  }
}

// Panels of the keys of a block, [num_dims][16] each.
struct KeyPanels {
  const std::byte* data;
  std::int64_t stride;  // bytes
};

// Dims [dim, dim + num_dims) of them: where they are, or transposed into `buffer`.
template <class S>
[[gnu::always_inline]] inline KeyPanels key_panels(const AttentionArgs& args,
                                                   const AttentionGroup& group, std::int64_t block,
                                                   std::int64_t dim, std::int64_t num_dims,
                                                   float* buffer) noexcept {
  constexpr auto kFloatBytes = static_cast<std::int64_t>(sizeof(float));
  if (args.k_panel_stride > 0) {
    const float* const panels =
        args.k + block / kKeyPanelKeys * args.k_panel_stride + dim * kKeyPanelKeys;
    return {static_cast<const std::byte*>(static_cast<const void*>(panels)),
            args.k_panel_stride * kFloatBytes};
  }
  transpose_keys<S>(args, group, block, dim, num_dims, buffer);
  return {static_cast<const std::byte*>(static_cast<const void*>(buffer)),
          kLogitDims * kKeyPanelKeys * kFloatBytes};
}

// logits[r][key] = q_r . k_key, one chain over ascending dims each.
template <class S>
void compute_logits(const AttentionArgs& args, const AttentionGroup& group,
                    std::int64_t block) noexcept {
  static_assert(kLanes == kKeyPanelKeys);
  alignas(64) float buffer[kAttentionKeys * kLogitDims];
  const std::int64_t num_keys =
      group.end - block < kAttentionKeys ? group.end - block : kAttentionKeys;
  const int num_panels = static_cast<int>(ceil_div(num_keys, 16));
  // One tile of rows reads panels once, from one end to the other.
  const std::int64_t dims_at_once =
      args.k_panel_stride > 0 && group.num_rows <= S::kMaxTileRows ? args.k_dim : kLogitDims;
  for (std::int64_t dim = 0; dim < args.k_dim; dim += dims_at_once) {
    const std::int64_t num_dims = smaller(args.k_dim - dim, dims_at_once);
    const KeyPanels keys = key_panels<S>(args, group, block, dim, num_dims, buffer);
    for_each_tile<S>(group.num_rows, [&](int first, int rows, int) {
      cover_tile<S, F32Product<S>, kKeyPanels>(rows, num_panels, [&]<int R, int P>(int p) {
        float* out = group.logits + first * kAttentionKeys + p * kLanes;
        Matrix<typename S::V, R, P> sums;
#pragma GCC unroll 64
        for (int i = 0; i < R * P; ++i) {
          sums[i / P][i % P] = dim == 0 ? S::broadcast(0.0F)
                                        : S::load(out + i / P * kAttentionKeys + i % P * kLanes);
        }
        accumulate_tile<S, F32Product<S>, R, P, Fetch::kNothing>(
            {keys.data + p * keys.stride, keys.stride, group.q + first, dim, num_dims}, sums);
#pragma GCC unroll 64
        for (int i = 0; i < R * P; ++i) {
          S::store(out + i / P * kAttentionKeys + i % P * kLanes, sums[i / P][i % P]);
        }
      });
    });
  }
}

template <class S>
[[gnu::always_inline]] inline float exp_of(float x) noexcept {
  const auto all = S::broadcast(x);
  return S::first(S::zero_below(all, S::broadcast(kExpMin), exp<S>(all)));
}

// Turns the logits of one row and block into weights e^(logit - maximum), zero for keys that the
// row does not see, and brings maximum, denominator and correction of the row up to date.
template <class S>
void update_softmax(const AttentionArgs& args, AttentionGroup& group, std::int64_t block,
                    int row) noexcept {
  using V = typename S::V;
  float* logits = group.logits + row * kAttentionKeys;
  const std::int64_t first = group.first_key[row] - block;
  const std::int64_t last = group.last_key[row] - block;
  const V hidden = S::broadcast(-__builtin_inff());
  const V scale = S::broadcast(args.scale);
  V logit[kKeyPanels];
  V highest = hidden;
#pragma GCC unroll 4
  for (int p = 0; p < kKeyPanels; ++p) {
    logit[p] = S::mul(S::load(logits + p * kLanes), scale);
    if (first > p * kLanes || last < p * kLanes + 15) {
      logit[p] = S::select_lanes(logit[p], first - p * kLanes, last + 1 - p * kLanes, hidden);
    }
    highest = S::max(highest, logit[p]);
  }
  const float old_maximum = group.maximum[row];
  const float block_maximum = S::reduce_max(highest);
  const float maximum = block_maximum > old_maximum ? block_maximum : old_maximum;
  // Until a row has seen a key, any finite reference will do: all its weights are zero.
  const float reference = maximum == -__builtin_inff() ? 0.0F : maximum;

  const V shift = S::broadcast(reference);
  const V threshold = S::broadcast(kExpMin);
  V sum = S::broadcast(0.0F);
#pragma GCC unroll 4
  for (int p = 0; p < kKeyPanels; ++p) {
    const V x = S::sub(logit[p], shift);
    const V weight = S::zero_below(x, threshold, exp<S>(x));
    S::store(logits + p * kLanes, weight);
    sum = S::add(sum, weight);
  }
  const float correction = exp_of<S>(old_maximum - reference);
  group.correction[row] = correction;
  group.maximum[row] = maximum;
  group.denominator[row] = group.denominator[row] * correction + S::reduce_add(sum);
}

// values[r][dim ..] = values * correction + the weighted values of keys [begin, end), for R rows
// and P times 16 dims; the last dims may be fewer than 16.
template <class S, int R, int P>
[[gnu::always_inline]] inline void add_values(const AttentionArgs& args,
                                              const AttentionGroup& group, std::int64_t block,
                                              int first_row, std::int64_t dim) noexcept {
  using V = typename S::V;
  const std::int64_t padded = attention_padded_dim(args.v_dim);
  const std::int64_t begin = group.begin > block ? group.begin - block : 0;
  const std::int64_t end = group.end - block < kAttentionKeys ? group.end - block : kAttentionKeys;
  float* values = group.values + first_row * padded + dim;
  const float* weights = group.logits + first_row * kAttentionKeys;
  const float* v = args.v + (block + begin) * args.v_stride + dim;
  Matrix<V, R, P> sums;
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const V correction = S::broadcast(group.correction[first_row + r]);
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) {
      sums[r][p] = S::mul(S::load(values + r * padded + p * kLanes), correction);
    }
  }
  const std::int64_t last_count = args.v_dim - dim - (P - 1) * kLanes;
  for (std::int64_t key = begin; key < end; ++key) {
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) {
      const V value = p + 1 < P || last_count >= 16 ? S::load(v + p * kLanes)
                                                    : S::load_partial(v + p * kLanes, last_count);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        sums[r][p] = S::fma(value, S::broadcast(weights[r * kAttentionKeys + key]), sums[r][p]);
      }
    }
    v += args.v_stride;
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) {
      S::store(values + r * padded + p * kLanes, sums[r][p]);
    }
  }
}

template <class S>
void init_group(const AttentionArgs& args, std::int64_t first_row, int num_rows,
                AttentionGroup& group) noexcept {
  const std::int64_t padded = attention_padded_dim(args.v_dim);
  group.num_rows = num_rows;
  group.logits = args.scratch;
  group.values = group.logits + kAttentionRows * kAttentionKeys;
  group.maximum = group.values + kAttentionRows * padded;
  group.denominator = group.maximum + kAttentionRows;
  for (int r = 0; r < num_rows; ++r) {
    const std::int64_t query = (first_row + r) / args.num_heads;
    const std::int64_t head = (first_row + r) % args.num_heads;
    const std::int64_t position = args.first_position + query;
    group.q[r] = args.q + query * args.q_stride + head * args.q_head_stride;
    group.out[r] = args.out + query * args.out_stride + head * args.out_head_stride;
    group.first_key[r] =
        args.window > 0 && position >= args.window ? position - args.window + 1 : 0;
    group.last_key[r] = position;
    // The sink is a logit that has been seen before any key.
    group.maximum[r] = args.sinks != nullptr ? args.sinks[head] : -__builtin_inff();
    group.denominator[r] = args.sinks != nullptr ? 1.0F : 0.0F;
    for (std::int64_t d = 0; d < padded; d += 16) {
      S::store(group.values + r * padded + d, S::broadcast(0.0F));
    }
  }
  group.begin = group.first_key[0];
  group.end = group.last_key[num_rows - 1] + 1;
}

template <class S>
void finish_group(const AttentionArgs& args, const AttentionGroup& group) noexcept {
  const std::int64_t padded = attention_padded_dim(args.v_dim);
  for (int r = 0; r < group.num_rows; ++r) {
    const auto denominator = S::broadcast(group.denominator[r]);
    for (std::int64_t d = 0; d < args.v_dim; d += 16) {
      const auto out = S::div(S::load(group.values + r * padded + d), denominator);
      if (args.v_dim - d >= 16) {
        S::store(group.out[r] + d, out);
      } else {
        S::store_partial(group.out[r] + d, out, args.v_dim - d);
      }
    }
  }
}

template <class S>
void attention(const AttentionArgs& args) noexcept {
  const std::int64_t total_rows = args.num_queries * args.num_heads;
  const int dim_panels = static_cast<int>(ceil_div(args.v_dim, 16));
  for (std::int64_t first_row = 0; first_row < total_rows; first_row += kAttentionRows) {
    const std::int64_t rest = total_rows - first_row;
    AttentionGroup group;
    init_group<S>(args, first_row, static_cast<int>(rest < kAttentionRows ? rest : kAttentionRows),
                  group);
    for (std::int64_t block = group.begin / kAttentionKeys * kAttentionKeys; block < group.end;
         block += kAttentionKeys) {
      compute_logits<S>(args, group, block);
      for (int r = 0; r < group.num_rows; ++r) {
        update_softmax<S>(args, group, block, r);
      }
      for_each_tile<S>(group.num_rows, [&](int first, int rows, int) {
        cover_tile<S, F32Product<S>, kMaxGroupPanels>(rows, dim_panels, [&]<int R, int P>(int p) {
          add_values<S, R, P>(args, group, block, first, p * kLanes);
        });
      });
    }
    finish_group<S>(args, group);
  }
}

}  // namespace moe::kernels::simd
