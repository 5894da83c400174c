#pragma once

namespace moe::app {

// The whole of moe-a2a; returns its exit code.
[[nodiscard]] int moe_a2a_main(int argc, char** argv);

}  // namespace moe::app
