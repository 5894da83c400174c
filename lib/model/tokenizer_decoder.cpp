#include "lib/model/tokenizer_decoder.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/base/text.hpp"
#include "lib/model/tokenizer_bytes.hpp"
#include "lib/model/unicode_text.hpp"
#include "lib/model/utf8_stream.hpp"

namespace moe::model::tokenizer_detail {
namespace {

using StagePtr = std::unique_ptr<DecodeStage>;
using StepPtr = std::unique_ptr<const DecoderStep>;

// A chain of replacements can grow a token without end.
constexpr std::size_t kMaxTokenBytes = std::size_t{16} << 20;

// Collects the portions of a token for stages that must see it whole.
class WholeTokenStage : public DecodeStage {
 public:
  explicit WholeTokenStage(bool fused) : fused_(fused) {}

  void push(std::string_view token, bool continues) final {
    if (!fused_) return take(token);
    if (!continues) end_token();
    open_ = true;
    held_ += token;
  }
  void finish() final {
    end_token();
    end();
    next_->finish();
  }

 protected:
  virtual void take(std::string_view token) = 0;
  // End of the sequence, before the next stage ends.
  virtual void end() {}

 private:
  void end_token() {
    if (open_) take(std::exchange(held_, {}));
    open_ = false;
  }

  bool fused_;
  bool open_ = false;
  std::string held_;
};

class ReplaceStage final : public WholeTokenStage {
 public:
  ReplaceStage(bool fused, const Pattern& pattern, const std::string& content)
      : WholeTokenStage(fused), pattern_(pattern), content_(content), scratch_(0) {}

 private:
  void take(std::string_view token) override {
    scratch_.restart(token.size());
    const std::string text = pattern_.replace(token, content_, scratch_);
    if (text.size() > kMaxTokenBytes) refuse(pattern_.where(), "a token grows without end");
    next_->push(text, false);
  }

  const Pattern& pattern_;
  const std::string& content_;
  MatchScratch scratch_;
};

class ByteLevelStage final : public WholeTokenStage {
 public:
  explicit ByteLevelStage(bool fused) : WholeTokenStage(fused) {}

 private:
  void take(std::string_view token) override {
    const auto bytes = from_byte_alphabet(token);
    std::string text;
    stream_.push(bytes ? std::string_view(*bytes) : token, text);
    pass_on(text);
  }
  void end() override {
    std::string text;
    stream_.flush(text);
    pass_on(text);
  }
  void pass_on(const std::string& text) {
    if (!text.empty()) next_->push(text, std::exchange(begun_, true));
  }

