moe_add_benchmark(bench_client SOURCES bench_client.cpp DEPS moe::client)
moe_add_benchmark(bench_event_path SOURCES bench_event_path.cpp DEPS moe::client)
