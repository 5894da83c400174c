#include "lib/balance/plan_rows.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/base/parse_number.hpp"
#include "lib/base/text.hpp"
#include "lib/json/read.hpp"

namespace moe::balance {
namespace {

// A number from 0 to max, with nothing around it but blanks.
std::optional<std::int32_t> number(std::string_view text, std::int32_t max) {
  const auto value = parse_number<std::int32_t>(trim(text));
  return value && *value >= 0 && *value <= max ? value : std::nullopt;
}

std::int32_t expert_number(std::string_view text, const std::string& where, std::size_t line) {
  const std::optional<std::int32_t> value = number(text, kMaxPlanExperts - 1);
  if (!value) {
    fail_input(where, fmt::format("line {}: expected an expert from 0 to {}, found \"{}\"", line,
                                  kMaxPlanExperts - 1, printable(text)));
  }
  return *value;
}

PlanRows from_json(std::string_view text, const std::string& where) {
  json::ReadLimits limits;
  limits.max_bytes = static_cast<std::int64_t>(kMaxPlanBytes);
  const json::Json document = json::parse(text, where, limits);
  const char* kMap = "physical_to_logical_map";
  if (!document.is_object() || !document.contains(kMap) || !document.at(kMap).is_array()) {
    fail_input(where,
               fmt::format("expected an object with the array \"{}\", as SGLang reads it", kMap));
  }
  PlanRows plan;
  if (document.at(kMap).size() > static_cast<std::size_t>(kMaxPlanLayers)) {
    fail_input(where, fmt::format("expected at most {} layers", kMaxPlanLayers));
  }
  for (const json::Json& row : document.at(kMap)) {
    const std::string place = fmt::format("{}: /{}/{}", where, kMap, plan.rows.size());
    if (!row.is_array()) fail_input(place, "expected an array of expert ids");
    std::vector<std::int32_t> experts;
    for (const json::Json& id : row) {
      if (!id.is_number_integer() || id < 0 || id >= kMaxPlanExperts) {
        fail_input(place, fmt::format("slot {}: expected an expert from 0 to {}", experts.size(),
                                      kMaxPlanExperts - 1));
      }
      experts.push_back(id.get<std::int32_t>());
    }
    plan.layers.push_back(static_cast<std::int32_t>(plan.rows.size()));
    plan.rows.push_back(std::move(experts));
  }
  return plan;
}

struct Lines {
  std::string_view rest;
  std::size_t number = 0;

  std::optional<std::string_view> next() {
    if (rest.empty()) return std::nullopt;
    ++number;
    const auto end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    return line;
  }
};

// The part of YAML that such files use: one mapping of layers, a list in brackets (over any number
// of lines) or one "- id" a line; comments; other scalar keys.
class YamlReader {
 public:
  YamlReader(std::string_view text, const std::string& where) : lines_{text}, where_(where) {}

  PlanRows read() {
    while (const auto raw = lines_.next()) {
      const std::string_view line = raw->substr(0, raw->find('#'));
      const std::string_view content = trim(line);
      if (content.empty() || content == "---") continue;
      if (in_list_) {
        take_items(content);
      } else if (content.front() == '-') {
        take_dash(content);
      } else {
        take_key(line, content);
      }
    }
    if (in_list_) fail_input(where_, "the list of the last layer has no end");
    if (!has_assignments_) fail_input(where_, "no initial_global_assignments");
    return finish();
  }

 private:
  void take_key(std::string_view line, std::string_view content) {
    const auto colon = content.find(':');
    if (colon == std::string_view::npos) {
      fail_input(where_, fmt::format("line {}: expected \"key: value\", found \"{}\"",
                                     lines_.number, printable(content)));
    }
    const std::string_view key = trim(content.substr(0, colon));
    const std::string_view value = trim(content.substr(colon + 1));
    const bool is_nested = line.front() == ' ';
    if (!is_nested) {
      in_assignments_ = key == "initial_global_assignments";
      has_assignments_ = has_assignments_ || in_assignments_;
      if (key == "num_slots") take_num_slots(value);
      if (in_assignments_ && !value.empty()) {
        fail_input(where_, fmt::format("line {}: expected the layers on the following lines",
                                       lines_.number));
      }
      return;
    }
    if (!in_assignments_) return;
    const std::optional<std::int32_t> layer = number(key, kMaxPlanLayers - 1);
    if (!layer || rows_.count(*layer) != 0) {
      fail_input(where_, fmt::format("line {}: expected a new layer from 0 to {}, found \"{}\"",
                                     lines_.number, kMaxPlanLayers - 1, printable(key)));
    }
    row_ = &rows_[*layer];
    if (value.empty()) return;
    if (value.front() != '[') {
      fail_input(where_,
                 fmt::format("line {}: expected a list of experts in brackets", lines_.number));
    }
    in_list_ = true;
    take_items(value.substr(1));
  }

  void take_num_slots(std::string_view value) {
    num_slots_ = number(value, std::int32_t{1} << 20);
    if (!num_slots_ || *num_slots_ == 0) {
      fail_input(where_, fmt::format("line {}: expected num_slots of 1 or more, found \"{}\"",
                                     lines_.number, printable(value)));
    }
  }

  void take_dash(std::string_view content) {
    if (row_ == nullptr)
      fail_input(where_, fmt::format("line {}: a list of no layer", lines_.number));
    row_->push_back(expert_number(content.substr(1), where_, lines_.number));
  }

