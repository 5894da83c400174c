moe_add_fuzzer(fuzz_report_json SOURCES fuzz_report_json.cpp DEPS moe::report)
moe_add_fuzzer(fuzz_checklist SOURCES fuzz_checklist.cpp DEPS moe::report)
moe_add_fuzzer(fuzz_json_read SOURCES fuzz_json_read.cpp DEPS moe::json)
