moe_add_fuzzer(fuzz_config SOURCES fuzz_config.cpp DEPS moe::model)
moe_add_fuzzer(fuzz_gguf_header SOURCES fuzz_gguf_header.cpp DEPS moe::model)
moe_add_fuzzer(fuzz_safetensors_header SOURCES fuzz_safetensors_header.cpp DEPS moe::model)
moe_add_fuzzer(fuzz_shard_index SOURCES fuzz_shard_index.cpp DEPS moe::model)
