#pragma once

// Command lines: a thin wrapper around CLI11 that gives every tool the same manners. Options are
// grouped, every default is shown, a list is written with commas, sizes and durations carry units,
// a usage error is one line and exit code 2. Nothing is read from the environment here.

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moe::app {

// Inclusive.
struct IntRange {
  std::int64_t min = 0;
  std::int64_t max = std::numeric_limits<std::int64_t>::max();
};

struct RealRange {
  double min = 0.0;
  double max = std::numeric_limits<double>::max();
};

// One option as the help shows it.
struct OptionHelp {
  std::string group;
  std::string names;          // "-q, --quiet"
  std::string value_name;     // "N,N,..."; empty for a flag
  std::string help;           // what it does
  std::string default_value;  // empty: none to show
};

struct PositionalHelp {
  std::string name;
  std::string help;
};

// The options of one command. Targets must outlive the parse and hold the defaults beforehand.
class Options {
 public:
  // Implementation hook: binds names to a function of the texts given.
  using Bind = std::function<void(const std::string& names, bool is_flag, bool is_repeatable,
                                  std::function<void(const std::vector<std::string>&)> set)>;
  explicit Options(Bind bind) : bind_(std::move(bind)) {}

  // Options added from here on stand under this title.
  void group(std::string_view title) { group_ = title; }
  void positional(const std::string& name, std::string& target, const std::string& help);

  // One or more.
  void positionals(const std::string& name, std::vector<std::string>& target,
                   const std::string& help);

  void flag(const std::string& names, bool& target, const std::string& help);
  void text(const std::string& names, const std::string& value_name, std::string& target,
            const std::string& help);
  // The option may be given several times.
  void texts(const std::string& names, const std::string& value_name,
             std::vector<std::string>& target, const std::string& help);
  void choice(const std::string& names, const std::vector<std::string>& choices,
              std::string& target, const std::string& help);
  void integer(const std::string& names, std::int64_t& target, IntRange range,
               const std::string& help, const std::string& default_text = {});
  void integers(const std::string& names, std::vector<std::int64_t>& target, IntRange range,
                const std::string& help);
  void real(const std::string& names, double& target, RealRange range, const std::string& help);
  void bytes(const std::string& names, std::int64_t& target, const std::string& help,
             const std::string& default_text = {});
  void duration(const std::string& names, double& target_s, const std::string& help,
                const std::string& default_text = {});
  void ratio(const std::string& names, std::optional<double>& target, const std::string& help,
             const std::string& default_text = {});

  // Lines shown at the end of the help.
  void example(const std::string& command_line, const std::string& meaning);

  [[nodiscard]] const std::vector<OptionHelp>& option_help() const { return option_help_; }
  [[nodiscard]] const std::vector<PositionalHelp>& positional_help() const {
    return positional_help_;
  }
  [[nodiscard]] const std::vector<PositionalHelp>& examples() const { return examples_; }

 private:
  void add(const std::string& names, const std::string& value_name, const std::string& help,
           const std::string& default_value, bool is_repeatable,
           std::function<void(const std::vector<std::string>&)> set);

  Bind bind_;
  std::string group_ = "Options";
  std::vector<OptionHelp> option_help_;
  std::vector<PositionalHelp> positional_help_;
  std::vector<PositionalHelp> examples_;
};

// A tool with sub-commands.
class CommandLine {
 public:
  CommandLine(std::string tool, std::string description, std::string version_text);
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;
  ~CommandLine();

  // `run` is called when this command was given and its options are all valid.
  Options& add_command(const std::string& name, const std::string& summary,
                       std::function<int()> run);
  // A flag of the tool itself that prints a text and ends.
  void add_info_flag(const std::string& names, const std::string& help,
                     std::function<std::string()> text);

  // Parses and runs. --help and --version print to stdout and return 0. Throws Error(kUsage) with
  // one line that says where help is.
  [[nodiscard]] int run(int argc, const char* const* argv);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// "1,4,16" -> {1, 4, 16}. Throws Error(kUsage); `option` names it in the message.
[[nodiscard]] std::vector<std::int64_t> parse_integers(std::string_view text, IntRange range,
                                                       std::string_view option);
[[nodiscard]] std::string format_integers(const std::vector<std::int64_t>& values);

// Help texts, wrapped at 100 columns.
[[nodiscard]] std::string command_help(const std::string& tool, const std::string& command,
                                       const std::string& summary, const Options& options);

}  // namespace moe::app
