# Sources of the reader of a server's own metrics.
set(MOE_SERVER_METRICS_SOURCES
  prometheus_text.cpp server_identity.cpp server_metrics.cpp server_metrics_poller.cpp)
