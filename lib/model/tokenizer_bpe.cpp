#include "lib/model/tokenizer_bpe.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/model/tokenizer_bytes.hpp"
#include "lib/model/unicode_text.hpp"

namespace moe::model::tokenizer_detail {
namespace {

using json::Json;

// The largest vocabularies in use have some 260 thousand tokens; tables by id stay small below
// this.
constexpr std::int64_t kMaxId = (std::int64_t{1} << 24) - 1;
// Longer pieces rarely come twice.
constexpr std::size_t kMaxKnownBytes = 48;
// From here on looking for places that no merge crosses pays.
constexpr std::size_t kLongWord = 32;
constexpr std::size_t kMaxKnownPieces = std::size_t{1} << 16;

void refuse_options(const JsonFields& fields) {
  if (const Json* const dropout = fields.find("dropout")) {
    if (!dropout->is_number() || dropout->get<double>() != 0.0) {
      refuse(fields.where("dropout"),
             fmt::format("dropout {} makes encoding random; only null or 0 is supported",
                         quote(dropout->dump())));
    }
  }
  for (const char* const affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const auto text = fields.optional_text(affix);
    if (text && !text->empty()) {
      refuse(fields.where(affix), fmt::format("{} is not supported, only null", quote(*text)));
    }
  }
}

std::int32_t checked_id(const Json& id, std::string_view token, const std::string& where) {
  const bool ok = id.is_number_integer() &&
                  (id.is_number_unsigned() || id.get<std::int64_t>() >= 0) &&
                  id.get<std::uint64_t>() <= static_cast<std::uint64_t>(kMaxId);
  if (!ok) {
    refuse(where, fmt::format("token {} has id {}, expected an integer from 0 to {}", quote(token),
                              quote(id.dump()), kMaxId));
  }
  return id.get<std::int32_t>();
}

// "a b" or ["a", "b"].
std::pair<std::string, std::string> merge_parts(const Json& merge, const std::string& where) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  }
  if (merge.is_string()) {
    const auto& text = merge.get_ref<const std::string&>();
    const std::size_t space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos) {
      return {text.substr(0, space), text.substr(space + 1)};
    }
    refuse(where, fmt::format("merge {} has not two parts with one space between", quote(text)));
  }
  refuse(where, fmt::format("expected \"a b\" or [\"a\", \"b\"], found {}", quote(merge.dump())));
}

}  // namespace

void BpeModel::check_type(const JsonFields& fields) {
  // Files written before the field existed hold a BPE model without a type.
  const auto type = fields.optional_text("type");
  if (type && *type != "BPE") {
    refuse(fields.where(), fmt::format("model type {} is not known (known: BPE)", quote(*type)));
  }
}

BpeModel BpeModel::parse(const JsonFields& fields, bool byte_level) {
  check_type(fields);
  refuse_options(fields);
  BpeModel model;
  model.where_ = fields.where();
  model.unknown_token_ = fields.optional_text("unk_token");
  model.fuse_unknown_ = fields.flag("fuse_unk", false);
  model.byte_fallback_ = fields.flag("byte_fallback", false);
  model.ignore_merges_ = fields.flag("ignore_merges", false);
  model.parse_vocabulary(fields);
  model.parse_merges(fields);
  model.prepare_bytes(byte_level);
  return model;
}

void BpeModel::parse_vocabulary(const JsonFields& fields) {
  const Json& vocabulary = fields.require("vocab");
  const std::string where = fields.where("vocab");
  if (!vocabulary.is_object()) {
    refuse(where, fmt::format("expected an object, found {}", vocabulary.type_name()));
  }
  tokens_.reserve(vocabulary.size());
  ids_.reserve(vocabulary.size());
  id_of_.reserve(vocabulary.size());
  std::int32_t max_id = -1;
  for (const auto& item : vocabulary.items()) {
    const std::int32_t id = checked_id(item.value(), item.key(), where);
    max_id = std::max(max_id, id);
    tokens_.push_back(item.key());
    ids_.push_back(id);
  }
  std::vector<std::int32_t> owner(static_cast<std::size_t>(max_id) + 1, -1);
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    std::int32_t& first = owner[static_cast<std::size_t>(ids_[i])];
    if (first >= 0) {
      refuse(where, fmt::format("tokens {} and {} both have id {}",
                                quote(tokens_[static_cast<std::size_t>(first)]), quote(tokens_[i]),
                                ids_[i]));
    }
    first = static_cast<std::int32_t>(i);
    id_of_.emplace(tokens_[i], ids_[i]);
  }
  id_of_ascii_.fill(-1);
  for (std::size_t c = 0; c < id_of_ascii_.size(); ++c) {
    const char character = static_cast<char>(c);
    id_of_ascii_[c] = find({&character, 1}).value_or(-1);
  }
  for (std::size_t byte = 0; byte < 256; ++byte) {
    id_of_fallback_[byte] = find(fmt::format("<0x{:02X}>", byte)).value_or(-1);
  }
}

