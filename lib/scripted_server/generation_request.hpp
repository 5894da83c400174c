#pragma once

// What a request to /v1/completions or /v1/chat/completions asks for, as far as it shapes the
// reply.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace moe::scripted_server {

struct GenerationRequest {
  bool is_chat = false;
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;
  bool return_token_ids = false;
  bool timings_per_token = false;
  std::int64_t max_tokens = 16;    // the default of the completions endpoint
  std::int64_t prompt_tokens = 0;  // ids as given; a text counts its words
  std::string model;

  friend bool operator==(const GenerationRequest&, const GenerationRequest&) = default;
};

// Holds the parser, so that a request costs no memory of its own.
class GenerationRequestReader {
 public:
  GenerationRequestReader();
  GenerationRequestReader(const GenerationRequestReader&) = delete;
  GenerationRequestReader& operator=(const GenerationRequestReader&) = delete;
  ~GenerationRequestReader();

  // Empty when `request` was read; otherwise what is wrong with the body, for a reply with 400.
  [[nodiscard]] std::string read(std::string_view body, bool is_chat, GenerationRequest& request);

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

}  // namespace moe::scripted_server
