#pragma once

namespace moe::app {

// The whole of moe-skew; returns its exit code.
[[nodiscard]] int moe_skew_main(int argc, char** argv);

}  // namespace moe::app
