#pragma once

// scenarios/hardware.json: what a GPU type has, with sources. Users can add their own entries.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moe::planner {

struct Accelerator {
  std::string id;  // "h100-sxm"
  std::string name;
  std::string vendor;
  double memory_gb_marketed = 0.0;
  std::optional<std::int64_t> memory_visible_bytes;  // as a driver or torch shows it
  double memory_bytes_per_s = 0.0;
  std::optional<double> bf16_flops_per_s;  // dense, no sparsity
  std::optional<double> fp8_flops_per_s;
  std::optional<double> fp4_flops_per_s;
  std::optional<double> int8_ops_per_s;
  std::string scale_up_type;
  double scale_up_bytes_per_s = 0.0;  // per GPU, one direction
  double peer_bytes_per_s = 0.0;      // between two GPUs, one direction
  std::int32_t scale_up_gpus = 1;     // GPUs of one scale-up domain
  double pcie_bytes_per_s = 0.0;      // one direction
  std::optional<double> tdp_w;
  std::int32_t gpus_per_node = 8;
  std::int32_t sm_arch = 0;  // 0: not NVIDIA
  std::string confidence;    // high, medium, low
  std::vector<std::string> sources;
  std::vector<std::string> notes;

  // What an engine can see: the visible figure where one was read, otherwise an estimate from the
  // label that is lower than the label (has_visible_memory() says which).
  [[nodiscard]] std::int64_t usable_memory_bytes() const;
  [[nodiscard]] bool has_visible_memory() const { return memory_visible_bytes.has_value(); }
};

struct HardwareFile {
  std::vector<Accelerator> accelerators;
};

// Throws Error(kInput) naming the entry and the field.
[[nodiscard]] HardwareFile parse_hardware(std::string_view json_text, const std::string& where);

// Entries of `extra` replace those with the same id.
void merge_hardware(HardwareFile& base, const HardwareFile& extra);

// By id or by a unique part of the id or name ("h100-sxm", "H200"). Throws Error(kUsage) listing
// the ids.
[[nodiscard]] const Accelerator& find_accelerator(const HardwareFile& file, std::string_view name);

}  // namespace moe::planner
