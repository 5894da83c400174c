moe_add_fuzzer(fuzz_http_request SOURCES fuzz_http_request.cpp DEPS moe::scripted_server)
moe_add_fuzzer(fuzz_server_script SOURCES fuzz_server_script.cpp
  DEPS moe::scripted_server moe::json nlohmann_json::nlohmann_json)
