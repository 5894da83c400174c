#pragma once

// The keys of one JSON object, each asked for once; what nobody asked for is refused.

#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/json/read.hpp"

namespace moe::scripted_server {

// Bounds of a number, both included.
struct NumberRange {
  double min = 0.0;
  double max = 86400.0;
};

// Every reader throws Error(kInput) naming the place.
class Fields {
 public:
  // Throws when `object` is not one. It must outlive this.
  Fields(const json::Json& object, std::string where);

  [[nodiscard]] const std::string& where() const { return where_; }
  [[nodiscard]] std::string at(const std::string& key) const;

  // The member, or null when it is absent.
  [[nodiscard]] const json::Json* find(const char* key);
  [[nodiscard]] std::optional<double> number(const char* key, NumberRange range = {});
  [[nodiscard]] std::optional<std::int64_t> integer(const char* key, NumberRange range);
  void read(const char* key, double& target, NumberRange range = {});
  void read(const char* key, std::int64_t& target, NumberRange range);
  void read(const char* key, bool& target);
  void read(const char* key, std::string& target);

  template <typename Value>
  void choose(const char* key, Value& target,
              std::initializer_list<std::pair<const char*, Value>> choices) {
    std::vector<const char*> names;
    for (const auto& choice : choices) names.push_back(choice.first);
    const std::optional<std::size_t> chosen = chosen_of(key, names);
    if (chosen) target = (choices.begin() + *chosen)->second;
  }

  // Throws when a key was never asked for.
  void finish() const;

 private:
  [[nodiscard]] std::optional<std::size_t> chosen_of(const char* key,
                                                     const std::vector<const char*>& names);
  [[noreturn]] void fail(const std::string& place, const std::string& what) const;

  const json::Json& object_;
  std::string where_;
  std::vector<std::string> known_;
};

}  // namespace moe::scripted_server
