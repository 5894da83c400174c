moe_add_test(model_tokenizer_test
  SOURCES
    tokenizer_decoder_test.cpp
    tokenizer_merge_test.cpp
    tokenizer_property_test.cpp
    tokenizer_refuse_test.cpp
    tokenizer_split_test.cpp
    tokenizer_test.cpp
    tokenizer_vectors_test.cpp
    unicode_text_test.cpp
    utf8_stream_test.cpp
  DEPS moe::model moe::base nlohmann_json::nlohmann_json fmt::fmt)
