moe_add_fuzzer(fuzz_engine_log SOURCES fuzz_engine_log.cpp DEPS moe::planner moe::model)
