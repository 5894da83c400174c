#include "lib/model/module_pattern.hpp"

#include <bitset>
#include <cstdint>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/base/text.hpp"

namespace moe::model {
namespace {

constexpr std::size_t kMaxModulePatternBytes = 512;
constexpr int kMaxDepth = 32;
constexpr std::string_view kWrapperPrefix = "language_model.";

using ByteSet = std::bitset<256>;

std::size_t index_of(char c) {
  return static_cast<unsigned char>(c);
}

ByteSet escape_class(char c) {
  ByteSet set;
  const auto range = [&](char low, char high) {
    for (std::size_t byte = index_of(low); byte <= index_of(high); ++byte) set.set(byte);
  };
  if (c == 'd' || c == 'w') range('0', '9');
  if (c == 'w') {
    range('a', 'z');
    range('A', 'Z');
    set.set(index_of('_'));
  }
  if (c == 's') {
    for (const char space : {' ', '\t', '\n', '\r', '\f', '\v'}) set.set(index_of(space));
  }
  return set;
}

}  // namespace

// Instructions of a Thompson automaton, run for all states at once.
struct Expression::Program {
  enum class Op : std::uint8_t { kBytes, kSplit, kJump, kEnd, kBegin, kMatch };
  struct Instruction {
    Op op = Op::kMatch;
    std::size_t first = 0;   // kSplit, kJump: target; kBytes: index into sets
    std::size_t second = 0;  // kSplit
  };
  std::vector<Instruction> code;
  std::vector<ByteSet> sets;
};

namespace {

// Recursive descent over the pattern; emits code for one sub-expression after another.
template <typename P>
class Compiler {
 public:
  Compiler(std::string_view pattern, const std::string& where, P& program)
      : pattern_(pattern), where_(where), program_(program) {}

  void run() {
    alternatives(0);
    if (at_ < pattern_.size()) fail("a ) without its (");
    emit(P::Op::kMatch);
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: pattern \"re:{}\": {}", where_, printable(pattern_), what));
  }

  std::size_t emit(typename P::Op op, std::size_t first = 0, std::size_t second = 0) {
    program_.code.push_back({op, first, second});
    return program_.code.size() - 1;
  }

  // a|b|c: split to each in turn, each jumps to the end.
  void alternatives(int depth) {
    if (depth > kMaxDepth) fail("nested too deeply");
    std::vector<std::size_t> jumps;
    for (;;) {
      const std::size_t begin = program_.code.size();
      sequence(depth);
      if (at_ >= pattern_.size() || pattern_[at_] != '|') break;
      ++at_;
      // A split has to stand before the branch that was just emitted.
      insert(begin, P::Op::kSplit);
      program_.code[begin].first = begin + 1;
      jumps.push_back(emit(P::Op::kJump));
      program_.code[begin].second = program_.code.size();
    }
    for (const std::size_t jump : jumps) program_.code[jump].first = program_.code.size();
  }

  void sequence(int depth) {
    while (at_ < pattern_.size() && pattern_[at_] != '|' && pattern_[at_] != ')') {
      const std::size_t begin = program_.code.size();
      atom(depth);
      if (at_ < pattern_.size()) repeat(begin);
    }
  }

  void repeat(std::size_t begin) {
    const char c = pattern_[at_];
    if (c != '*' && c != '+' && c != '?') {
      if (c == '{') fail("counted repeats are not supported");
      return;
    }
    ++at_;
    if (at_ < pattern_.size() && pattern_[at_] == '?') ++at_;  // lazy: the same language
    if (c == '+') {
      const std::size_t split = emit(P::Op::kSplit, begin);
      program_.code[split].second = split + 1;
      return;
    }
    insert(begin, P::Op::kSplit);
    program_.code[begin].first = begin + 1;
    if (c == '*') emit(P::Op::kJump, begin);
    program_.code[begin].second = program_.code.size();
  }

