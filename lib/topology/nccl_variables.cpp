#include "lib/topology/nccl_variables.hpp"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/base/text.hpp"

namespace moe::topology {
namespace {

using json::Json;

constexpr std::string_view kPrefix = "NCCL_";
constexpr std::size_t kMaxTextBytes = std::size_t{4} << 20;
constexpr std::size_t kMaxNameLength = 64;  // longer names are not compared letter by letter
constexpr std::size_t kMaxMisspelling = 3;  // letters

std::string text_at(const Json& object, const char* key, const std::string& where) {
  if (!object.contains(key)) return "";
  if (!object.at(key).is_string()) fail_input(where, fmt::format("{}: expected a text", key));
  return object.at(key).get<std::string>();
}

std::vector<std::string> texts_at(const Json& object, const char* key, const std::string& where) {
  std::vector<std::string> texts;
  if (!object.contains(key)) return texts;
  if (!object.at(key).is_array()) fail_input(where, fmt::format("{}: expected a list", key));
  for (const Json& text : object.at(key)) {
    if (!text.is_string()) fail_input(where, fmt::format("{}: expected texts", key));
    texts.push_back(text.get<std::string>());
  }
  return texts;
}

std::optional<std::int32_t> version_at(const Json& object, const char* key,
                                       const std::string& where) {
  const std::string text = text_at(object, key, where);
  if (text.empty()) return std::nullopt;
  const std::optional<std::int32_t> version = parse_nccl_version(text);
  if (!version) {
    fail_input(where, fmt::format("{}: expected a version such as 2.28.9, found \"{}\"", key,
                                  printable(text)));
  }
  return version;
}

const Json& list_at(const Json& document, const char* key, const std::string& where) {
  if (!document.contains(key) || !document.at(key).is_array()) {
    fail_input(where, fmt::format("expected a list \"{}\"", key));
  }
  return document.at(key);
}

NcclVariable variable_from(const Json& object, const std::string& where) {
  if (!object.is_object()) fail_input(where, "expected an object");
  NcclVariable variable;
  variable.name = text_at(object, "name", where);
  if (!variable.name.starts_with(kPrefix) || variable.name.size() > kMaxNameLength) {
    fail_input(where, fmt::format("name: expected one that begins with NCCL_, found \"{}\"",
                                  printable(variable.name)));
  }
  variable.since = version_at(object, "since", where);
  variable.deprecated_in = version_at(object, "deprecated_in", where);
  variable.removed_in = version_at(object, "removed_in", where);
  variable.renamed_to = text_at(object, "renamed_to", where);
  variable.has_no_effect = text_at(object, "all_to_all", where) == "none";
  variable.slows_when = texts_at(object, "slows_when", where);
  variable.values = texts_at(object, "values", where);
  variable.why = text_at(object, "why", where);
  return variable;
}

// Letters to add, drop, change or exchange with their neighbour (restricted Damerau-Levenshtein).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before;
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] =
          std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1] ? 1U : 0U)});
      const bool is_swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (is_swap) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before = last;
    last = row;
  }
  return last[b.size()];
}

// The known name that this one was probably meant to be; empty: none comes close.
std::string nearest_name(const std::string& name, const NcclVariables& variables) {
  const auto seen = variables.misspellings.find(name);
  if (seen != variables.misspellings.end()) return seen->second;
  if (name.size() > kMaxNameLength) return "";
  std::string nearest;
  // Short names are close to many others by chance.
  std::size_t best = std::min(kMaxMisspelling, (name.size() - kPrefix.size()) / 3) + 1;
  for (const auto& [known, variable] : variables.known) {
    const std::size_t longer = std::max(known.size(), name.size());
    if (longer - std::min(known.size(), name.size()) >= best) continue;
    const std::size_t distance = edit_distance(name, known);
    if (distance < best) {
      best = distance;
      nearest = known;
    }
  }
  return nearest;
}

