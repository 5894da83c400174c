moe_add_benchmark(bench_client SOURCES bench_client.cpp DEPS moe::client)
