#pragma once

// Text <-> token ids as a Hugging Face `tokenizer.json` of type BPE defines them: normalizer, added
// tokens, pre-tokenizer, BPE, post-processor, decoder. Whatever the file asks for and this reader
// does not know is refused by name, never skipped.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moe::model {

namespace tokenizer_detail {
struct TokenizerData;
class StreamRule;
}  // namespace tokenizer_detail

// Immutable after loading; a copy shares the tables. All const members may run in several threads.
class Tokenizer {
 public:
  // Both throw Error(kInput): the component or token at fault, where it stands, what is known
  // instead. A file over 64 MiB is refused unread.
  [[nodiscard]] static Tokenizer load(const std::filesystem::path& tokenizer_json);
  // `where` names the source in messages ("dir/tokenizer.json").
  [[nodiscard]] static Tokenizer parse(std::string_view json, const std::string& where);

  // `text` must be UTF-8. Throws Error(kInput) if it is not, or if a pattern of the file runs away
  // on it. `add_special_tokens` applies the post-processor (for most models: a leading BOS). The
  // text of a special token inside `text` becomes that token, as in the reference library.
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text,
                                                 bool add_special_tokens) const;

  // Always valid UTF-8; bytes that form no character become U+FFFD. Ids without a token are left
  // out.
  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids, bool skip_special) const;

  // Largest id that any token has; -1 for an empty vocabulary.
  [[nodiscard]] std::int32_t max_id() const;
  // Distinct tokens, added ones included. Less than max_id() + 1 when the ids have holes.
  [[nodiscard]] std::int64_t num_tokens() const;

  [[nodiscard]] std::optional<std::int32_t> token_to_id(std::string_view token) const;
  // The token as the file writes it (byte-level tokens in their printable alphabet).
  [[nodiscard]] std::optional<std::string> id_to_token(std::int32_t id) const;
  // True for an added token that the file marks special (`<s>`, `<|im_end|>`).
  [[nodiscard]] bool is_special(std::int32_t id) const;

  // Oddities that do not stop a run, one line each, with the file's name: ids without a token.
  [[nodiscard]] const std::vector<std::string>& warnings() const;
  [[nodiscard]] const std::string& where() const;

 private:
  friend class TokenStream;
  explicit Tokenizer(std::shared_ptr<const tokenizer_detail::TokenizerData> data);

  std::shared_ptr<const tokenizer_detail::TokenizerData> data_;
};

// Throws Error(kInput) naming the first token whose id has no row in the model's embedding table
// (`embedding_rows` of `model_where`, for example "config.json: vocab_size"). Extra rows are fine.
void check_against_model(const Tokenizer& tokenizer, std::int64_t embedding_rows,
                         const std::string& model_where);

// Turns ids into text one at a time. push() returns the text that is decided by now (maybe empty);
// flush() the rest, and makes the stream ready for the next sequence.
//
// Byte-level tokenizers: an incomplete but still valid UTF-8 tail (at most 3 bytes) waits; a byte
// sequence that can no longer become valid is U+FFFD at once, one per maximal subpart. The
// concatenation is exactly decode() of all ids.
// Byte-fallback tokenizers: a run of byte tokens gives its complete characters at once and an
// invalid byte as one U+FFFD; since decode() judges a run as a whole, the two differ for runs that
// are not valid UTF-8, and only for those.
class TokenStream {
 public:
  TokenStream(const Tokenizer& tokenizer, bool skip_special);
  TokenStream(TokenStream&& other) noexcept;
  TokenStream& operator=(TokenStream&& other) noexcept;
  TokenStream(const TokenStream&) = delete;
  TokenStream& operator=(const TokenStream&) = delete;
  ~TokenStream();

  [[nodiscard]] std::string push(std::int32_t id);
  [[nodiscard]] std::string flush();

 private:
  std::unique_ptr<tokenizer_detail::StreamRule> rule_;
};

}  // namespace moe::model