std::string version_text(std::int32_t version) {
  const std::int32_t patch = version % 100;
  const std::string text = fmt::format("{}.{}", version / 10000, version / 100 % 100);
  return patch == 0 ? text : fmt::format("{}.{}", text, patch);
}

std::string upper_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  return text;
}

bool holds(const std::vector<std::string>& values, const std::string& value) {
  return std::find(values.begin(), values.end(), upper_case(value)) != values.end();
}

Remark remark(const std::string& code, Weight weight, const std::string& name, std::string message,
              std::string advice) {
  return {code, weight, std::move(message), std::move(advice), {name}, 0};
}

void check_version(const NcclVariable& variable, std::int32_t version,
                   std::vector<Remark>& remarks) {
  const std::string& name = variable.name;
  const std::string instead =
      variable.renamed_to.empty() ? "Remove it" : "Use " + variable.renamed_to;
  if (variable.removed_in && version >= *variable.removed_in) {
    remarks.push_back(
        remark("nccl.variable_removed", Weight::kWarning, name,
               fmt::format("{} is not read any more: removed in NCCL {}, {} is used", name,
                           version_text(*variable.removed_in), version_text(version)),
               instead));
  } else if (variable.deprecated_in && version >= *variable.deprecated_in) {
    remarks.push_back(remark("nccl.variable_deprecated", Weight::kInfo, name,
                             fmt::format("{} is deprecated since NCCL {}{}{}", name,
                                         version_text(*variable.deprecated_in),
                                         variable.why.empty() ? "" : ": ", variable.why),
                             instead));
  } else if (variable.since && version < *variable.since) {
    remarks.push_back(remark("nccl.variable_too_new", Weight::kWarning, name,
                             fmt::format("{} is not read: it came with NCCL {}, {} is used", name,
                                         version_text(*variable.since), version_text(version)),
                             "Use a newer NCCL, or remove the variable"));
  }
}

void check_known(const NcclVariable& variable, const std::string& value,
                 std::optional<std::int32_t> version, std::vector<Remark>& remarks) {
  const std::string& name = variable.name;
  const std::string shown = printable(value);
  if (version) check_version(variable, *version, remarks);
  if (!version && !variable.renamed_to.empty()) {
    remarks.push_back(remark(
        "nccl.variable_deprecated", Weight::kInfo, name,
        fmt::format("{} has an heir{}{}", name, variable.why.empty() ? "" : ": ", variable.why),
        "Use " + variable.renamed_to));
  }
  if (variable.has_no_effect) {
    remarks.push_back(
        remark("nccl.variable_without_effect", Weight::kWarning, name,
               fmt::format("{}={} has no effect on an all-to-all. {}", name, shown, variable.why),
               "Do not expect a change from it; remove it if it is here for the "
               "all-to-all"));
  }
  if (holds(variable.slows_when, value)) {
    remarks.push_back(remark("nccl.variable_slows", Weight::kWarning, name,
                             fmt::format("{}={}: {}", name, shown, variable.why),
                             "Remove it unless this run is to show what it costs"));
  }
  if (!variable.values.empty() && !holds(variable.values, value)) {
    remarks.push_back(remark(
        "nccl.value_unknown", Weight::kWarning, name,
        fmt::format("{}={}: expected one of {}", name, shown, fmt::join(variable.values, ", ")),
        "NCCL takes its default, or the first number it finds"));
  }
}

void check_unknown(const std::string& name, const NcclVariables& variables,
                   std::vector<Remark>& remarks) {
  const bool is_of_others =
      std::any_of(variables.other_prefixes.begin(), variables.other_prefixes.end(),
                  [&](const auto& other) { return name.starts_with(other.first); });
  if (is_of_others) return;
  const std::string meant = nearest_name(name, variables);
  if (!meant.empty()) {
    remarks.push_back(remark(
        "nccl.variable_misspelt", Weight::kWarning, name,
        fmt::format("{} is no variable of NCCL and has no effect; {} is", printable(name), meant),
        "Set " + meant));
    return;
  }
  remarks.push_back(remark("nccl.variable_unknown", Weight::kInfo, name,
                           fmt::format("{} is no variable of NCCL up to {}; a plugin may read it",
                                       printable(name), variables.last_version),
                           "Remove it if no plugin does"));
}

}  // namespace

