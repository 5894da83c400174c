moe_add_benchmark(bench_cache SOURCES bench_cache.cpp DEPS moe::tiering moe::base)
