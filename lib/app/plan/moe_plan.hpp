#pragma once

namespace moe::app {

// The whole of moe-plan; returns its exit code.
[[nodiscard]] int moe_plan_main(int argc, char** argv);

}  // namespace moe::app