  // Makes room for one instruction; targets behind it move along. What stands before it and leads
  // here leads to the new instruction.
  void insert(std::size_t at, typename P::Op op) {
    for (std::size_t from = 0; from < program_.code.size(); ++from) {
      auto& instruction = program_.code[from];
      const auto moved = [&](std::size_t target) {
        return target > at || (target == at && from >= at) ? target + 1 : target;
      };
      if (instruction.op == P::Op::kSplit || instruction.op == P::Op::kJump) {
        instruction.first = moved(instruction.first);
        if (instruction.op == P::Op::kSplit) instruction.second = moved(instruction.second);
      }
    }
    program_.code.insert(program_.code.begin() + static_cast<std::ptrdiff_t>(at), {op, 0, 0});
  }

  void bytes(const ByteSet& set) {
    program_.sets.push_back(set);
    emit(P::Op::kBytes, program_.sets.size() - 1);
  }

  void literal(char c) {
    ByteSet set;
    set.set(index_of(c));
    bytes(set);
  }

  void atom(int depth) {
    const char c = pattern_[at_++];
    if (c == '.') {
      bytes(ByteSet().set());
    } else if (c == '^') {
      emit(P::Op::kBegin);
    } else if (c == '$') {
      emit(P::Op::kEnd);
    } else if (c == '(') {
      if (pattern_.substr(at_).starts_with("?:")) at_ += 2;
      if (at_ < pattern_.size() && pattern_[at_] == '?') fail("look-around is not supported");
      alternatives(depth + 1);
      if (at_ >= pattern_.size()) fail("a ( without its )");
      ++at_;
    } else if (c == '[') {
      bytes(byte_class());
    } else if (c == '\\') {
      if (at_ >= pattern_.size()) fail("ends in a backslash");
      const char escaped = pattern_[at_++];
      const ByteSet set = escape_class(escaped);
      if (set.any()) {
        bytes(set);
      } else if ((escaped >= 'a' && escaped <= 'z') || (escaped >= 'A' && escaped <= 'Z') ||
                 (escaped >= '0' && escaped <= '9')) {
        fail(fmt::format("\\{} is not supported", printable(std::string(1, escaped))));
      } else {
        literal(escaped);
      }
    } else if (c == '*' || c == '+' || c == '?') {
      fail("nothing to repeat");
    } else {
      literal(c);
    }
  }

  ByteSet byte_class() {
    ByteSet set;
    const bool is_negated = at_ < pattern_.size() && pattern_[at_] == '^';
    if (is_negated) ++at_;
    bool is_first = true;
    for (;; is_first = false) {
      if (at_ >= pattern_.size()) fail("a [ without its ]");
      char c = pattern_[at_++];
      if (c == ']' && !is_first) break;
      if (c == '\\') {
        if (at_ >= pattern_.size()) fail("ends in a backslash");
        c = pattern_[at_++];
        const ByteSet escaped = escape_class(c);
        if (escaped.any()) {
          set |= escaped;
          continue;
        }
      }
      if (at_ + 1 < pattern_.size() && pattern_[at_] == '-' && pattern_[at_ + 1] != ']') {
        const char high = pattern_[at_ + 1];
        at_ += 2;
        if (index_of(high) < index_of(c)) fail("a range that runs backwards");
        for (std::size_t byte = index_of(c); byte <= index_of(high); ++byte) set.set(byte);
      } else {
        set.set(index_of(c));
      }
    }
    return is_negated ? ~set : set;
  }

  std::string_view pattern_;
  const std::string& where_;
  P& program_;
  std::size_t at_ = 0;
};

}  // namespace

Expression::Expression(std::string_view pattern, const std::string& where)
    : program_(std::make_unique<Program>()) {
  if (pattern.size() > kMaxModulePatternBytes) {
    throw Error(ErrorCode::kInput, fmt::format("{}: a pattern of {} bytes, at most {} are read",
                                               where, pattern.size(), kMaxModulePatternBytes));
  }
  Compiler<Expression::Program>(pattern, where, *program_).run();
}

