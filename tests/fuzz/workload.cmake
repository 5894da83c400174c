moe_add_fuzzer(fuzz_request_trace SOURCES fuzz_request_trace.cpp DEPS moe::workload)
moe_add_fuzzer(fuzz_workload SOURCES fuzz_workload.cpp
  DEPS moe::workload moe::json nlohmann_json::nlohmann_json)
