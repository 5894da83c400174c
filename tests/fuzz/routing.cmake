moe_add_fuzzer(fuzz_routing_trace SOURCES fuzz_routing_trace.cpp DEPS moe::routing)
