moe_add_fuzzer(fuzz_engine_log SOURCES fuzz_engine_log.cpp DEPS moe::planner moe::model)
moe_add_fuzzer(fuzz_operating_points SOURCES fuzz_operating_points.cpp DEPS moe::planner)
moe_add_fuzzer(fuzz_planner_json SOURCES fuzz_planner_json.cpp DEPS moe::planner moe::model)
