#include "lib/app/bench/moe_bench.hpp"

int main(int argc, char** argv) {
  return moe::app::moe_bench_main(argc, argv);
}
