#pragma once

// One line of JSON for each request, for those who want to judge for themselves.

#include <memory>
#include <string>

#include "lib/base/atomic_file.hpp"
#include "lib/client/load_result.hpp"

namespace moe::app {

// All values in base units; absent ones are null.
[[nodiscard]] std::string request_line(const client::RequestRecord& record,
                                       const std::string& load);

class RequestsFile {
 public:
  explicit RequestsFile(const std::string& path);
  void add(const client::LoadResult& result, const std::string& load);
  void commit();

 private:
  AtomicFile file_;
};

}  // namespace moe::app
