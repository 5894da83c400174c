#include "lib/base/check.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace moe {
namespace {

void default_handler(const char* expression, const SourceLocation& where) {
  std::fprintf(stderr, "moekit bug: check failed: %s at %s:%d\n", expression, where.file,
               where.line);
}

std::atomic<CheckFailureHandler> g_handler{&default_handler};

}  // namespace

CheckFailureHandler set_check_failure_handler(CheckFailureHandler handler) noexcept {
  return g_handler.exchange(handler);
}

void fail_check(const char* expression, const SourceLocation& where) {
  g_handler.load()(expression, where);
  std::abort();
}

}  // namespace moe
