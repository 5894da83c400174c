#pragma once

// The application behind tools/moe-bench.

namespace moe::app {

// Parses argv, runs the sub-command, writes the report; returns the exit code (exit_code.hpp).
int moe_bench_main(int argc, char** argv);

}  // namespace moe::app