  Utf8Stream stream_;
  bool begun_ = false;
};

// "<0xE5>" -> 0xE5
std::optional<char> fallback_byte(std::string_view token) {
  const auto digit = [](char c) -> int {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  const int high = digit(token[3]);
  const int low = digit(token[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<char>(static_cast<unsigned char>(high * 16 + low));
}

class ByteFallbackStage final : public WholeTokenStage {
 public:
  ByteFallbackStage(bool fused, ByteRuns runs) : WholeTokenStage(fused), runs_(runs) {}

 private:
  void take(std::string_view token) override {
    if (const auto byte = fallback_byte(token)) {
      run_ += *byte;
      if (runs_ == ByteRuns::kStream) pass_on_decided();
      return;
    }
    end_run();
    next_->push(token, false);
  }
  void end() override { end_run(); }

  void end_run() {
    if (!run_.empty()) {
      if (is_utf8(run_)) {
        next_->push(run_, begun_);
      } else {
        replace(run_.size());
      }
    }
    run_.clear();
    begun_ = false;
  }

  void replace(std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) next_->push(kReplacementCharacter, false);
  }

  void pass_on_decided() {
    while (!run_.empty()) {
      const Utf8Prefix prefix = utf8_prefix(run_);
      if (prefix.may_continue) return;
      if (prefix.complete) {
        next_->push(std::string_view(run_).substr(0, prefix.length), std::exchange(begun_, true));
      } else {
        replace(prefix.length);
        begun_ = false;
      }
      run_.erase(0, prefix.length);
    }
  }

  ByteRuns runs_;
  std::string run_;     // bytes that are not decided yet
  bool begun_ = false;  // characters of this run went out already
};

class FuseStage final : public DecodeStage {
 public:
  void push(std::string_view token, bool /*continues*/) override {
    next_->push(token, std::exchange(begun_, true));
  }
  void finish() override { next_->finish(); }

 private:
  bool begun_ = false;
};

// Takes up to `start` of a character from the front of a token and up to `stop` from its end.
class StripStage final : public DecodeStage {
 public:
  StripStage(std::string_view character, std::int64_t start, std::int64_t stop)
      : character_(character), start_(start), stop_(stop) {}

  void push(std::string_view token, bool continues) override {
    if (!continues) {
      end_token();
      open_ = true;
      at_front_ = true;
      front_left_ = start_;
    }
    while (at_front_ && front_left_ > 0 && token.starts_with(character_)) {
      token.remove_prefix(character_.size());
      --front_left_;
    }
    if (!token.empty()) at_front_ = false;
    std::int64_t tail = 0;
    while (stop_ > 0 && token.ends_with(character_)) {
      token.remove_suffix(character_.size());
      ++tail;
    }
    if (!token.empty()) {
      release(held_);
      emit(token);
    }
    held_ += tail;
    if (held_ > stop_) release(held_ - stop_);
  }

  void finish() override {
    end_token();
    next_->finish();
  }

 private:
  void emit(std::string_view text) { next_->push(text, std::exchange(begun_, true)); }

  // Characters held back at the end of a token turn out to be inside of it.
  void release(std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) emit(character_);
    held_ -= count;
  }

  void end_token() {
    if (open_ && !begun_) emit({});
    held_ = 0;
    open_ = false;
    begun_ = false;
  }

  std::string_view character_;
  std::int64_t start_;
  std::int64_t stop_;
  bool at_front_ = false;
  bool open_ = false;   // within a token
  bool begun_ = false;  // a portion of it went out already
  std::int64_t front_left_ = 0;
  std::int64_t held_ = 0;  // characters at the end that may have to go
};

class MetaspaceStage final : public DecodeStage {
 public:
  MetaspaceStage(std::string_view replacement, bool drop_in_first)
      : replacement_(replacement), drop_in_first_(drop_in_first) {}

  void push(std::string_view token, bool continues) override {
    if (!continues) ++tokens_;
    const bool drop = drop_in_first_ && tokens_ <= 1;
    std::string text;
    text.reserve(token.size());
    while (!token.empty()) {
      if (token.starts_with(replacement_)) {
        if (!drop) text += ' ';
        token.remove_prefix(replacement_.size());
      } else {
        const std::size_t length = first_code_point(token).length;
        text += token.substr(0, length);
        token.remove_prefix(length);
      }
    }
    next_->push(text, continues);
  }
  void finish() override { next_->finish(); }

 private:
  std::string_view replacement_;
  bool drop_in_first_;
  std::int64_t tokens_ = 0;
};

// The end of the chain.
class SinkStage final : public DecodeStage {
 public:
  SinkStage(std::string& text, bool spaces) : text_(text), spaces_(spaces) {}
  void push(std::string_view token, bool continues) override {
    if (spaces_ && !continues && std::exchange(begun_, true)) text_ += ' ';
    text_ += token;
  }
  void finish() override {}

 private:
  std::string& text_;
  bool spaces_;
  bool begun_ = false;
};

class ReplaceStep final : public DecoderStep {
 public:
  ReplaceStep(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  StagePtr start(ByteRuns /*runs*/, bool fused) const override {
    return std::make_unique<ReplaceStage>(fused, pattern_, content_);
  }
  bool fuses(ByteRuns /*runs*/) const override { return false; }

 private:
  Pattern pattern_;
  std::string content_;
};

class ByteLevelStep final : public DecoderStep {
 public:
  StagePtr start(ByteRuns /*runs*/, bool fused) const override {
    return std::make_unique<ByteLevelStage>(fused);
  }
  bool fuses(ByteRuns /*runs*/) const override { return true; }
};

class ByteFallbackStep final : public DecoderStep {
 public:
  StagePtr start(ByteRuns runs, bool fused) const override {
    return std::make_unique<ByteFallbackStage>(fused, runs);
  }
  bool fuses(ByteRuns runs) const override { return runs == ByteRuns::kStream; }
};

class FuseStep final : public DecoderStep {
 public:
  StagePtr start(ByteRuns /*runs*/, bool /*fused*/) const override {
    return std::make_unique<FuseStage>();
  }
  bool fuses(ByteRuns /*runs*/) const override { return true; }
};

class StripStep final : public DecoderStep {
 public:
  StripStep(std::string character, std::int64_t start, std::int64_t stop)
      : character_(std::move(character)), start_(start), stop_(stop) {}
  StagePtr start(ByteRuns /*runs*/, bool /*fused*/) const override {
    return std::make_unique<StripStage>(character_, start_, stop_);
  }
  bool fuses(ByteRuns /*runs*/) const override { return true; }

 private:
  std::string character_;
  std::int64_t start_;
  std::int64_t stop_;
};

class MetaspaceDecoder final : public DecoderStep {
 public:
  MetaspaceDecoder(std::string replacement, bool drop_in_first)
      : replacement_(std::move(replacement)), drop_in_first_(drop_in_first) {}
  StagePtr start(ByteRuns /*runs*/, bool /*fused*/) const override {
    return std::make_unique<MetaspaceStage>(replacement_, drop_in_first_);
  }
  bool fuses(ByteRuns /*runs*/) const override { return false; }

 private:
  std::string replacement_;
  bool drop_in_first_;
};

StepPtr parse_strip(const JsonFields& fields) {
  constexpr std::int64_t kMaxStrip = 1 << 20;
  return std::make_unique<StripStep>(fields.character("content"), fields.count("start", kMaxStrip),
                                     fields.count("stop", kMaxStrip));
}

StepPtr parse_metaspace(const JsonFields& fields) {
  const bool prefix = fields.flag("add_prefix_space", true);
  const std::string scheme = fields.optional_text("prepend_scheme").value_or("always");
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    refuse(fields.where("prepend_scheme"),
           fmt::format("{} is not known (known: first, never, always)", quote(scheme)));
  }
  return std::make_unique<MetaspaceDecoder>(fields.character("replacement"),
                                            prefix && scheme != "never");
}

void parse_component(const JsonFields& fields, std::vector<StepPtr>& steps) {
  const std::string type = fields.text("type");
  if (type == "Sequence") {
    std::size_t index = 0;
    for (const json::Json& node : require_array(fields, "decoders")) {
      parse_component(JsonFields(node, element_where(fields, "decoders", index++)), steps);
    }
  } else if (type == "ByteLevel") {
    steps.push_back(std::make_unique<ByteLevelStep>());
  } else if (type == "Replace") {
    steps.push_back(std::make_unique<ReplaceStep>(Pattern::parse(fields), fields.text("content")));
  } else if (type == "ByteFallback") {
    steps.push_back(std::make_unique<ByteFallbackStep>());
  } else if (type == "Fuse") {
    steps.push_back(std::make_unique<FuseStep>());
  } else if (type == "Strip") {
    steps.push_back(parse_strip(fields));
  } else if (type == "Metaspace") {
    steps.push_back(parse_metaspace(fields));
  } else {
    refuse(fields.where(), fmt::format("decoder {} is not known (known: ByteLevel, Replace, "
                                       "ByteFallback, Fuse, Strip, Metaspace, Sequence)",
                                       quote(type)));
  }
}

}  // namespace

DecoderChain parse_decoder(const json::Json* node, const std::string& where) {
  DecoderChain chain;
  if (node == nullptr) return chain;
  chain.is_null = false;
  parse_component(JsonFields(*node, where), chain.steps);
  return chain;
}

DecodeRun::DecodeRun(const DecoderChain& chain, ByteRuns runs) {
  bool fused = false;
  for (const StepPtr& step : chain.steps) {
    stages_.push_back(step->start(runs, fused));
    fused = fused || step->fuses(runs);
  }
  stages_.push_back(std::make_unique<SinkStage>(text_, chain.is_null));
  for (std::size_t i = 0; i + 1 < stages_.size(); ++i) stages_[i]->set_next(stages_[i + 1].get());
}

DecodeRun::~DecodeRun() = default;

}  // namespace moe::model::tokenizer_detail
