#pragma once

// Numbers by time from CSV: a header of names, the first of which is time_s (or begin_s,end_s for
// stretches), then one row a time. Text in, values out.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/balance/alarms.hpp"

namespace moe::balance {

struct Series {
  std::vector<std::string> names;                          // without time_s
  std::vector<double> time_s;                              // ascending
  std::vector<std::vector<std::optional<double>>> values;  // [names][times]; an empty field: absent
};

// Throws Error(kInput) with `where` and the line: no header, other number of fields, not a finite
// number, time that runs backwards, more than 2^24 fields.
[[nodiscard]] Series read_series(std::string_view text, const std::string& where);

// Rows of begin_s,end_s with that header, begin <= end.
[[nodiscard]] std::vector<AlarmLabel> read_labels(std::string_view text, const std::string& where);

}  // namespace moe::balance
