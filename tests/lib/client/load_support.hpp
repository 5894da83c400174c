#pragma once

// A scripted server that answers at once, and load against it.

#include <string>

#include "lib/client/load.hpp"
#include "lib/scripted_server/server_thread.hpp"

namespace moe::client {

// A script from JSON text.
[[nodiscard]] scripted_server::Script script_of(const std::string& json);
// The same with times of milliseconds, for tests that are not about times.
void make_fast(scripted_server::Script& script);

struct Driven {
  LoadResult result;
  scripted_server::ServerLog log;
};

struct DriveOptions {
  Api api = Api::kCompletions;
  std::int64_t prompt_tokens = 4;
  std::int64_t output_tokens = 8;
  bool is_stream = true;
  bool wants_extras = true;  // ids and running usage
};

[[nodiscard]] Driven drive(const scripted_server::Script& script, const LoadPlan& plan,
                           const DriveOptions& options = {});

}  // namespace moe::client
