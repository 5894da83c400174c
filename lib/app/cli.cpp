#include "lib/app/cli.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "lib/app/exit_code.hpp"
#include "lib/app/run_tool.hpp"
#include "lib/base/error.hpp"

namespace moe::app {
namespace {

struct Command {
  std::string name;
  std::string summary;
  std::function<int()> run;
  CLI::App* app = nullptr;
  std::unique_ptr<Options> options;
};

struct InfoFlag {
  std::string names;
  std::string help;
  std::function<std::string()> text;
  bool is_given = false;
};

// CLI11 calls the setter with the texts given; parsing and checking are ours.
void bind_option(CLI::App& app, const std::string& names, bool is_flag, bool is_repeatable,
                 std::function<void(const std::vector<std::string>&)> set) {
  if (is_flag) {
    app.add_flag_callback(names, [set = std::move(set)]() { set({}); });
    return;
  }
  CLI::Option* option = app.add_option(names, [set = std::move(set)](const CLI::results_t& texts) {
    set(texts);
    return true;
  });
  const bool is_positional = names.front() != '-';
  if (is_positional) option->required();
  option->type_size(1);
  option->allow_extra_args(false);
  // Without this a list such as {1,2} would be taken apart by CLI11 before we see it.
  option->delimiter('\0');
  option->multi_option_policy(is_repeatable ? CLI::MultiOptionPolicy::TakeAll
                                            : CLI::MultiOptionPolicy::Throw);
  if (is_repeatable) option->expected(1, CLI::detail::expected_max_vector_size);
  // A positional takes what stands behind it as well; an option would swallow the positionals.
  if (is_repeatable) option->allow_extra_args(is_positional);
}

}  // namespace

struct CommandLine::Impl {
  Impl(std::string tool_name, const std::string& description)
      : tool(std::move(tool_name)), app(description, tool) {}

  [[nodiscard]] const Command* chosen() const {
    for (const std::unique_ptr<Command>& command : commands) {
      if (command->app->parsed()) return command.get();
    }
    return nullptr;
  }

  [[nodiscard]] std::string command_names() const {
    std::string names;
    for (const std::unique_ptr<Command>& command : commands) {
      names += (names.empty() ? "" : ", ") + command->name;
    }
    return names;
  }

  [[nodiscard]] std::string help() const {
    std::string out = fmt::format("{}\n\nUsage: {} COMMAND [options]\n\nCommands:\n",
                                  app.get_description(), tool);
    std::size_t width = 12;
    for (const std::unique_ptr<Command>& command : commands) {
      width = std::max(width, command->name.size() + 2);
    }
    for (const std::unique_ptr<Command>& command : commands) {
      out += fmt::format("  {:<{}}{}\n", command->name, width, command->summary);
    }
    out += "\nOptions:\n";
    for (const std::unique_ptr<InfoFlag>& flag : info_flags) {
      out += fmt::format("  {:<18}{}\n", flag->names, flag->help);
    }
    out += fmt::format("  {:<18}{}\n", "-h, --help", "Print this help and end");
    return out + fmt::format("\n{} COMMAND --help explains a command.\n", tool);
  }

  std::string tool;
  CLI::App app;
  // Behind pointers: CLI11 keeps references to members across later additions.
  std::vector<std::unique_ptr<Command>> commands;
  std::vector<std::unique_ptr<InfoFlag>> info_flags;
};

CommandLine::CommandLine(std::string tool, std::string description, std::string version_text)
    : impl_(std::make_unique<Impl>(std::move(tool), description)) {
  impl_->app.set_help_flag("-h,--help");
  add_info_flag("--version", "Print version, commit, build type and backends",
                [text = std::move(version_text)]() { return text; });
}

CommandLine::~CommandLine() = default;

Options& CommandLine::add_command(const std::string& name, const std::string& summary,
                                  std::function<int()> run) {
  auto command = std::make_unique<Command>();
  command->name = name;
  command->summary = summary;
  command->run = std::move(run);
  command->app = impl_->app.add_subcommand(name, summary);
  command->app->set_help_flag("-h,--help");
  command->options = std::make_unique<Options>(
      [app = command->app](const std::string& names, bool is_flag, bool is_repeatable,
                           std::function<void(const std::vector<std::string>&)> set) {
        bind_option(*app, names, is_flag, is_repeatable, std::move(set));
      });
  impl_->commands.push_back(std::move(command));
  return *impl_->commands.back()->options;
}

void CommandLine::add_info_flag(const std::string& names, const std::string& help,
                                std::function<std::string()> text) {
  auto flag = std::make_unique<InfoFlag>();
  flag->names = names;
  flag->help = help;
  flag->text = std::move(text);
  impl_->app.add_flag_callback(names, [raw = flag.get()]() { raw->is_given = true; });
  impl_->info_flags.push_back(std::move(flag));
}

int CommandLine::run(int argc, const char* const* argv) {
  try {
    impl_->app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    const Command* command = impl_->chosen();
    write_stdout(command == nullptr ? impl_->help()
                                    : command_help(impl_->tool, command->name, command->summary,
                                                   *command->options));
    return kExitOk;
  } catch (const CLI::Error& error) {
    const Command* command = impl_->chosen();
    const bool is_unknown_command = command == nullptr && argc > 1 && argv[1][0] != '-';
    if (is_unknown_command) {
      throw Error(ErrorCode::kUsage, fmt::format("unknown command \"{}\"; the commands are {}",
                                                 argv[1], impl_->command_names()));
    }
    const std::string where = command == nullptr ? "" : ' ' + command->name;
    throw Error(ErrorCode::kUsage,
                fmt::format("{}; see {}{} --help", error.what(), impl_->tool, where));
  }
  for (const std::unique_ptr<InfoFlag>& flag : impl_->info_flags) {
    if (!flag->is_given) continue;
    write_stdout(flag->text());
    return kExitOk;
  }
  const Command* command = impl_->chosen();
  if (command == nullptr) {
    throw Error(ErrorCode::kUsage, fmt::format("expected a command ({}); see {} --help",
                                               impl_->command_names(), impl_->tool));
  }
  return command->run();
}

}  // namespace moe::app
