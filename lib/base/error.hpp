#pragma once

// The one exception type of the toolkit: the run cannot go on, and a person other than the
// programmer can mend it. Bugs use MOE_CHECK instead; expected outcomes are values.

#include <stdexcept>
#include <string>

namespace moe {

// Who can mend it and how the process ends; lib/app maps each to an exit code.
enum class ErrorCode {
  kUsage,            // a wrong flag or a wrong combination of flags: exit 2
  kInput,            // an unreadable or invalid file: exit 3
  kUnavailable,      // hardware, driver or library is not there: exit 4
  kRuntime,          // failed while running: time-out, lost rank, out of memory: exit 5
  kCorruptData,      // a transfer or a kernel delivered wrong values: exit 6
  kNothingMeasured,  // nothing valid was measured: exit 7
};

// what() is one line: what was expected, what was found, where, what to do.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}

  [[nodiscard]] ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

// Refuses an input: where it is (file, line, key), and what is wrong with it.
[[noreturn]] inline void fail_input(const std::string& where, const std::string& what) {
  throw Error(ErrorCode::kInput, where + ": " + what);
}

}  // namespace moe
