#include "lib/json/schema_check.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <regex>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/json/write.hpp"

namespace moe::json {
namespace {

constexpr int kMaxDepth = 256;  // of nested schemas, $ref included: ends a $ref that names itself
constexpr std::size_t kMaxPatternBytes = 4096;  // std::regex recurses once a character

constexpr std::array<std::string_view, 9> kAnnotations = {"$schema",  "$id",      "$defs",
                                                          "$comment", "title",    "description",
                                                          "default",  "examples", "deprecated"};

[[noreturn]] void fail_schema(const std::string& what) {
  throw Error(ErrorCode::kInput, "JSON schema: " + what);
}

std::string shorten(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

bool is_integer(const Json& value) {
  if (value.is_number_integer()) return true;
  if (!value.is_number_float()) return false;
  const double number = value.get<double>();
  return std::isfinite(number) && std::floor(number) == number;
}

bool has_type(const Json& value, const std::string& type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "number") return value.is_number();
  if (type == "integer") return is_integer(value);
  fail_schema(fmt::format("unknown type \"{}\"", type));
}

class Checker {
 public:
  Checker(const Json& root, int max_errors)
      : root_(root), max_errors_(static_cast<std::size_t>(std::max(1, max_errors))) {}

  void check(const Json& value, const Json& schema, const std::string& at, int depth) {
    if (depth > kMaxDepth) fail_schema(fmt::format("nested deeper than {} levels", kMaxDepth));
    if (schema.is_boolean()) {
      if (!schema.get<bool>()) add(at, "nothing is allowed here");
      return;
    }
    if (!schema.is_object()) fail_schema("a schema must be an object or a boolean");
    for (const auto& [keyword, rule] : schema.items()) {
      if (full()) return;
      apply(keyword, rule, schema, value, at, depth);
    }
  }

  [[nodiscard]] std::vector<SchemaError> take() { return std::move(errors_); }

 private:
  using Rule = void (Checker::*)(const Json&, const Json&, const Json&, const std::string&, int);

  [[nodiscard]] bool full() const { return errors_.size() >= max_errors_; }

  void add(const std::string& at, std::string message) {
    if (!full()) errors_.push_back({at, std::move(message)});
  }

  void apply(const std::string& keyword, const Json& rule, const Json& schema, const Json& value,
             const std::string& at, int depth) {
    static const std::map<std::string_view, Rule> rules = {
        {"$ref", &Checker::ref},
        {"type", &Checker::type},
        {"enum", &Checker::enumeration},
        {"const", &Checker::constant},
        {"properties", &Checker::properties},
        {"required", &Checker::required},
        {"additionalProperties", &Checker::additional_properties},
        {"propertyNames", &Checker::property_names},
        {"minProperties", &Checker::size_limit<&Json::is_object, false>},
        {"items", &Checker::items},
        {"minItems", &Checker::size_limit<&Json::is_array, false>},
        {"maxItems", &Checker::size_limit<&Json::is_array, true>},
        {"minLength", &Checker::min_length},
        {"pattern", &Checker::pattern},
        {"minimum", &Checker::minimum},
        {"maximum", &Checker::maximum},
        {"exclusiveMinimum", &Checker::exclusive_minimum},
        {"allOf", &Checker::all_of},
        {"anyOf", &Checker::any_of},
        {"oneOf", &Checker::one_of},
        {"not", &Checker::negation},
    };
    if (const auto found = rules.find(keyword); found != rules.end()) {
      (this->*found->second)(rule, schema, value, at, depth);
      return;
    }
    const bool is_annotation =
        keyword.starts_with("x-") ||
        std::find(kAnnotations.begin(), kAnnotations.end(), keyword) != kAnnotations.end();
    if (!is_annotation) fail_schema(fmt::format("keyword \"{}\" is not supported", keyword));
  }

  void ref(const Json& rule, const Json&, const Json& value, const std::string& at, int depth) {
    constexpr std::string_view kPrefix = "#/$defs/";
    const std::string target = rule.get<std::string>();
    if (!target.starts_with(kPrefix)) {
      fail_schema(fmt::format("$ref \"{}\" does not begin with {}", target, kPrefix));
    }
    const std::string name = target.substr(kPrefix.size());
    if (!root_.contains("$defs") || !root_["$defs"].contains(name)) {
      fail_schema(fmt::format("$ref \"{}\" names nothing", target));
    }
    check(value, root_["$defs"][name], at, depth + 1);
  }