std::optional<std::int32_t> parse_nccl_version(std::string_view text) {
  std::int32_t parts[3] = {0, 0, 0};
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  std::size_t count = 0;
  while (count < 3) {
    const auto [rest, error] = std::from_chars(at, end, parts[count]);
    if (error != std::errc() || parts[count] < 0 || parts[count] > 99) return std::nullopt;
    ++count;
    at = rest;
    if (at == end) break;
    if (*at != '.') return std::nullopt;
    ++at;
  }
  if (at != end || count < 2) return std::nullopt;
  return parts[0] * 10000 + parts[1] * 100 + parts[2];
}

NcclVariables nccl_variables_from_json(const Json& document, const std::string& where) {
  if (!document.is_object() || document.value("schema_version", Json()) != Json(1)) {
    fail_input(where, "expected schema_version 1");
  }
  NcclVariables variables;
  variables.last_version = text_at(document, "last_version", where);
  std::size_t index = 0;
  for (const Json& object : list_at(document, "variables", where)) {
    NcclVariable variable = variable_from(object, fmt::format("{}: variables[{}]", where, index++));
    const std::string name = variable.name;
    if (!variables.known.emplace(name, std::move(variable)).second) {
      fail_input(where, fmt::format("variables: {} comes twice", name));
    }
  }
  for (const Json& object : list_at(document, "misspellings", where)) {
    if (!object.is_object()) fail_input(where, "misspellings: expected objects");
    const std::string meant = text_at(object, "meant", where);
    if (!variables.known.contains(meant)) {
      fail_input(where, fmt::format("misspellings: \"{}\" is not in variables", printable(meant)));
    }
    variables.misspellings[text_at(object, "name", where)] = meant;
  }
  for (const Json& object : list_at(document, "other_prefixes", where)) {
    if (!object.is_object()) fail_input(where, "other_prefixes: expected objects");
    const std::string prefix = text_at(object, "prefix", where);
    if (prefix.size() <= kPrefix.size()) fail_input(where, "other_prefixes: a prefix is too short");
    variables.other_prefixes[prefix] = text_at(object, "owner", where);
  }
  return variables;
}

std::vector<Remark> check_nccl_variables(const std::map<std::string, std::string>& environment,
                                         const NcclVariables& variables,
                                         std::optional<std::int32_t> version) {
  std::vector<Remark> remarks;
  for (const auto& [name, value] : environment) {
    if (!name.starts_with(kPrefix)) continue;
    const auto known = variables.known.find(name);
    if (known == variables.known.end()) {
      check_unknown(name, variables, remarks);
    } else {
      check_known(known->second, value, version, remarks);
    }
  }
  return remarks;
}

std::map<std::string, std::string> read_variable_lines(std::string_view text,
                                                       const std::string& where) {
  if (text.size() > kMaxTextBytes) {
    fail_input(where, fmt::format("{} bytes; at most {} are read", text.size(), kMaxTextBytes));
  }
  std::map<std::string, std::string> variables;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    while (!line.empty() && line.front() == ' ') line.remove_prefix(1);
    constexpr std::string_view kExport = "export ";
    if (line.starts_with(kExport)) line.remove_prefix(kExport.size());
    const std::size_t equals = line.find('=');
    if (line.starts_with("#") || equals == std::string_view::npos || equals == 0) continue;
    std::string_view value = line.substr(equals + 1);
    const bool is_quoted = value.size() >= 2 && (value.front() == '"' || value.front() == '\'') &&
                           value.front() == value.back();
    if (is_quoted) value = value.substr(1, value.size() - 2);
    variables[std::string(line.substr(0, equals))] = std::string(value);
  }
  return variables;
}

}  // namespace moe::topology