  void take_items(std::string_view text) {
    const auto end = text.find(']');
    std::string_view items = text.substr(0, end);
    while (!trim(items).empty()) {
      const auto comma = items.find(',');
      row_->push_back(expert_number(items.substr(0, comma), where_, lines_.number));
      items = comma == std::string_view::npos ? std::string_view() : items.substr(comma + 1);
    }
    if (end == std::string_view::npos) return;
    in_list_ = false;
    if (!trim(text.substr(end + 1)).empty()) {
      fail_input(where_, fmt::format("line {}: text after the list", lines_.number));
    }
  }

  PlanRows finish() {
    PlanRows plan;
    for (auto& [layer, experts] : rows_) {
      if (num_slots_ && experts.size() != static_cast<std::size_t>(*num_slots_)) {
        fail_input(where_, fmt::format("layer {} lists {} experts, num_slots is {}", layer,
                                       experts.size(), *num_slots_));
      }
      plan.layers.push_back(layer);
      plan.rows.push_back(std::move(experts));
    }
    return plan;
  }

  Lines lines_;
  std::string where_;
  std::map<std::int32_t, std::vector<std::int32_t>> rows_;
  std::vector<std::int32_t>* row_ = nullptr;  // of rows_, the layer that lists are for
  bool in_list_ = false;
  bool in_assignments_ = false;
  bool has_assignments_ = false;
  std::optional<std::int32_t> num_slots_;
};

struct CsvCell {
  std::int32_t layer = 0;
  std::int32_t gpu = 0;
  std::int32_t slot = 0;
  std::int32_t expert = 0;
};

CsvCell csv_cell(std::string_view line, const std::string& where, std::size_t line_number) {
  constexpr std::int32_t kMaxSlot = (1 << 20) - 1;
  constexpr std::int32_t kMax[4] = {kMaxPlanLayers - 1, kMaxSlot, kMaxSlot, kMaxPlanExperts - 1};
  std::int32_t values[4] = {};
  std::size_t field = 0;
  std::string_view rest = line;
  while (field < 4) {
    const auto comma = rest.find(',');
    const std::optional<std::int32_t> value = number(rest.substr(0, comma), kMax[field]);
    const bool is_last = comma == std::string_view::npos;
    if (!value || is_last != (field == 3)) {
      fail_input(where,
                 fmt::format("line {}: expected layer,gpu,slot,expert as numbers, found \"{}\"",
                             line_number, printable(line)));
    }
    values[field++] = *value;
    if (!is_last) rest = rest.substr(comma + 1);
  }
  return {values[0], values[1], values[2], values[3]};
}

PlanRows from_csv(std::string_view text, const std::string& where) {
  Lines lines{text};
  const std::optional<std::string_view> header = lines.next();
  if (!header || trim(*header) != "layer,gpu,slot,expert") {
    fail_input(where,
               "expected a plan: SGLang JSON with physical_to_logical_map, TensorRT-LLM YAML "
               "with initial_global_assignments, or CSV with the header layer,gpu,slot,expert");
  }
  std::vector<CsvCell> cells;
  while (const auto line = lines.next()) {
    if (!trim(*line).empty()) cells.push_back(csv_cell(*line, where, lines.number));
  }
  std::sort(cells.begin(), cells.end(), [](const CsvCell& a, const CsvCell& b) {
    return a.layer != b.layer ? a.layer < b.layer : a.slot < b.slot;
  });
  PlanRows plan;
  std::vector<std::int32_t> gpu_of_slot;  // of the first layer
  for (const CsvCell& cell : cells) {
    if (plan.layers.empty() || plan.layers.back() != cell.layer) {
      plan.layers.push_back(cell.layer);
      plan.rows.emplace_back();
    }
    std::vector<std::int32_t>& row = plan.rows.back();
    const std::size_t slot = row.size();
    if (static_cast<std::size_t>(cell.slot) != slot) {
      fail_input(where, fmt::format("layer {}: expected slot {} once, found slot {}", cell.layer,
                                    slot, cell.slot));
    }
    if (plan.rows.size() == 1) {
      const std::int32_t before = gpu_of_slot.empty() ? 0 : gpu_of_slot.back();
      if (cell.gpu < before || cell.gpu > before + 1 || (gpu_of_slot.empty() && cell.gpu != 0)) {
        fail_input(where,
                   fmt::format("layer {}, slot {}: GPUs must ascend with the slots, from 0 and "
                               "without gaps",
                               cell.layer, cell.slot));
      }
      gpu_of_slot.push_back(cell.gpu);
      plan.gpu_slots.resize(static_cast<std::size_t>(cell.gpu) + 1, 0);
      ++plan.gpu_slots.back();
    } else if (slot >= gpu_of_slot.size() || gpu_of_slot[slot] != cell.gpu) {
      fail_input(where, fmt::format("layer {}, slot {}: on another GPU than in layer {}",
                                    cell.layer, cell.slot, plan.layers.front()));
    }
    row.push_back(cell.expert);
  }
  return plan;
}

}  // namespace

PlanRows read_plan_rows(std::string_view text, const std::string& where) {
  if (text.size() > kMaxPlanBytes) {
    fail_input(where,
               fmt::format("expected at most {} bytes, found {}", kMaxPlanBytes, text.size()));
  }
  const std::string_view content = trim(text);
  if (!content.empty() && content.front() == '{') return from_json(text, where);
  if (content.find("initial_global_assignments") != std::string_view::npos) {
    return YamlReader(text, where).read();
  }
  return from_csv(content, where);
}

}  // namespace moe::balance