  void type(const Json& rule, const Json&, const Json& value, const std::string& at, int) {
    if (rule.is_string()) {
      if (!has_type(value, rule.get<std::string>())) {
        add(at, fmt::format("expected {}, found {}", rule.get<std::string>(), shorten(value)));
      }
      return;
    }
    for (const Json& one : rule) {
      if (has_type(value, one.get<std::string>())) return;
    }
    add(at, fmt::format("expected one of {}, found {}", rule.dump(), shorten(value)));
  }

  void enumeration(const Json& rule, const Json&, const Json& value, const std::string& at, int) {
    for (const Json& one : rule) {
      if (one == value) return;
    }
    add(at, fmt::format("expected one of {}, found {}", rule.dump(), shorten(value)));
  }

  void constant(const Json& rule, const Json&, const Json& value, const std::string& at, int) {
    if (rule != value) {
      add(at, fmt::format("expected {}, found {}", rule.dump(), shorten(value)));
    }
  }

  void properties(const Json& rule, const Json&, const Json& value, const std::string& at,
                  int depth) {
    if (!value.is_object()) return;
    for (const auto& [key, schema] : rule.items()) {
      const auto member = value.find(key);
      if (member != value.end()) check(*member, schema, pointer_to(at, key), depth + 1);
    }
  }

  void required(const Json& rule, const Json&, const Json& value, const std::string& at, int) {
    if (!value.is_object()) return;
    for (const Json& key : rule) {
      if (!value.contains(key.get<std::string>())) {
        add(at, fmt::format("missing \"{}\"", key.get<std::string>()));
      }
    }
  }

  void additional_properties(const Json& rule, const Json& schema, const Json& value,
                             const std::string& at, int depth) {
    if (!value.is_object()) return;
    const auto known = schema.find("properties");
    for (const auto& [key, member] : value.items()) {
      if (known != schema.end() && known->contains(key)) continue;
      if (rule.is_boolean() && !rule.get<bool>()) {
        add(at, fmt::format("unknown key \"{}\"", key));
      } else {
        check(member, rule, pointer_to(at, key), depth + 1);
      }
    }
  }

  void property_names(const Json& rule, const Json&, const Json& value, const std::string& at,
                      int depth) {
    if (!value.is_object()) return;
    for (const auto& [key, member] : value.items()) {
      check(Json(key), rule, pointer_to(at, key), depth + 1);
    }
  }

  template <bool (Json::*kIsKind)() const noexcept, bool kIsMaximum>
  void size_limit(const Json& rule, const Json&, const Json& value, const std::string& at, int) {
    if (!(value.*kIsKind)()) return;
    const auto limit = rule.get<std::size_t>();
    if (kIsMaximum ? value.size() > limit : value.size() < limit) {
      add(at, fmt::format("expected at {} {} entries, found {}", kIsMaximum ? "most" : "least",
                          limit, value.size()));
    }
  }

  void items(const Json& rule, const Json&, const Json& value, const std::string& at, int depth) {
    if (!value.is_array()) return;
    for (std::size_t i = 0; i < value.size() && !full(); ++i) {
      check(value[i], rule, pointer_to(at, std::to_string(i)), depth + 1);
    }
  }

  void min_length(const Json& rule, const Json&, const Json& value, const std::string& at, int) {
    // Bytes rather than characters: our schemas only ask for text that is not empty.
    if (value.is_string() && value.get_ref<const std::string&>().size() < rule.get<std::size_t>()) {
      add(at, fmt::format("expected at least {} characters", rule.get<std::size_t>()));
    }
  }

