moe_add_benchmark(bench_tokenizer SOURCES bench_tokenizer.cpp DEPS moe::model)
if(TARGET bench_tokenizer)
  target_compile_definitions(bench_tokenizer PRIVATE MOE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
endif()
