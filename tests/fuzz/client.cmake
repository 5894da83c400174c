moe_add_fuzzer(fuzz_sse_stream SOURCES fuzz_sse_stream.cpp DEPS moe::client)
moe_add_fuzzer(fuzz_answer SOURCES fuzz_answer.cpp DEPS moe::client)
moe_add_fuzzer(fuzz_conversations SOURCES fuzz_conversations.cpp DEPS moe::client moe::workload)
moe_add_fuzzer(fuzz_chunk_decoder SOURCES fuzz_chunk_decoder.cpp DEPS moe::client)