  void pattern(const Json& rule, const Json&, const Json& value, const std::string& at, int) {
    if (!value.is_string()) return;
    const auto& text = value.get_ref<const std::string&>();
    const std::string expression = rule.get<std::string>();
    auto compiled = patterns_.find(expression);
    if (compiled == patterns_.end()) {
      try {
        compiled = patterns_.emplace(expression, std::regex(expression)).first;
      } catch (const std::regex_error&) {
        fail_schema(fmt::format("pattern \"{}\" is not a regular expression", expression));
      }
    }
    if (text.size() > kMaxPatternBytes || !std::regex_search(text, compiled->second)) {
      add(at, fmt::format("{} does not match {}", shorten(value), expression));
    }
  }

  void minimum(const Json& rule, const Json&, const Json& value, const std::string& at, int) {
    if (value.is_number() && value.get<double>() < rule.get<double>()) {
      add(at, fmt::format("expected at least {}, found {}", rule.dump(), shorten(value)));
    }
  }

  void maximum(const Json& rule, const Json&, const Json& value, const std::string& at, int) {
    if (value.is_number() && value.get<double>() > rule.get<double>()) {
      add(at, fmt::format("expected at most {}, found {}", rule.dump(), shorten(value)));
    }
  }

  void exclusive_minimum(const Json& rule, const Json&, const Json& value, const std::string& at,
                         int) {
    if (value.is_number() && value.get<double>() <= rule.get<double>()) {
      add(at, fmt::format("expected more than {}, found {}", rule.dump(), shorten(value)));
    }
  }

  void all_of(const Json& rule, const Json&, const Json& value, const std::string& at, int depth) {
    for (const Json& one : rule) check(value, one, at, depth + 1);
  }

  // The violations of `value` against one alternative.
  [[nodiscard]] std::vector<SchemaError> try_one(const Json& value, const Json& schema,
                                                 const std::string& at, int depth) const {
    Checker inner(root_, static_cast<int>(max_errors_));
    inner.check(value, schema, at, depth + 1);
    return inner.take();
  }

  void any_of(const Json& rule, const Json&, const Json& value, const std::string& at, int depth) {
    std::vector<SchemaError> closest;
    for (const Json& one : rule) {
      auto violations = try_one(value, one, at, depth);
      if (violations.empty()) return;
      if (closest.empty() || violations.size() < closest.size()) closest = std::move(violations);
    }
    add_closest(rule, closest, at);
  }

  void one_of(const Json& rule, const Json&, const Json& value, const std::string& at, int depth) {
    std::vector<SchemaError> closest;
    int num_matches = 0;
    for (const Json& one : rule) {
      auto violations = try_one(value, one, at, depth);
      if (violations.empty()) ++num_matches;
      if (closest.empty() || violations.size() < closest.size()) closest = std::move(violations);
    }
    if (num_matches == 1) return;
    if (num_matches > 1) {
      add(at, fmt::format("matches {} alternatives where one is allowed", num_matches));
    } else {
      add_closest(rule, closest, at);
    }
  }

  void add_closest(const Json& rule, const std::vector<SchemaError>& closest,
                   const std::string& at) {
    std::string message = fmt::format("matches none of {} alternatives", rule.size());
    if (!closest.empty()) {
      message += fmt::format("; the closest: {}: {}",
                             closest.front().pointer.empty() ? "/" : closest.front().pointer,
                             closest.front().message);
    }
    add(at, std::move(message));
  }

  void negation(const Json& rule, const Json&, const Json& value, const std::string& at,
                int depth) {
    if (try_one(value, rule, at, depth).empty()) add(at, "matches what is not allowed");
  }

  const Json& root_;
  std::size_t max_errors_;
  std::vector<SchemaError> errors_;
  std::map<std::string, std::regex> patterns_;
};

}  // namespace

std::vector<SchemaError> check_schema(const Json& document, const Json& schema, int max_errors) {
  Checker checker(schema, max_errors);
  try {
    checker.check(document, schema, "", 0);
  } catch (const Json::exception& error) {
    fail_schema(fmt::format("malformed rule: {}", error.what()));
  }
  return checker.take();
}

std::string describe(const std::vector<SchemaError>& errors) {
  std::string text;
  for (const SchemaError& error : errors) {
    text += fmt::format("{}{}: {}", text.empty() ? "" : "\n",
                        error.pointer.empty() ? "/" : error.pointer, error.message);
  }
  return text;
}

}  // namespace moe::json
