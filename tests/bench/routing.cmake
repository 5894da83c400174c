moe_add_benchmark(bench_routing SOURCES bench_routing.cpp DEPS moe::routing)
