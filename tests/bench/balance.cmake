moe_add_benchmark(bench_plan SOURCES bench_plan.cpp DEPS moe::balance moe::json moe::base)
if(TARGET bench_plan)
  target_compile_definitions(bench_plan PRIVATE MOE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
endif()
