#pragma once

// How long work tells how far it is. The library never prints: lib/app implements this on stderr.

#include <cstdint>
#include <string_view>

namespace moe {

class Progress {
 public:
  Progress() = default;
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  virtual ~Progress() = default;

  // Starts a stage of `total` units (bytes, tokens, points); total 0 means unknown.
  virtual void begin(std::string_view stage, std::int64_t total, std::string_view unit) = 0;
  // `done` units of the stage are behind us. Cheap; may be called often, from one thread at a time.
  virtual void update(std::int64_t done) = 0;
  virtual void end() = 0;
};

class NullProgress final : public Progress {
 public:
  void begin(std::string_view, std::int64_t, std::string_view) override {}
  void update(std::int64_t) override {}
  void end() override {}
};

}  // namespace moe
