moe_add_benchmark(bench_thread_pool SOURCES "${CMAKE_CURRENT_LIST_DIR}/bench_thread_pool.cpp"
  DEPS moe::base)
