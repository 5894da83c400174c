#pragma once

// Checks of invariants: a failure is a bug of ours. The handler prints one line and aborts; tests
// and lib/app may replace it (lib/app exits with 70).

namespace moe {

// std::source_location is not known to clang 14 (fuzzers, static analysis).
struct SourceLocation {
  const char* file = "";
  int line = 0;
};

using CheckFailureHandler = void (*)(const char* expression, const SourceLocation& where);

// Replaces the handler and returns the old one. The handler must not return.
CheckFailureHandler set_check_failure_handler(CheckFailureHandler handler) noexcept;

[[noreturn]] void fail_check(const char* expression, const SourceLocation& where);

}  // namespace moe

#define MOE_CHECK(condition)                                                    \
  do {                                                                          \
    if (!(condition)) [[unlikely]] {                                            \
      ::moe::fail_check(#condition, ::moe::SourceLocation{__FILE__, __LINE__}); \
    }                                                                           \
  } while (false)

#ifdef NDEBUG
#define MOE_DCHECK(condition) \
  do {                        \
  } while (false && (condition))
#else
#define MOE_DCHECK(condition) MOE_CHECK(condition)
#endif
