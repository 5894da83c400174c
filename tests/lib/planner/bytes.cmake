moe_add_test(planner_bytes_test
  SOURCES
    byte_anchors_test.cpp
    byte_laws_test.cpp
    engine_log_test.cpp
    fit_test.cpp
    hardware_test.cpp
  DEPS moe::planner moe::model moe::test_support nlohmann_json::nlohmann_json fmt::fmt)
