#include "lib/json/write.hpp"
#include "lib/report/json_io.hpp"
#include "lib/report/writers.hpp"

namespace moe::report {

std::string write_json(const Report& report) {
  return json::dump(to_json(report), "report") + '\n';
}

}  // namespace moe::report
