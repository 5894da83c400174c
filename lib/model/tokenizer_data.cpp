#include "lib/model/tokenizer_data.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace moe::model::tokenizer_detail {
namespace {

using json::Json;

constexpr std::int64_t kMaxAddedId = (std::int64_t{1} << 24) - 1;
constexpr std::size_t kMaxAddedTokenBytes = 4096;
constexpr std::size_t kMaxHolesNamed = 5;

AddedToken parse_added_token(const JsonFields& fields) {
  AddedToken token;
  token.content = fields.text("content");
  const auto named = fields.find("id");
  if (named == nullptr || !named->is_number_integer()) {
    refuse(fields.where(), fmt::format("added token {} has no integer id", quote(token.content)));
  }
  token.id = static_cast<std::int32_t>(fields.count("id", kMaxAddedId));
  if (token.content.size() > kMaxAddedTokenBytes) {
    refuse(fields.where(),
           fmt::format("added token {} has {} bytes, more than {}", quote(token.content),
                       token.content.size(), kMaxAddedTokenBytes));
  }
  token.single_word = fields.flag("single_word", false);
  token.lstrip = fields.flag("lstrip", false);
  token.rstrip = fields.flag("rstrip", false);
  token.special = fields.flag("special", false);
  token.normalized = fields.flag("normalized", !token.special);
  return token;
}

// Reads "added_tokens" beside the vocabulary and checks that both agree on who has which id.
class AddedTokenReader {
 public:
  explicit AddedTokenReader(TokenizerData& data) : data_(data) {
    const std::vector<std::string>& tokens = data.bpe.tokens();
    for (std::size_t i = 0; i < tokens.size(); ++i) owner_.emplace(data.bpe.ids()[i], tokens[i]);
  }

  void read(const JsonFields& root) {
    if (root.find("added_tokens") == nullptr) return;
    std::vector<AddedToken> tokens;
    std::size_t index = 0;
    for (const Json& node : require_array(root, "added_tokens")) {
      const JsonFields fields(node, element_where(root, "added_tokens", index++));
      AddedToken token = parse_added_token(fields);
      // The reference library passes over tokens without text.
      if (token.content.empty()) continue;
      settle_id(token, fields.where());
      normalize(token, fields.where());
      const auto [it, is_new] = position_.emplace(token.content, tokens.size());
      if (is_new) {
        tokens.push_back(std::move(token));
      } else {
        tokens[it->second] = std::move(token);
      }
    }
    data_.added = AddedTokens(std::move(tokens), root.where("added_tokens"));
  }

 private:
  void settle_id(AddedToken& token, const std::string& where) {
    const auto in_model = data_.bpe.find(token.content);
    if (in_model && *in_model != token.id) {
      data_.warnings.push_back(
          fmt::format("{}: added token {} has id {} here and {} in model.vocab; {} is used", where,
                      quote(token.content), token.id, *in_model, *in_model));
      token.id = *in_model;
    }
    const auto [it, is_new] = owner_.emplace(token.id, token.content);
    if (!is_new && it->second != token.content) {
      refuse(where, fmt::format("tokens {} and {} both have id {}", quote(it->second),
                                quote(token.content), token.id));
    }
    const auto [known, is_new_text] = id_of_.emplace(token.content, token.id);
    if (!is_new_text && known->second != token.id) {
      refuse(where, fmt::format("added token {} has ids {} and {}", quote(token.content),
                                known->second, token.id));
    }
  }

  void normalize(AddedToken& token, const std::string& where) {
    NormalizedText text{token.content, 0, max_growth(token.content.size())};
    MatchScratch scratch(token.content.size());
    if (token.normalized && data_.normalizer) data_.normalizer->apply(text, scratch);
    // The reference library then finds the token between any two characters.
    if (text.text.empty()) {
      refuse(where, fmt::format("the normalizer leaves nothing of added token {}; it needs "
                                "\"normalized\": false",
                                quote(token.content)));
    }
    token.normalized_content = std::move(text.text);
  }

