#include "lib/model/text_file.hpp"

namespace moe::model {

std::string_view text_of(const FileMap& map) {
  return {reinterpret_cast<const char*>(map.bytes().data()), map.bytes().size()};
}

}  // namespace moe::model
