#include "tests/tools/process.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <stdexcept>

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

namespace moe::test {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

double seconds_since(SteadyTime begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

struct Pipe {
  Pipe() {
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe failed");
  }
  void close_end(int end) {
    if (ends[end] >= 0) ::close(ends[end]);
    ends[end] = -1;
  }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  int ends[2] = {-1, -1};
};

// Reads what is there; false at the end of the stream.
bool drain(int descriptor, std::string& text) {
  char buffer[65536];
  const ssize_t got = ::read(descriptor, buffer, sizeof(buffer));
  if (got < 0 && errno == EINTR) return true;
  if (got <= 0) return false;
  text.append(buffer, static_cast<std::size_t>(got));
  return true;
}

[[noreturn]] void exec_child(const std::vector<std::string>& argv, const ProcessOptions& options,
                             int out, int err) {
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  const int null = ::open("/dev/null", O_RDONLY);
  ::dup2(null, STDIN_FILENO);
  // What the test program set up must not be inherited.
  std::signal(SIGPIPE, SIG_DFL);
  for (const std::string& variable : options.environment) {
    ::putenv(const_cast<char*>(variable.c_str()));
  }
  std::vector<char*> pointers;
  for (const std::string& arg : argv) pointers.push_back(const_cast<char*>(arg.c_str()));
  pointers.push_back(nullptr);
  ::execv(pointers[0], pointers.data());
  ::_exit(127);
}

}  // namespace

ProcessResult run_process(const std::vector<std::string>& argv, const ProcessOptions& options) {
  Pipe out;
  Pipe err;
  const SteadyTime begin = std::chrono::steady_clock::now();
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) exec_child(argv, options, out.ends[1], err.ends[1]);
  out.close_end(1);
  err.close_end(1);
  ProcessResult result;
  bool is_interrupted = false;
  while (out.ends[0] >= 0 || err.ends[0] >= 0) {
    struct pollfd polls[2] = {{out.ends[0], POLLIN, 0}, {err.ends[0], POLLIN, 0}};
    ::poll(polls, 2, 50);
    if (polls[0].revents != 0 && !drain(out.ends[0], result.out)) out.close_end(0);
    if (polls[1].revents != 0 && !drain(err.ends[0], result.err)) err.close_end(0);
    if (options.closes_stdout_early && !result.out.empty()) out.close_end(0);
    const double elapsed_s = seconds_since(begin);
    const bool is_due =
        (options.interrupt_after_s > 0.0 && elapsed_s >= options.interrupt_after_s) ||
        (options.interrupt_when && options.interrupt_when(result.err));
    if (is_due && !is_interrupted) {
      // Two different signals: equal ones may merge while they wait.
      ::kill(child, SIGINT);
      if (options.interrupts_twice) ::kill(child, SIGTERM);
      is_interrupted = true;
    }
    if (elapsed_s > options.timeout_s) ::kill(child, SIGKILL);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  result.wall_s = seconds_since(begin);
  return result;
}

ProcessResult run_moe_bench(const std::vector<std::string>& args, const ProcessOptions& options) {
  std::vector<std::string> argv = {MOE_BINARY_DIR "/bin/moe-bench"};
  for (const std::string& arg : args) argv.push_back(arg);
  return run_process(argv, options);
}

ProcessResult run_moe_a2a(const std::vector<std::string>& args, const ProcessOptions& options) {
  std::vector<std::string> argv = {MOE_BINARY_DIR "/bin/moe-a2a"};
  for (const std::string& arg : args) argv.push_back(arg);
  return run_process(argv, options);
}

ProcessResult run_moe_skew(const std::vector<std::string>& args, const ProcessOptions& options) {
  std::vector<std::string> argv = {MOE_BINARY_DIR "/bin/moe-skew"};
  for (const std::string& arg : args) argv.push_back(arg);
  return run_process(argv, options);
}

ProcessResult run_moe_plan(const std::vector<std::string>& args, const ProcessOptions& options) {
  std::vector<std::string> argv = {MOE_BINARY_DIR "/bin/moe-plan"};
  for (const std::string& arg : args) argv.push_back(arg);
  return run_process(argv, options);
}

std::string checkpoint(const std::string& name) {
  return MOE_SOURCE_DIR "/scenarios/checkpoints/" + name;
}

int count_lines(const std::string& text) {
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace moe::test
