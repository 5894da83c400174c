moe_add_benchmark(bench_planner
  SOURCES "${CMAKE_CURRENT_LIST_DIR}/bench_planner.cpp" DEPS moe::planner moe::model moe::base)
if(TARGET bench_planner)
  target_compile_definitions(bench_planner PRIVATE MOE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
endif()