  TokenizerData& data_;
  std::unordered_map<std::int32_t, std::string> owner_;  // id -> text
  std::unordered_map<std::string, std::int32_t> id_of_;  // of added tokens
  std::unordered_map<std::string, std::size_t> position_;
};

void collect_tokens(TokenizerData& data) {
  std::unordered_set<std::string_view> special;
  for (const AddedToken& token : data.added.tokens()) {
    if (token.special) special.insert(token.content);
  }
  std::int32_t max_id = -1;
  for (const std::int32_t id : data.bpe.ids()) max_id = std::max(max_id, id);
  for (const AddedToken& token : data.added.tokens()) max_id = std::max(max_id, token.id);
  data.index_of_id.assign(static_cast<std::size_t>(max_id) + 1, -1);

  const auto put = [&](std::int32_t id, Token token) {
    token.skipped = special.contains(token.decoded_from);
    std::int32_t& index = data.index_of_id[static_cast<std::size_t>(id)];
    if (index < 0) {
      index = static_cast<std::int32_t>(data.tokens.size());
      data.tokens.push_back(std::move(token));
    } else {
      data.tokens[static_cast<std::size_t>(index)] = std::move(token);
    }
  };
  for (std::size_t i = 0; i < data.bpe.tokens().size(); ++i) {
    const std::string& text = data.bpe.tokens()[i];
    put(data.bpe.ids()[i], {text, text, false, false});
  }
  for (const AddedToken& token : data.added.tokens()) {
    data.added_id_of.emplace(token.content, token.id);
    put(token.id, {token.content, token.normalized_content, token.special, false});
  }
}

void warn_of_holes(TokenizerData& data) {
  std::string named;
  std::size_t holes = 0;
  for (std::size_t id = 0; id < data.index_of_id.size(); ++id) {
    if (data.index_of_id[id] >= 0) continue;
    if (++holes <= kMaxHolesNamed) named += fmt::format("{}{}", holes == 1 ? "" : ", ", id);
  }
  if (holes == 0) return;
  if (holes > kMaxHolesNamed) named += fmt::format(" and {} more", holes - kMaxHolesNamed);
  data.warnings.push_back(
      fmt::format("{}: no token has id {}; such an id decodes to nothing", data.where, named));
}

// {"SpecialToken": {"id": "<s>"}} with the ids from field "special_tokens".
TemplatePart parse_special_token(const JsonFields& fields, const JsonFields& piece,
                                 const TokenizerData& data) {
  const JsonFields reference(piece.require("SpecialToken"), piece.where("SpecialToken"));
  const std::string name = reference.text("id");
  const JsonFields all(fields.require("special_tokens"), fields.where("special_tokens"));
  const Json* const entry = all.find(name.c_str());
  if (entry == nullptr) {
    refuse(reference.where(), fmt::format("{} is not in special_tokens", quote(name)));
  }
  const JsonFields token(*entry, all.where(name));
  TemplatePart part;
  for (const Json& id : require_array(token, "ids")) {
    const bool known = id.is_number_integer() && id.is_number_unsigned() &&
                       id.get<std::uint64_t>() < data.index_of_id.size() &&
                       data.find(id.get<std::int32_t>()) != nullptr;
    if (!known) {
      refuse(token.where(),
             fmt::format("{} has id {}, which no token has", quote(name), quote(id.dump())));
    }
    part.ids.push_back(id.get<std::int32_t>());
  }
  return part;
}

std::vector<TemplatePart> parse_template(const JsonFields& fields, const TokenizerData& data) {
  std::vector<TemplatePart> parts;
  std::size_t index = 0;
  for (const Json& node : require_array(fields, "single")) {
    const JsonFields piece(node, element_where(fields, "single", index++));
    if (piece.find("Sequence") != nullptr) {
      const JsonFields sequence(piece.require("Sequence"), piece.where("Sequence"));
      const std::string id = sequence.text("id");
      if (id != "A") {
        refuse(sequence.where(),
               fmt::format("sequence {} in a template for one text (known: A)", quote(id)));
      }
      parts.push_back({true, {}});
    } else if (piece.find("SpecialToken") != nullptr) {
      parts.push_back(parse_special_token(fields, piece, data));
    } else {
      refuse(piece.where(), "expected {\"Sequence\": ...} or {\"SpecialToken\": ...}");
    }
  }
  // An empty list would stand for "no template".
  if (parts.empty()) parts.push_back({false, {}});
  return parts;
}

void parse_post_processor(const JsonFields& fields, TokenizerData& data) {
  const std::string type = fields.text("type");
  if (type == "Sequence") {
    std::size_t index = 0;
    for (const Json& node : require_array(fields, "processors")) {
      parse_post_processor(JsonFields(node, element_where(fields, "processors", index++)), data);
    }
  } else if (type == "TemplateProcessing") {
    if (!data.post_processor.empty()) {
      refuse(fields.where(), "a second TemplateProcessing is not supported");
    }
    data.post_processor = parse_template(fields, data);
  } else if (type != "ByteLevel") {  // ByteLevel only trims offsets, which are not kept here
    refuse(fields.where(), fmt::format("post-processor {} is not known (known: "
                                       "TemplateProcessing, ByteLevel, Sequence)",
                                       quote(type)));
  }
}

void check_version(const JsonFields& root) {
  const auto version = root.optional_text("version");
  if (version && *version != "1.0") {
    refuse(root.where("version"), fmt::format("{} is not known (known: 1.0)", quote(*version)));
  }
}

void warn_of_fields(const Json& root, TokenizerData& data) {
  constexpr std::array<std::string_view, 9> kKnown = {"version",       "truncation",     "padding",
                                                      "added_tokens",  "normalizer",     "model",
                                                      "pre_tokenizer", "post_processor", "decoder"};
  for (const auto& item : root.items()) {
    if (std::find(kKnown.begin(), kKnown.end(), item.key()) == kKnown.end()) {
      data.warnings.push_back(
          fmt::format("{}: field {} is not known and not used", data.where, quote(item.key())));
    }
  }
  for (const char* const field : {"truncation", "padding"}) {
    const auto it = root.find(field);
    if (it != root.end() && !it->is_null()) {
      data.warnings.push_back(fmt::format("{}: {} is not applied", data.where, field));
    }
  }
}

}  // namespace

