moe_add_benchmark(bench_gemm
  SOURCES "${CMAKE_CURRENT_LIST_DIR}/bench_gemm.cpp" DEPS moe::kernels moe::base)
moe_add_benchmark(bench_attention
  SOURCES "${CMAKE_CURRENT_LIST_DIR}/bench_attention.cpp" DEPS moe::kernels moe::base)
