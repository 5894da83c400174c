moe_add_fuzzer(fuzz_store_message SOURCES fuzz_store_message.cpp DEPS moe::comm)
moe_add_fuzzer(fuzz_traffic_matrix SOURCES fuzz_traffic_matrix.cpp DEPS moe::comm)
