moe_add_benchmark(bench_pack SOURCES "${CMAKE_CURRENT_LIST_DIR}/bench_pack.cpp" DEPS moe::engine)
# Run by scripts/callgrind.py, which counts its instructions.
moe_add_benchmark(callgrind_driver SOURCES "${CMAKE_CURRENT_LIST_DIR}/callgrind_driver.cpp"
  DEPS moe::engine moe::model moe::kernels)
if(TARGET callgrind_driver)
  target_compile_definitions(callgrind_driver PRIVATE MOE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
endif()
