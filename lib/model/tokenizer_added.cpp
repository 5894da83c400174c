#include "lib/model/tokenizer_added.hpp"

#include <algorithm>
#include <utility>

#include "lib/base/check.hpp"
#include "lib/model/unicode_text.hpp"

namespace moe::model::tokenizer_detail {
namespace {

// Start of the white space at the end of `text`.
std::size_t trailing_space_begin(std::string_view text) {
  while (!text.empty()) {
    const CodePoint c = last_code_point(text);
    if (!is_white_space(c.value)) break;
    text.remove_suffix(c.length);
  }
  return text.size();
}

std::size_t leading_space_length(std::string_view text) {
  std::size_t length = 0;
  while (length < text.size()) {
    const CodePoint c = first_code_point(text.substr(length));
    if (!is_white_space(c.value)) break;
    length += c.length;
  }
  return length;
}

bool touches_word(std::string_view text, std::size_t begin, std::size_t end) {
  return (begin > 0 && is_word(last_code_point(text.substr(0, begin)).value)) ||
         (end < text.size() && is_word(first_code_point(text.substr(end)).value));
}

}  // namespace

void StringSetMatcher::add(std::string_view text, std::int32_t value) {
  if (nodes_.empty()) {
    nodes_.emplace_back();
    children_.assign(256, -1);
  }
  std::int32_t node = 0;
  for (const char byte : text) {
    std::int32_t next = child(node, byte);
    if (next < 0) {
      next = static_cast<std::int32_t>(nodes_.size());
      Node fresh;
      fresh.byte = byte;
      if (node == 0) {
        children_[static_cast<unsigned char>(byte)] = next;
      } else {
        fresh.next_sibling = nodes_[static_cast<std::size_t>(node)].first_child;
        nodes_[static_cast<std::size_t>(node)].first_child = next;
      }
      nodes_.push_back(fresh);
    }
    node = next;
  }
  nodes_[static_cast<std::size_t>(node)].value = value;
}

std::int32_t StringSetMatcher::child(std::int32_t node, char byte) const {
  if (node == 0) return children_[static_cast<unsigned char>(byte)];
  std::int32_t at = nodes_[static_cast<std::size_t>(node)].first_child;
  while (at >= 0 && nodes_[static_cast<std::size_t>(at)].byte != byte) {
    at = nodes_[static_cast<std::size_t>(at)].next_sibling;
  }
  return at;
}

StringSetMatcher::Match StringSetMatcher::find(std::string_view text, std::size_t from,
                                               MatchScratch& scratch,
                                               const std::string& where) const {
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    std::int32_t node = child(0, text[begin]);
    if (node < 0) continue;
    scratch.spend(where);
    Match longest;
    std::size_t end = begin + 1;
    while (node >= 0) {
      const std::int32_t value = nodes_[static_cast<std::size_t>(node)].value;
      if (value >= 0) longest = {begin, end, value};
      if (end == text.size()) break;
      node = child(node, text[end++]);
    }
    if (longest.value >= 0) return longest;
  }
  return {};
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, std::string where)
    : tokens_(std::move(tokens)), where_(std::move(where)) {
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const AddedToken& token = tokens_[i];
    const std::string& text = token.normalized ? token.normalized_content : token.content;
    MOE_CHECK(!text.empty());
    (token.normalized ? normalized_ : raw_).add(text, static_cast<std::int32_t>(i));
  }
}

void AddedTokens::find(std::string_view text, const StringSetMatcher& matcher,
                       MatchScratch& scratch, std::vector<Found>& out) const {
  std::size_t done = 0;  // end of what is in `out`, white space taken by rstrip included
  std::size_t from = 0;  // end of the last match itself: the next one may begin in such white space
  std::size_t space_begin = 1;  // the run of white space that rstrip saw last; none yet
  std::size_t space_end = 0;
  while (!matcher.empty()) {
    const StringSetMatcher::Match match = matcher.find(text, from, scratch, where_);
    if (match.value < 0) break;
    from = match.end;
    const AddedToken& token = tokens_[static_cast<std::size_t>(match.value)];
    std::size_t begin = match.begin;
    std::size_t end = match.end;
    if (token.single_word && touches_word(text, begin, end)) continue;
    if (token.lstrip) {
      begin = begin <= done ? done : done + trailing_space_begin(text.substr(done, begin - done));
    }
    if (token.rstrip) {
      // One look at a run of white space is enough, however many matches lie in it.
      if (end < space_begin || end > space_end) {
        space_begin = end;
        space_end = end + leading_space_length(text.substr(end));
      }
      end = space_end;
    }
    if (done < begin) out.push_back({done, begin, -1});
    // A match within white space that rstrip took already has nothing left, and counts for nothing.
    if (begin < end) out.push_back({begin, end, token.id});
    done = end;
  }
  if (done < text.size()) out.push_back({done, text.size(), -1});
}

PieceList AddedTokens::split(std::string_view text, const Normalizer* normalizer,
                             MatchScratch& scratch) const {
  PieceList list;
  list.max_bytes = max_growth(text.size());
  std::vector<Found> outer;
  std::vector<Found> inner;
  find(text, raw_, scratch, outer);
  for (const Found& part : outer) {
    if (part.token >= 0) {
      list.pieces.push_back({list.text.size(), list.text.size(), part.token, 0});
      continue;
    }
    const std::string_view raw = text.substr(part.begin, part.end - part.begin);
    NormalizedText normal{std::string(raw), part.begin == 0 ? first_code_point(raw).length : 0,
                          list.max_bytes};
    if (normalizer != nullptr) normalizer->apply(normal, scratch);
    inner.clear();
    find(normal.text, normalized_, scratch, inner);
    const std::size_t base = list.text.size();
    list.text += normal.text;
    for (const Found& piece : inner) {
      list.pieces.push_back({base + piece.begin, base + piece.end, piece.token,
                             normal.start_bytes - std::min(normal.start_bytes, piece.begin)});
    }
  }
  return list;
}

}  // namespace moe::model::tokenizer_detail
