#pragma once

// Runs a program the way a shell does and keeps what it wrote.

#include <functional>
#include <string>
#include <vector>

namespace moe::test {

struct ProcessOptions {
  std::vector<std::string> environment;  // "NAME=value", added to this process's
  // Called with everything on stderr so far whenever more arrives; true sends SIGINT, once.
  std::function<bool(const std::string&)> interrupt_when;
  double interrupt_after_s = 0.0;    // 0: never
  bool interrupts_twice = false;     // SIGINT, then SIGTERM at once
  bool closes_stdout_early = false;  // the reader goes away after the first bytes
  double timeout_s = 240.0;          // then killed, which fails the test
};

struct ProcessResult {
  int exit_code = -1;  // -1: ended by a signal
  int signal = 0;
  std::string out;
  std::string err;
  double wall_s = 0.0;
};

[[nodiscard]] ProcessResult run_process(const std::vector<std::string>& argv,
                                        const ProcessOptions& options = {});

// moe-bench of this build with these arguments.
[[nodiscard]] ProcessResult run_moe_bench(const std::vector<std::string>& args,
                                          const ProcessOptions& options = {});

// moe-skew of this build.
[[nodiscard]] ProcessResult run_moe_skew(const std::vector<std::string>& args,
                                         const ProcessOptions& options = {});

// moe-plan of this build.
[[nodiscard]] ProcessResult run_moe_plan(const std::vector<std::string>& args,
                                         const ProcessOptions& options = {});

// moe-a2a of this build with these arguments.
[[nodiscard]] ProcessResult run_moe_a2a(const std::vector<std::string>& args,
                                        const ProcessOptions& options = {});

// A checkpoint that comes with the sources.
[[nodiscard]] std::string checkpoint(const std::string& name);

[[nodiscard]] int count_lines(const std::string& text);

}  // namespace moe::test