Expression::Expression(Expression&&) noexcept = default;
Expression& Expression::operator=(Expression&&) noexcept = default;
Expression::~Expression() = default;

bool Expression::matches(std::string_view text) const {
  const auto& code = program_->code;
  std::vector<std::size_t> now;
  std::vector<std::size_t> next;
  std::vector<std::size_t> seen(code.size(), static_cast<std::size_t>(-1));
  std::vector<std::size_t> pending;
  bool is_match = false;
  const auto follow = [&](std::size_t start, std::size_t position,
                          std::vector<std::size_t>& states) {
    pending.push_back(start);
    while (!pending.empty()) {
      const std::size_t at = pending.back();
      pending.pop_back();
      if (seen[at] == position) continue;
      seen[at] = position;
      const auto& instruction = code[at];
      switch (instruction.op) {
        case Program::Op::kSplit:
          pending.push_back(instruction.second);
          pending.push_back(instruction.first);
          break;
        case Program::Op::kJump:
          pending.push_back(instruction.first);
          break;
        case Program::Op::kBegin:
          if (position == 0) pending.push_back(at + 1);
          break;
        case Program::Op::kEnd:
          if (position == text.size()) pending.push_back(at + 1);
          break;
        case Program::Op::kMatch:
          is_match = true;
          break;
        case Program::Op::kBytes:
          states.push_back(at);
          break;
      }
    }
  };
  follow(0, 0, now);
  for (std::size_t position = 0; position < text.size() && !is_match && !now.empty(); ++position) {
    next.clear();
    for (const std::size_t at : now) {
      if (program_->sets[code[at].first].test(index_of(text[position]))) {
        follow(at + 1, position + 1, next);
      }
    }
    now.swap(next);
  }
  return is_match;
}

ModulePatterns::ModulePatterns(const std::vector<std::string>& entries, const std::string& where) {
  for (std::string_view entry : entries) {
    if (entry.starts_with("re:")) {
      expressions_.emplace_back(entry.substr(3), where);
      continue;
    }
    if (entry.starts_with(kWrapperPrefix)) entry.remove_prefix(kWrapperPrefix.size());
    if (entry.ends_with(".weight")) entry.remove_suffix(7);
    if (entry.find('*') != std::string_view::npos) {
      globs_.emplace_back(entry);
    } else if (!entry.empty()) {
      names_.emplace(entry);
    }
  }
}

bool ModulePatterns::matches(std::string_view module) const {
  // Every run of whole dotted parts.
  if (!names_.empty()) {
    for (std::size_t begin = 0; begin < module.size();) {
      for (std::size_t end = begin;;) {
        end = module.find('.', end);
        const std::size_t stop = end == std::string_view::npos ? module.size() : end;
        if (names_.contains(std::string(module.substr(begin, stop - begin)))) return true;
        if (end == std::string_view::npos) break;
        ++end;
      }
      const std::size_t dot = module.find('.', begin);
      if (dot == std::string_view::npos) break;
      begin = dot + 1;
    }
  }
  for (const std::string& glob : globs_) {
    if (matches_glob(glob, module)) return true;
  }
  for (const Expression& expression : expressions_) {
    if (expression.matches(module)) return true;
  }
  return false;
}

// Goes back to the last star only, so the time is at most the product of the lengths.
bool matches_glob(std::string_view pattern, std::string_view text) {
  std::size_t p = 0;
  std::size_t t = 0;
  std::size_t star = std::string_view::npos;
  std::size_t after_star = 0;
  for (;;) {
    if (p == pattern.size() && (t == text.size() || text[t] == '.')) return true;
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      after_star = t;
    } else if (p < pattern.size() && t < text.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos && after_star < text.size()) {
      p = star + 1;
      t = ++after_star;
    } else {
      return false;
    }
  }
}

}  // namespace moe::model