void BpeModel::parse_merges(const JsonFields& fields) {
  const Json& merges = require_array(fields, "merges");
  merges_ = MergeTable(merges.size());
  const bool strings = !merges.empty() && merges.front().is_string();
  std::vector<std::pair<std::int32_t, std::int32_t>> pairs;
  pairs.reserve(merges.size());
  std::int32_t rank = 0;
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const auto where = [&] { return element_where(fields, "merges", i); };
    if (merges[i].is_string() != strings) refuse(where(), "strings and pairs are mixed");
    if (strings && merges[i].get_ref<const std::string&>().starts_with("#version")) continue;
    const auto [left, right] = merge_parts(merges[i], where());
    const auto left_id = find(left);
    const auto right_id = find(right);
    const auto merged_id = find(left + right);
    if (!left_id || !right_id || !merged_id) {
      const std::string missing = !left_id ? left : !right_id ? right : left + right;
      refuse(where(), fmt::format("merge of {} and {}: {} is not in the vocabulary", quote(left),
                                  quote(right), quote(missing)));
    }
    merges_.set(*left_id, *right_id, {rank++, *merged_id});
    pairs.emplace_back(*left_id, *right_id);
  }
  prepare_joints(pairs);
}

void BpeModel::prepare_joints(const std::vector<std::pair<std::int32_t, std::int32_t>>& pairs) {
  std::unordered_map<std::int32_t, std::string_view> text_of;
  for (std::size_t i = 0; i < tokens_.size(); ++i) text_of.emplace(ids_[i], tokens_[i]);
  // Words begin as characters; only an unknown token or a byte token may begin as more than one. If
  // such a token takes part in merges, its characters do not tell what it joins.
  const auto begins_whole = [&](std::int32_t id) {
    return first_code_point(text_of[id]).length < text_of[id].size() &&
           (std::find(id_of_fallback_.begin(), id_of_fallback_.end(), id) !=
                id_of_fallback_.end() ||
            text_of[id] == unknown_token_);
  };
  joints_ = MergeTable(pairs.size());
  for (const auto& [left, right] : pairs) {
    if (text_of[left].empty() || text_of[right].empty()) return;
    if (begins_whole(left) || begins_whole(right)) return;
    const std::size_t last_length = last_code_point(text_of[left]).length;
    const auto last = find(text_of[left].substr(text_of[left].size() - last_length));
    const auto first = find(text_of[right].substr(0, first_code_point(text_of[right]).length));
    if (last && first) joints_.set(*last, *first, {0, 0});
  }
  has_joints_ = true;
}

void BpeModel::prepare_bytes(bool byte_level) {
  if (!byte_level) return;
  bool all_there = true;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    std::string character;
    append_code_point(character_of_byte(static_cast<std::uint8_t>(byte)), character);
    id_of_byte_[byte] = find(character).value_or(-1);
    all_there = all_there && id_of_byte_[byte] >= 0;
  }
  raw_bytes_ = all_there;
  translate_bytes_ = !all_there;
  if (!raw_bytes_ || !ignore_merges_) return;
  raw_tokens_.reserve(tokens_.size());
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    auto raw = from_byte_alphabet(tokens_[i]);
    if (!raw) continue;
    raw_tokens_.push_back(std::move(*raw));
    id_of_raw_.emplace(raw_tokens_.back(), ids_[i]);
  }
}

std::optional<std::int32_t> BpeModel::find(std::string_view token) const {
  const auto it = id_of_.find(token);
  if (it == id_of_.end()) return std::nullopt;
  return it->second;
}

std::vector<std::string> BpeModel::oddities() const {
  std::vector<std::string> out;
  if (translate_bytes_ && !unknown_token_) {
    out.push_back(fmt::format("{}: {} of 256 bytes have no token and are lost when encoding",
                              where_, std::count(id_of_byte_.begin(), id_of_byte_.end(), -1)));
  }
  return out;
}

