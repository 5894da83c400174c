#pragma once

// The "decoder" of tokenizer.json: token strings -> text, one token at a time.

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/model/tokenizer_json.hpp"
#include "lib/model/tokenizer_pattern.hpp"

namespace moe::model::tokenizer_detail {

class DecodeStage;

// How a stream ends a run of byte tokens that is not valid UTF-8.
enum class ByteRuns {
  kWhole,   // as decode() does: one U+FFFD per byte of the whole run; the run is held back
  kStream,  // characters go out as they become complete, an invalid byte becomes U+FFFD
};

// One step of the description; makes the state of one sequence. Immutable.
class DecoderStep {
 public:
  virtual ~DecoderStep() = default;
  // `fused`: tokens come in several portions, as behind a Fuse step.
  [[nodiscard]] virtual std::unique_ptr<DecodeStage> start(ByteRuns runs, bool fused) const = 0;
  // Whether tokens leave in several portions when they arrive in one.
  [[nodiscard]] virtual bool fuses(ByteRuns runs) const = 0;
};

// The state of one step within one sequence. Passes on strings to the next stage.
class DecodeStage {
 public:
  virtual ~DecodeStage() = default;
  // `continues`: the string belongs to the same token as the one before (behind a Fuse step).
  virtual void push(std::string_view token, bool continues) = 0;
  // End of the sequence: passes on what waits, then finishes the next stage.
  virtual void finish() = 0;

  void set_next(DecodeStage* next) { next_ = next; }

 protected:
  DecodeStage* next_ = nullptr;
};

// The steps in order; without any, the tokens with a space between them.
struct DecoderChain {
  std::vector<std::unique_ptr<const DecoderStep>> steps;
  bool is_null = true;
};

[[nodiscard]] DecoderChain parse_decoder(const json::Json* node, const std::string& where);

// The state of a whole chain; text goes to a string.
class DecodeRun {
 public:
  DecodeRun(const DecoderChain& chain, ByteRuns runs);
  ~DecodeRun();
  DecodeRun(const DecodeRun&) = delete;
  DecodeRun& operator=(const DecodeRun&) = delete;

  void push(std::string_view token) { stages_.front()->push(token, false); }
  // Ends the sequence. The run must not be used any more.
  void finish() { stages_.front()->finish(); }
  // What has come out since the last call.
  [[nodiscard]] std::string take() { return std::exchange(text_, {}); }

 private:
  std::string text_;
  std::vector<std::unique_ptr<DecodeStage>> stages_;
};

}  // namespace moe::model::tokenizer_detail
