moe_add_benchmark(bench_inspect SOURCES bench_inspect.cpp
  DEPS moe::model moe_test_sparse moe::test_support)
if(TARGET bench_inspect)
  target_compile_definitions(bench_inspect PRIVATE MOE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
endif()
