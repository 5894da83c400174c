moe_add_fuzzer(fuzz_plan_text SOURCES fuzz_plan_text.cpp DEPS moe::balance moe::base)
moe_add_fuzzer(fuzz_alarm_rule SOURCES fuzz_alarm_rule.cpp DEPS moe::balance moe::base)
moe_add_fuzzer(fuzz_kernel_fits SOURCES fuzz_kernel_fits.cpp DEPS moe::balance moe::base)
moe_add_fuzzer(fuzz_alarm_series SOURCES fuzz_alarm_series.cpp DEPS moe::balance moe::base)
