#include "lib/planner/hardware.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/base/text.hpp"
#include "lib/json/read.hpp"

namespace moe::planner {
namespace {

using json::Json;

constexpr double kGiga = 1e9;
constexpr double kTera = 1e12;
constexpr std::int64_t kBytesPerMib = 1048576;
// Labels count in GiB and show a little less: H100 "80" 79.18, H200 "141" 140.4, B200 "180" 178.35
// GiB; small cards keep ECC in their memory (L40S "48" shows 44.99).
constexpr double kVisibleShare = 0.98;
constexpr double kVisibleShareSmall = 0.93;
constexpr double kSmallGb = 48.0;

// Fields of one entry; every failure names entry and field.
class Entry {
 public:
  Entry(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object_.is_object()) throw Error(ErrorCode::kInput, where_ + ": expected an object");
  }

  [[noreturn]] void fail(std::string_view key, std::string_view what) const {
    throw Error(ErrorCode::kInput, fmt::format("{}: {}: {}", where_, key, what));
  }

  [[nodiscard]] const Json* find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  [[nodiscard]] std::optional<double> optional_number(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) return std::nullopt;
    const double number = value->is_number() ? value->get<double>() : -1.0;
    if (!(number >= 0.0) || number > 1e12) fail(key, "expected a number from 0 to 1e12");
    return number;
  }

  [[nodiscard]] double number(const char* key) const {
    const auto value = optional_number(key);
    if (!value) fail(key, "missing; expected a number");
    return *value;
  }

  [[nodiscard]] std::int32_t count(const char* key, std::optional<std::int32_t> fallback) const {
    const auto value = optional_number(key);
    if (!value && fallback) return *fallback;
    if (!value) fail(key, "missing; expected a count");
    if (*value < 1.0 || *value > 1e6 || *value != std::floor(*value)) {
      fail(key, "expected a whole number from 1 to 1000000");
    }
    return static_cast<std::int32_t>(*value);
  }

  [[nodiscard]] std::string text(const char* key, bool is_required) const {
    const Json* value = find(key);
    if (value == nullptr && !is_required) return {};
    if (value == nullptr || !value->is_string()) fail(key, "missing; expected a text");
    return printable(value->get<std::string>());
  }

  // One text or a list of them.
  [[nodiscard]] std::vector<std::string> texts(const char* key) const {
    const Json* value = find(key);
    std::vector<std::string> list;
    if (value == nullptr) return list;
    if (value->is_string()) return {printable(value->get<std::string>())};
    if (!value->is_array()) fail(key, "expected a text or a list of texts");
    for (const Json& item : *value) {
      if (!item.is_string()) fail(key, "expected a list of texts");
      list.push_back(printable(item.get<std::string>()));
    }
    return list;
  }

  [[nodiscard]] Entry object(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) fail(key, "missing; expected an object");
    return {*value, fmt::format("{}: {}", where_, key)};
  }

 private:
  const Json& object_;
  std::string where_;
};

std::optional<double> scaled(std::optional<double> value, double factor) {
  if (!value) return std::nullopt;
  return *value * factor;
}

