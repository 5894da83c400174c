# Sources of the reader of a server's own metrics.
set(MOE_SERVER_METRICS_SOURCES)
