moe_add_benchmark(bench_gemm
  SOURCES "${CMAKE_CURRENT_LIST_DIR}/bench_gemm.cpp" DEPS moe::kernels moe::base)
