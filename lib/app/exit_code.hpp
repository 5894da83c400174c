#pragma once

// How a tool ends. The numbers are part of the interface: scripts and CI jobs read them.

#include "lib/base/error.hpp"

namespace moe::app {

enum ExitCode : int {
  kExitOk = 0,
  kExitCheckFailed = 1,      // ran; a required check failed (--gate, --require)
  kExitUsage = 2,            // a wrong flag or combination of flags
  kExitInput = 3,            // an unreadable or invalid file
  kExitUnavailable = 4,      // needed hardware, driver or library is not there
  kExitRuntime = 5,          // failed while running, or was stopped before the end
  kExitCorruptData = 6,      // a transfer or a kernel delivered wrong values
  kExitNothingMeasured = 7,  // nothing valid was measured
  kExitBug = 70,             // a check of ours failed
  kExitSecondSignal = 130,   // a second Ctrl-C: ended at once, nothing was saved
};

[[nodiscard]] constexpr ExitCode exit_code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUsage:
      return kExitUsage;
    case ErrorCode::kInput:
      return kExitInput;
    case ErrorCode::kUnavailable:
      return kExitUnavailable;
    case ErrorCode::kRuntime:
      return kExitRuntime;
    case ErrorCode::kCorruptData:
      return kExitCorruptData;
    case ErrorCode::kNothingMeasured:
      return kExitNothingMeasured;
  }
  return kExitBug;
}

}  // namespace moe::app
