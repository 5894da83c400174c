# The tokenizer's part of the module.
find_package(Oniguruma 6.9.8 REQUIRED)
find_package(Utf8proc REQUIRED)
target_sources(moe_model PRIVATE
  tokenizer.cpp
  tokenizer_added.cpp
  tokenizer_bpe.cpp
  tokenizer_bytes.cpp
  tokenizer_data.cpp
  tokenizer_decoder.cpp
  tokenizer_json.cpp
  tokenizer_merge.cpp
  tokenizer_normalizer.cpp
  tokenizer_pattern.cpp
  tokenizer_pretokenizer.cpp
  tokenizer_split.cpp
  unicode_text.cpp
  utf8_stream.cpp)
target_link_libraries(moe_model PRIVATE
  Oniguruma::Oniguruma Utf8proc::Utf8proc fmt::fmt nlohmann_json::nlohmann_json)
