#pragma once

// What the thread of a loop asks of the kernel, and what it has used.

namespace moe::client {

// Timers of this thread fire when they are due, not up to 50 us later, and its turns on a processor
// are short: the scheduler lets a thread that asks for a short slice in sooner, where it would else
// wait for the end of another's slice of a millisecond and more. Needs no privilege; true when the
// kernel grants the slice (Linux 6.12 and later).
bool make_punctual();

[[nodiscard]] double thread_cpu_s();

}  // namespace moe::client
