#include "lib/app/plan/plan_inputs.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>

#include <fmt/format.h>

#include "lib/app/plan/row_inputs.hpp"
#include "lib/app/scenarios_dir.hpp"
#include "lib/base/error.hpp"
#include "lib/base/file_map.hpp"
#include "lib/base/fnv1a.hpp"

namespace moe::app {

namespace fs = std::filesystem;

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

namespace {

constexpr std::int64_t kMaxTextBytes = std::int64_t{64} << 20;

}  // namespace

std::string text_hash(std::string_view text) {
  Fnv1a64 hash;
  hash.add(text);
  return hash.to_string();
}

std::string read_text(const fs::path& path) {
  const FileMap file(path);
  if (file.size_bytes() > kMaxTextBytes) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: {} bytes, more than the {} that such a file may have",
                            path.string(), file.size_bytes(), kMaxTextBytes));
  }
  const auto bytes = file.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

PlanModel load_plan_model(const std::string& path_or_name, const fs::path& scenarios,
                          const std::string& weight_format) {
  PlanModel out;
  out.path = find_scenario(path_or_name, scenarios, "models", ".json");
  std::error_code ignored;
  model::ArchitectureOptions options;
  options.weight_format = weight_format;
  if (fs::is_directory(out.path, ignored)) {
    const fs::path folder = out.path;
    out.path = folder / "config.json";
    if (!is_file(out.path)) {
      throw Error(ErrorCode::kInput,
                  fmt::format("{}: expected a config.json in it", folder.string()));
    }
    out.name = folder.filename().empty() ? folder.parent_path().filename().string()
                                         : folder.filename().string();
    if (is_file(folder / "hf_quant_config.json")) {
      options.quant_config_json = read_text(folder / "hf_quant_config.json");
    }
  } else {
    out.name = out.path.stem().string();
  }
  const std::string text = read_text(out.path);
  out.content_hash = text_hash(text + options.quant_config_json);
  const bool has_own_quantization = !options.quant_config_json.empty();
  out.architecture = has_own_quantization || weight_format.empty()
                         ? model::parse_architecture(text, out.path.string(), options)
                         : load_architecture(out.path, weight_format);
  out.byte_source = weight_format.empty()
                        ? "formula from config.json"
                        : fmt::format("formula from config.json, weights as {}", weight_format);
  return out;
}

PlanHardware load_plan_hardware(const fs::path& scenarios, const std::string& extra) {
  PlanHardware out;
  const fs::path base = scenarios / "hardware.json";
  const std::string text = read_text(base);
  out.file = planner::parse_hardware(text, base.string());
  std::string all = text;
  if (!extra.empty()) {
    const std::string more = read_text(extra);
    planner::merge_hardware(out.file, planner::parse_hardware(more, extra));
    all += more;
  }
  out.content_hash = text_hash(all);
  return out;
}

planner::MeasuredTimes load_measured_times(const fs::path& scenarios) {
  const fs::path folder = scenarios / "measured";
  const fs::path kernels = folder / "kernels.json";
  const fs::path collectives = folder / "collectives.json";
  const fs::path constants = folder / "step_constants.json";
  planner::MeasuredTimes measured;
  measured.kernels = planner::parse_kernel_table(read_text(kernels), kernels.string());
  measured.collectives =
      planner::parse_collective_table(read_text(collectives), collectives.string());
  measured.constants = planner::parse_step_constants(read_text(constants), constants.string());
  return measured;
}

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

planner::Layout parse_layout(const std::string& text) {
  planner::Layout layout;
  std::string word;
  const auto take = [&] {
    if (word.empty()) return;
    const std::size_t digits = word.find_first_of("0123456789");
    std::string name = word.substr(0, std::min(digits, word.size()));
    if (!name.empty() && name.back() == '=') name.pop_back();
    std::int32_t count = 0;
    const char* const end = word.data() + word.size();
    const bool has_count = digits != std::string::npos &&
                           std::from_chars(word.data() + digits, end, count).ptr == end &&
                           count > 0;
    std::int32_t* const target = name == "tp"   ? &layout.tp
                                 : name == "dp" ? &layout.dp
                                 : name == "pp" ? &layout.pp
                                 : name == "ep" ? &layout.ep
                                                : nullptr;
    if (!has_count || target == nullptr) {
      throw Error(
          ErrorCode::kUsage,
          fmt::format("layout: expected words such as TP8, DP4, EP32, PP2, found \"{}\"", word));
    }
    *target = count;
    word.clear();
  };
  for (const char c : text) {
    if (c == ' ' || c == ',') {
      take();
    } else {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  take();
  return layout;
}

}  // namespace moe::app