Accelerator read_accelerator(const Json& object, const std::string& where) {
  const Entry entry(object, where);
  Accelerator gpu;
  gpu.id = entry.text("id", true);
  if (gpu.id.empty()) entry.fail("id", "empty");
  const Entry named(object, fmt::format("{} \"{}\"", where, gpu.id));
  gpu.name = named.text("name", true);
  gpu.vendor = named.text("vendor", false);
  gpu.memory_gb_marketed = named.number("memory_gb_marketed");
  if (!(gpu.memory_gb_marketed > 0.0)) named.fail("memory_gb_marketed", "expected more than 0");
  if (const auto mib = named.optional_number("memory_visible_mib"); mib && *mib > 0.0) {
    gpu.memory_visible_bytes = static_cast<std::int64_t>(*mib) * kBytesPerMib;
  }
  gpu.memory_bytes_per_s = named.number("memory_bandwidth_gbs") * kGiga;
  if (!(gpu.memory_bytes_per_s > 0.0)) named.fail("memory_bandwidth_gbs", "expected more than 0");
  const Entry flops = named.object("dense_tflops");
  gpu.bf16_flops_per_s = scaled(flops.optional_number("bf16"), kTera);
  gpu.fp8_flops_per_s = scaled(flops.optional_number("fp8"), kTera);
  gpu.fp4_flops_per_s = scaled(flops.optional_number("fp4"), kTera);
  gpu.int8_ops_per_s = scaled(flops.optional_number("int8"), kTera);
  const Entry scale_up = named.object("scale_up");
  gpu.scale_up_type = scale_up.text("type", false);
  gpu.scale_up_bytes_per_s =
      scale_up.optional_number("gbs_per_direction_per_gpu").value_or(0.0) * kGiga;
  gpu.peer_bytes_per_s =
      scale_up.optional_number("peer_to_peer_gbs_per_direction").value_or(0.0) * kGiga;
  gpu.scale_up_gpus = scale_up.count("domain_gpus", 1);
  if (named.find("pcie") != nullptr) {
    gpu.pcie_bytes_per_s =
        named.object("pcie").optional_number("gbs_per_direction").value_or(0.0) * kGiga;
  }
  gpu.tdp_w = named.optional_number("tdp_w");
  gpu.gpus_per_node = named.count("gpus_per_node", 8);
  // AMD's are names ("gfx942"), not numbers.
  const Json* sm_arch = named.find("sm_arch");
  gpu.sm_arch = sm_arch == nullptr || sm_arch->is_string() ? 0 : named.count("sm_arch", 1);
  gpu.confidence = named.text("confidence", false);
  gpu.sources = named.texts("source");
  gpu.notes = named.texts("notes");
  return gpu;
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  });
  return out;
}

std::string ids_of(const HardwareFile& file) {
  std::string ids;
  for (const Accelerator& gpu : file.accelerators) {
    ids += fmt::format("{}{}", ids.empty() ? "" : ", ", gpu.id);
  }
  return ids;
}

}  // namespace

std::int64_t Accelerator::usable_memory_bytes() const {
  if (memory_visible_bytes) return *memory_visible_bytes;
  const double share = memory_gb_marketed > kSmallGb ? kVisibleShare : kVisibleShareSmall;
  return static_cast<std::int64_t>(memory_gb_marketed * share * 1024.0) * kBytesPerMib;
}

HardwareFile parse_hardware(std::string_view json_text, const std::string& where) {
  const Json document = json::parse(json_text, where);
  const auto list = document.is_object() ? document.find("accelerators") : document.end();
  if (list == document.end() || !list->is_array()) {
    throw Error(ErrorCode::kInput, where + ": expected an object with a list \"accelerators\"");
  }
  HardwareFile file;
  for (std::size_t at = 0; at < list->size(); ++at) {
    Accelerator gpu = read_accelerator((*list)[at], fmt::format("{}: accelerator {}", where, at));
    if (std::ranges::find(file.accelerators, gpu.id, &Accelerator::id) != file.accelerators.end()) {
      throw Error(ErrorCode::kInput,
                  fmt::format("{}: accelerator \"{}\" is there twice", where, gpu.id));
    }
    file.accelerators.push_back(std::move(gpu));
  }
  return file;
}

void merge_hardware(HardwareFile& base, const HardwareFile& extra) {
  for (const Accelerator& gpu : extra.accelerators) {
    const auto found = std::ranges::find(base.accelerators, gpu.id, &Accelerator::id);
    if (found == base.accelerators.end()) {
      base.accelerators.push_back(gpu);
    } else {
      *found = gpu;
    }
  }
}

const Accelerator& find_accelerator(const HardwareFile& file, std::string_view name) {
  const std::string wanted = lower(name);
  const Accelerator* match = nullptr;
  std::int32_t matches = 0;
  for (const Accelerator& gpu : file.accelerators) {
    if (lower(gpu.id) == wanted || lower(gpu.name) == wanted) return gpu;
    if (wanted.empty()) continue;
    if (lower(gpu.id).find(wanted) != std::string::npos ||
        lower(gpu.name).find(wanted) != std::string::npos) {
      match = &gpu;
      ++matches;
    }
  }
  if (matches == 1) return *match;
  throw Error(ErrorCode::kUsage,
              fmt::format("GPU type \"{}\" is {}; known: {}", printable(name),
                          matches == 0 ? "not known" : "not unique", ids_of(file)));
}

}  // namespace moe::planner
