// moe-bench scripted-server: a server whose answers and times are known, to check any client with.

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lib/app/bench/bench_commands.hpp"
#include "lib/app/exit_code.hpp"
#include "lib/app/output.hpp"
#include "lib/app/scenarios_dir.hpp"
#include "lib/base/error.hpp"
#include "lib/base/open_files.hpp"
#include "lib/scripted_server/server.hpp"
#include "lib/stats/distribution.hpp"

namespace moe::app {
namespace {

using scripted_server::RequestRecord;

constexpr std::int64_t kOpenFiles = 65536;
constexpr std::size_t kMaxLags = 10'000'000;

struct ScriptedServerArgs {
  std::string script;
  std::string scenarios;
  std::string host = "127.0.0.1";
  std::int64_t port = 8000;
  std::string log;
  bool is_quiet = false;
};

// The log file, and what is said at the end.
class LogWriter {
 public:
  explicit LogWriter(const std::string& path) : path_(path) {
    if (path.empty()) return;
    check_writable(path, "--log");
    file_.reset(std::fopen(path.c_str(), "w"));
    if (file_ == nullptr) fail();
  }

  void add(const RequestRecord& record) {
    ++num_requests_;
    if (record.end == scripted_server::ReplyEnd::kComplete) ++num_complete_;
    num_tokens_ += record.tokens;
    for (const scripted_server::SendRecord& send : record.sends) {
      if (lags_s_.size() < kMaxLags) lags_s_.push_back(send.left_s - send.due_s);
    }
    if (file_ == nullptr) return;
    const std::string line = log_line(record) + "\n";
    if (std::fwrite(line.data(), 1, line.size(), file_.get()) != line.size()) fail();
  }

  void close() {
    if (file_ != nullptr && std::fclose(file_.release()) != 0) fail();
  }

  [[nodiscard]] std::string summary(const scripted_server::ServerLog& log) const {
    std::string text =
        fmt::format("{} requests, {} of them complete, {} refused; {} tokens; {} connections",
                    num_requests_, num_complete_, log.bad_requests, num_tokens_, log.connections);
    const stats::Distribution lags = stats::summarize(lags_s_);
    if (!lags.max) return text;
    const auto ms = [](const std::optional<double>& value_s) {
      return value_s ? fmt::format("{:.3f}", *value_s * 1e3) : std::string("-");
    };
    return text + fmt::format("; sends late by p50 {} p99 {} max {} ms", ms(lags.p50.value),
                              ms(lags.p99.value), ms(lags.max));
  }

 private:
  [[noreturn]] void fail() const {
    throw Error(ErrorCode::kRuntime, fmt::format("{}: the log cannot be written", path_));
  }

  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  std::string path_;
  std::unique_ptr<std::FILE, Closer> file_;
  std::int64_t num_requests_ = 0;
  std::int64_t num_complete_ = 0;
  std::int64_t num_tokens_ = 0;
  std::vector<double> lags_s_;
};

int run_scripted_server(const ScriptedServerArgs& args, const ToolContext& context) {
  const std::filesystem::path file =
      find_scenario(args.script, scenarios_dir(args.scenarios), "scripted-servers", ".json");
  scripted_server::Script script = scripted_server::read_script(file);
  allow_open_files(kOpenFiles);
  LogWriter log(args.log);
  scripted_server::ServerOptions options;
  options.host = args.host;
  options.port = static_cast<std::uint16_t>(args.port);
  options.sink = [&](const RequestRecord& record) { log.add(record); };
  scripted_server::Server server(std::move(script), std::move(options));
  // A program that started this waits for the line.
  write_stdout(fmt::format("http://{}:{}\n", args.host, server.port()));
  server.run(*context.interrupt);
  log.close();
  if (!args.is_quiet) print_note(context, log.summary(server.log()));
  return kExitOk;
}

}  // namespace

void add_scripted_server_command(CommandLine& line, const ToolContext& context) {
  auto args = std::make_shared<ScriptedServerArgs>();
  Options& options = line.add_command(
      "scripted-server", "Answers like a model server at times that a script says, to test clients",
      [args, &context] { return run_scripted_server(*args, context); });
  options.positional("SCRIPT", args->script,
                     "Script file, or a name in scenarios/scripted-servers");
  options.group("Server");
  options.text("--host", "ADDRESS", args->host, "IPv4 address to listen on");
  options.integer("--port", args->port, {0, 65535}, "Port to listen on; 0 takes a free one");
  options.text("--scenarios", "DIR", args->scenarios, "Folder of the inputs that come with moekit");
  options.group("Output");
  options.text("--log", "FILE", args->log,
               "One JSON line a request: when it came, when each byte was due and left");
  options.flag("-q,--quiet", args->is_quiet, "No summary on stderr at the end");
  options.example("moe-bench scripted-server steady --port 8000 --log sends.jsonl",
                  "serve until Ctrl-C, then see how late any byte was");
}

}  // namespace moe::app
