moe_add_benchmark(bench_topology SOURCES bench_topology.cpp DEPS moe::topology)
if(TARGET bench_topology)
  target_compile_definitions(bench_topology PRIVATE MOE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
endif()
