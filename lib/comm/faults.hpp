#pragma once

// Faults on purpose: shows that the tool finds them, and lets a cluster team try its alarms. A
// communicator that behaves like the one it wraps, but for one fault at one rank.

#include <memory>
#include <string>
#include <string_view>

#include "lib/comm/communicator.hpp"

namespace moe::comm {

enum class FaultKind : std::uint8_t {
  kNone,
  kCorrupt,  // one bit of what the rank received is flipped
  kHang,     // the rank stops taking part
  kSlow,     // the rank is late for every exchange
  kKill,     // the process of the rank dies (SIGKILL)
};

struct Fault {
  FaultKind kind = FaultKind::kNone;
  int rank = 0;
  std::int64_t after_exchanges = 0;  // so many go well
  double delay_s = 0.0;              // kSlow, and how long kHang lasts
};

// "corrupt:RANK", "hang:RANK", "kill:RANK", "slow:RANK:DURATION"; all but slow may end in @N: after
// N exchanges. Throws Error(kUsage).
[[nodiscard]] Fault parse_fault(std::string_view text, const std::string& option);

// `inner` must outlive the result. Ranks that the fault is not of get a plain wrapper.
[[nodiscard]] std::unique_ptr<Communicator> make_faulty(Communicator& inner, const Fault& fault);

}  // namespace moe::comm
