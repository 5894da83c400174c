#include "tests/kernels/amx_hardware.hpp"

#if defined(__x86_64__)

#include "kernels/cpu/amx/tiles.hpp"

namespace moe::kernels {

std::array<std::byte, 64> hardware_config(int num_rows) {
  std::array<std::byte, 64> found;
  amx::Tiles::configure(amx::tile_config(num_rows));
  __asm__ volatile("sttilecfg %0" : "=m"(found));
  amx::Tiles::release();
  return found;
}

void hardware_product(int num_rows, const std::uint16_t* rows, const std::uint16_t* weights,
                      float* sums) {
  using amx::Tiles;
  Tiles::configure(amx::tile_config(num_rows));
  Tiles::load<amx::kSumTile>(sums);
  Tiles::load<amx::kRowTile>(rows);
  Tiles::stream<amx::kWeightTile>(weights);
  Tiles::dot_bf16<amx::kSumTile, amx::kRowTile, amx::kWeightTile>();
  Tiles::store<amx::kSumTile>(sums);
  Tiles::release();
}

void hardware_int8_product(int num_rows, const std::int8_t* rows, const std::int8_t* weights,
                           std::int32_t* sums) {
  using amx::Tiles;
  Tiles::configure(amx::tile_config(num_rows));
  Tiles::load<amx::kSumTile>(sums);
  Tiles::load<amx::kRowTile>(rows);
  Tiles::stream<amx::kWeightTile>(weights);
  Tiles::dot_int8<amx::kSumTile, amx::kRowTile, amx::kWeightTile>();
  Tiles::store<amx::kSumTile>(sums);
  Tiles::release();
}

}  // namespace moe::kernels

#else

namespace moe::kernels {

std::array<std::byte, 64> hardware_config(int) {
  return {};
}

void hardware_product(int, const std::uint16_t*, const std::uint16_t*, float*) {}

void hardware_int8_product(int, const std::int8_t*, const std::int8_t*, std::int32_t*) {}

}  // namespace moe::kernels

#endif
