moe_add_test(client_metrics_test
  SOURCES prometheus_text_test.cpp server_identity_test.cpp server_metrics_test.cpp
  DEPS moe::client moe::scripted_server moe::test_support)
