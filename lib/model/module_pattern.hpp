#pragma once

// Module names against the entries of a quantisation config: whole names and runs of dotted parts,
// "*" for anything, and "re:" expressions in the subset that such configs use. Matching takes time
// proportional to name times pattern, whatever the pattern.

#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace moe::model {

// A regular expression: literals, ".", classes, "\d \w \s" and escaped characters, groups,
// alternatives, "* + ?", "^" and "$". Matches from the start of the text and need not reach its
// end (re.match).
class Expression {
 public:
  // Throws Error(kInput) for anything outside of the subset; `where` names the source.
  Expression(std::string_view pattern, const std::string& where);
  Expression(Expression&&) noexcept;
  Expression& operator=(Expression&&) noexcept;
  ~Expression();

  [[nodiscard]] bool matches(std::string_view text) const;

 private:
  struct Program;
  std::unique_ptr<Program> program_;
};

// A list of entries of which any may match.
class ModulePatterns {
 public:
  ModulePatterns(const std::vector<std::string>& entries, const std::string& where);

  [[nodiscard]] bool matches(std::string_view module) const;
  [[nodiscard]] bool empty() const {
    return names_.empty() && globs_.empty() && expressions_.empty();
  }

 private:
  std::unordered_set<std::string> names_;
  std::vector<std::string> globs_;
  std::vector<Expression> expressions_;
};

// "*" stands for any text; the pattern must reach the end of the text or a dot of it.
[[nodiscard]] bool matches_glob(std::string_view pattern, std::string_view text);

}  // namespace moe::model
