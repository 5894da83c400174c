#include "lib/model/tokenizer.hpp"

#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/base/file_map.hpp"
#include "lib/base/text.hpp"
#include "lib/model/tokenizer_data.hpp"
#include "lib/model/utf8_stream.hpp"

namespace moe::model {

using tokenizer_detail::ByteRuns;
using tokenizer_detail::DecodeRun;
using tokenizer_detail::MatchScratch;
using tokenizer_detail::Piece;
using tokenizer_detail::PieceList;
using tokenizer_detail::quote;
using tokenizer_detail::refuse;
using tokenizer_detail::TemplatePart;
using tokenizer_detail::Token;

namespace {

constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30;

}  // namespace

Tokenizer::Tokenizer(std::shared_ptr<const tokenizer_detail::TokenizerData> data)
    : data_(std::move(data)) {}

Tokenizer Tokenizer::load(const std::filesystem::path& tokenizer_json) {
  const std::string where = tokenizer_json.string();
  return Tokenizer(tokenizer_detail::parse_tokenizer(json::parse_file(where), where));
}

Tokenizer Tokenizer::parse(std::string_view json, const std::string& where) {
  return Tokenizer(tokenizer_detail::parse_tokenizer(json::parse(json, where), where));
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  const auto& data = *data_;
  if (text.size() > kMaxTextBytes) {
    refuse("text", fmt::format("{} bytes are more than {}", text.size(), kMaxTextBytes));
  }
  if (const std::size_t at = first_invalid_utf8(text); at != text.size()) {
    refuse("text", fmt::format("not UTF-8 at byte {}", at));
  }
  MatchScratch scratch(text.size());
  PieceList list = data.added.split(text, data.normalizer.get(), scratch);
  list.where = data.where;
  for (const auto& step : data.pre_tokenizer.steps) step->apply(list, scratch);

  std::vector<std::int32_t> ids;
  ids.reserve(text.size() / 3 + 8);
  tokenizer_detail::BpeModel::Scratch words;
  for (const Piece& piece : list.pieces) {
    if (piece.token >= 0) {
      ids.push_back(piece.token);
    } else {
      data.bpe.encode(list.view(piece), words, ids);
    }
  }
  if (data.post_processor.empty()) return ids;
  std::vector<std::int32_t> out;
  out.reserve(ids.size() + 8);
  for (const TemplatePart& part : data.post_processor) {
    if (part.is_text) {
      out.insert(out.end(), ids.begin(), ids.end());
    } else if (add_special_tokens) {
      out.insert(out.end(), part.ids.begin(), part.ids.end());
    }
  }
  return out;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  DecodeRun run(data_->decoder, ByteRuns::kWhole);
  for (const std::int32_t id : ids) {
    const Token* const token = data_->find(id);
    if (token == nullptr || (skip_special && token->skipped)) continue;
    run.push(token->decoded_from);
  }
  run.finish();
  return run.take();
}

std::int32_t Tokenizer::max_id() const {
  return static_cast<std::int32_t>(data_->index_of_id.size()) - 1;
}

std::int64_t Tokenizer::num_tokens() const {
  return static_cast<std::int64_t>(data_->tokens.size());
}

std::optional<std::int32_t> Tokenizer::token_to_id(std::string_view token) const {
  const auto it = data_->added_id_of.find(std::string(token));
  if (it != data_->added_id_of.end()) return it->second;
  return data_->bpe.find(token);
}

std::optional<std::string> Tokenizer::id_to_token(std::int32_t id) const {
  const Token* const token = data_->find(id);
  if (token == nullptr) return std::nullopt;
  return token->text;
}

bool Tokenizer::is_special(std::int32_t id) const {
  const Token* const token = data_->find(id);
  return token != nullptr && token->special;
}

const std::vector<std::string>& Tokenizer::warnings() const {
  return data_->warnings;
}

const std::string& Tokenizer::where() const {
  return data_->where;
}

void check_against_model(const Tokenizer& tokenizer, std::int64_t embedding_rows,
                         const std::string& model_where) {
  for (std::int64_t id = embedding_rows; id <= tokenizer.max_id(); ++id) {
    const auto token = tokenizer.id_to_token(static_cast<std::int32_t>(id));
    if (!token) continue;
    refuse(tokenizer.where(),
           fmt::format("token {} has id {}, but the model has only {} embedding rows ({}); the "
                       "tokenizer belongs to another model",
                       quote(*token), id, embedding_rows, model_where));
  }
}

namespace tokenizer_detail {

class StreamRule {
 public:
  StreamRule(std::shared_ptr<const TokenizerData> data, bool skip_special)
      : data_(std::move(data)), skip_special_(skip_special) {
    restart();
  }

  std::string push(std::int32_t id) {
    const Token* const token = data_->find(id);
    if (token == nullptr || (skip_special_ && token->skipped)) return {};
    run_->push(token->decoded_from);
    return run_->take();
  }

  std::string flush() {
    run_->finish();
    std::string text = run_->take();
    restart();
    return text;
  }

 private:
  void restart() { run_ = std::make_unique<DecodeRun>(data_->decoder, ByteRuns::kStream); }

  std::shared_ptr<const TokenizerData> data_;
  bool skip_special_;
  std::unique_ptr<DecodeRun> run_;
};

}  // namespace tokenizer_detail

TokenStream::TokenStream(const Tokenizer& tokenizer, bool skip_special)
    : rule_(std::make_unique<tokenizer_detail::StreamRule>(tokenizer.data_, skip_special)) {}
TokenStream::TokenStream(TokenStream&& other) noexcept = default;
TokenStream& TokenStream::operator=(TokenStream&& other) noexcept = default;
TokenStream::~TokenStream() = default;

std::string TokenStream::push(std::int32_t id) {
  return rule_->push(id);
}

std::string TokenStream::flush() {
  return rule_->flush();
}

}  // namespace moe::model
