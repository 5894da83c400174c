moe_add_fuzzer(fuzz_tokenizer_json SOURCES fuzz_tokenizer_json.cpp DEPS moe::model moe::base)
moe_add_fuzzer(fuzz_bpe_round_trip SOURCES fuzz_bpe_round_trip.cpp DEPS moe::model moe::base)
moe_add_fuzzer(fuzz_utf8_stream SOURCES fuzz_utf8_stream.cpp DEPS moe::model moe::base)