const Token* TokenizerData::find(std::int32_t id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= index_of_id.size()) return nullptr;
  const std::int32_t index = index_of_id[static_cast<std::size_t>(id)];
  return index < 0 ? nullptr : &tokens[static_cast<std::size_t>(index)];
}

std::shared_ptr<const TokenizerData> parse_tokenizer(const Json& root, const std::string& where) {
  const JsonFields fields(root, where);
  check_version(fields);
  const JsonFields model(fields.require("model"), fields.where("model"));
  BpeModel::check_type(model);
  PreTokenizerChain pre_tokenizer =
      parse_pre_tokenizer(fields.find("pre_tokenizer"), fields.where("pre_tokenizer"));
  auto data = std::make_shared<TokenizerData>(BpeModel::parse(
      JsonFields(fields.require("model"), fields.where("model")), pre_tokenizer.bytes_at_end));
  data->where = where;
  data->pre_tokenizer = std::move(pre_tokenizer);
  data->normalizer = parse_normalizer(fields.find("normalizer"), fields.where("normalizer"));
  data->decoder = parse_decoder(fields.find("decoder"), fields.where("decoder"));
  data->warnings = data->bpe.oddities();
  AddedTokenReader(*data).read(fields);
  collect_tokens(*data);
  if (const Json* const node = fields.find("post_processor")) {
    parse_post_processor(JsonFields(*node, fields.where("post_processor")), *data);
  }
  warn_of_holes(*data);
  warn_of_fields(root, *data);
  return data;
}

}  // namespace moe::model::tokenizer_detail
