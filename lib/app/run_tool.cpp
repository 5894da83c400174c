#include "lib/app/run_tool.hpp"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>

#include <fmt/format.h>
#include <unistd.h>

#include "lib/app/exit_code.hpp"
#include "lib/base/check.hpp"
#include "lib/base/error.hpp"

namespace moe::app {
namespace {

constexpr std::string_view kReportIt =
    "this is a bug in moekit; please report it with the command line";

// Signal handlers can reach nothing but statics. Set once by run_tool before they are installed.
Interrupt g_interrupt;
std::atomic<int> g_num_signals{0};
static_assert(std::atomic<int>::is_always_lock_free, "used in a signal handler");

extern "C" void on_stop_signal(int /*signal*/) {
  if (g_num_signals.fetch_add(1) > 0) ::_exit(kExitSecondSignal);
  g_interrupt.request();
}

void install_signal_handlers() {
  struct sigaction stop = {};
  stop.sa_handler = &on_stop_signal;
  sigemptyset(&stop.sa_mask);
  stop.sa_flags = SA_RESTART;
  sigaction(SIGINT, &stop, nullptr);
  sigaction(SIGTERM, &stop, nullptr);
  // A closed pipe shows as EPIPE at the write, which is then handled as the end of the output.
  std::signal(SIGPIPE, SIG_IGN);
}

void on_check_failure(const char* expression, const SourceLocation& where) {
  const char* file = std::strrchr(where.file, '/');
  std::fprintf(stderr, "moekit: bug: check failed: %s (%s:%d); %.*s\n", expression,
               file == nullptr ? where.file : file + 1, where.line,
               static_cast<int>(kReportIt.size()), kReportIt.data());
  // Other threads may still run: no destructors, no atexit.
  ::_exit(kExitBug);
}

// A message is one line, whatever a library put into it.
std::string one_line(std::string_view text) {
  std::string line;
  for (const char c : text) {
    const bool is_break = c == '\n' || c == '\r' || c == '\t';
    if (is_break && (line.empty() || line.back() == ' ')) continue;
    const auto byte = static_cast<unsigned char>(c);
    if (is_break) {
      line += ' ';
    } else if (byte < 0x20 || byte == 0x7f) {
      line += fmt::format("\\x{:02x}", byte);
    } else {
      line += c;
    }
  }
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

void print_line(std::string_view tool, std::string_view kind, std::string_view message) {
  const std::string line = fmt::format("{}: {}: {}\n", tool, kind, one_line(message));
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace

int run_tool(std::string_view tool, int argc, const char* const* argv,
             const std::function<int(const ToolContext&)>& body) {
  set_check_failure_handler(&on_check_failure);
  install_signal_handlers();
  ToolContext context;
  context.tool = tool;
  context.interrupt = &g_interrupt;
  for (int i = 0; i < argc; ++i) context.argv.emplace_back(argv[i]);
  try {
    return body(context);
  } catch (const Error& error) {
    print_line(tool, "error", error.what());
    return exit_code_of(error.code());
  } catch (const std::bad_alloc&) {
    print_line(tool, "error", "out of memory; use a smaller model, batch or context");
    return kExitRuntime;
  } catch (const std::exception& error) {
    print_line(tool, "bug", fmt::format("unexpected exception: {}; {}", error.what(), kReportIt));
    return kExitBug;
  } catch (...) {
    print_line(tool, "bug", fmt::format("unexpected exception; {}", kReportIt));
    return kExitBug;
  }
}

void write_stdout(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EPIPE) {
      return;
    } else if (errno != EINTR) {
      throw Error(ErrorCode::kRuntime,
                  fmt::format("could not write to stdout: {}", std::strerror(errno)));
    }
  }
}

void print_warning(const ToolContext& context, std::string_view message) {
  print_line(context.tool, "warning", message);
}

void print_note(const ToolContext& context, std::string_view message) {
  print_line(context.tool, "note", message);
}

}  // namespace moe::app