std::int32_t BpeModel::unknown_id(std::string_view character) const {
  const auto id = find(*unknown_token_);
  if (!id) {
    refuse(where_, fmt::format("unk_token {} is needed for {} but is not in the vocabulary",
                               quote(*unknown_token_), quote(character)));
  }
  return *id;
}

bool BpeModel::append_byte_tokens(std::string_view character,
                                  std::vector<std::int32_t>& symbols) const {
  const auto id = [&](char byte) { return id_of_fallback_[static_cast<unsigned char>(byte)]; };
  if (std::any_of(character.begin(), character.end(), [&](char byte) { return id(byte) < 0; })) {
    return false;
  }
  for (const char byte : character) symbols.push_back(id(byte));
  return true;
}

void BpeModel::to_symbols(std::string_view piece, std::vector<std::int32_t>& symbols) const {
  symbols.clear();
  if (raw_bytes_) {
    for (const char byte : piece) symbols.push_back(id_of_byte_[static_cast<unsigned char>(byte)]);
    return;
  }
  // An unknown token waits until the next known character, as in the reference library: byte tokens
  // that come in between go before it.
  std::int32_t waiting = -1;
  while (!piece.empty()) {
    const auto lead = static_cast<unsigned char>(piece[0]);
    const std::string_view character = piece.substr(0, first_code_point(piece).length);
    piece.remove_prefix(character.size());
    const std::int32_t id = lead < 0x80 ? id_of_ascii_[lead] : find(character).value_or(-1);
    if (id >= 0) {
      if (waiting >= 0) symbols.push_back(waiting);
      waiting = -1;
      symbols.push_back(id);
    } else if (byte_fallback_ && append_byte_tokens(character, symbols)) {
      continue;
    } else if (unknown_token_) {
      if (waiting >= 0 && !fuse_unknown_) symbols.push_back(waiting);
      waiting = unknown_id(character);
    }
  }
  if (waiting >= 0) symbols.push_back(waiting);
}

void BpeModel::merge_long(std::vector<std::int32_t>& symbols,
                          std::vector<std::int32_t>& segment) const {
  std::size_t written = 0;
  std::size_t begin = 0;
  for (std::size_t i = 1; i <= symbols.size(); ++i) {
    if (i < symbols.size() && joints_.find(symbols[i - 1], symbols[i]).rank >= 0) continue;
    segment.assign(symbols.begin() + static_cast<std::ptrdiff_t>(begin),
                   symbols.begin() + static_cast<std::ptrdiff_t>(i));
    merge_symbols(segment, merges_);
    std::copy(segment.begin(), segment.end(),
              symbols.begin() + static_cast<std::ptrdiff_t>(written));
    written += segment.size();
    begin = i;
  }
  symbols.resize(written);
}

void BpeModel::encode(std::string_view piece, Scratch& scratch,
                      std::vector<std::int32_t>& out) const {
  const auto known =
      piece.size() <= kMaxKnownBytes ? scratch.known.find(piece) : scratch.known.end();
  if (known != scratch.known.end()) {
    const auto begin = scratch.pool.begin() + known->second.begin;
    out.insert(out.end(), begin, begin + known->second.count);
    return;
  }
  std::vector<std::int32_t>& symbols = scratch.symbols;
  const std::string translated = translate_bytes_ ? to_byte_alphabet(piece) : std::string();
  const std::string_view text = translate_bytes_ ? std::string_view(translated) : piece;
  const auto& whole = raw_bytes_ ? id_of_raw_ : id_of_;
  const auto it = ignore_merges_ ? whole.find(text) : whole.end();
  if (it != whole.end()) {
    symbols.assign(1, it->second);
  } else {
    to_symbols(text, symbols);
    if (has_joints_ && symbols.size() > kLongWord) {
      merge_long(symbols, scratch.segment);
    } else {
      merge_symbols(symbols, merges_);
    }
  }
  out.insert(out.end(), symbols.begin(), symbols.end());
  if (piece.size() <= kMaxKnownBytes && scratch.known.size() < kMaxKnownPieces) {
    scratch.known.emplace(piece, Scratch::Span{static_cast<std::uint32_t>(scratch.pool.size()),
                                               static_cast<std::uint32_t>(symbols.size())});
    scratch.pool.insert(scratch.pool.end(), symbols.begin(), symbols.end());
  }
}

}  // namespace moe::model::tokenizer_detail
