moe_add_fuzzer(fuzz_client_report SOURCES fuzz_client_report.cpp
  DEPS moe::client_reports moe::json nlohmann_json::nlohmann_json)
