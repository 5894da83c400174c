moe_add_fuzzer(fuzz_metrics_page SOURCES fuzz_metrics_page.cpp DEPS moe::client)
