moe_add_fuzzer(fuzz_scenario SOURCES fuzz_scenario.cpp
  DEPS moe::app_plan moe::json nlohmann_json::nlohmann_json)
