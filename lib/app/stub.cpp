#include "lib/app/moe_bench.hpp"
namespace moe::app { int moe_bench_main(int, char**) { return 0; } }
