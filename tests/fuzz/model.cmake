moe_add_fuzzer(fuzz_architecture SOURCES fuzz_architecture.cpp DEPS moe::model)
moe_add_fuzzer(fuzz_config SOURCES fuzz_config.cpp DEPS moe::model)
moe_add_fuzzer(fuzz_gguf_header SOURCES fuzz_gguf_header.cpp DEPS moe::model)
moe_add_fuzzer(fuzz_gguf_model SOURCES fuzz_gguf_model.cpp DEPS moe::model)
moe_add_fuzzer(fuzz_gguf_parts SOURCES fuzz_gguf_parts.cpp DEPS moe::model fmt::fmt)
moe_add_fuzzer(fuzz_int_checkpoint SOURCES fuzz_int_checkpoint.cpp
  DEPS moe::model moe::test_support)
moe_add_fuzzer(fuzz_safetensors_header SOURCES fuzz_safetensors_header.cpp DEPS moe::model)
moe_add_fuzzer(fuzz_shard_index SOURCES fuzz_shard_index.cpp DEPS moe::model)
