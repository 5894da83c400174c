#include "lib/model/shard_index.hpp"

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/base/text.hpp"
#include "lib/json/events.hpp"
#include "lib/model/safetensors.hpp"

namespace moe::model {
namespace {

constexpr std::size_t kMaxShards = 100'000;
constexpr std::size_t kBytesPerEntry = 80;  // about: a tensor's name and a file's

// Depth 1 holds "weight_map" and "metadata"; what else stands there or below is passed over.
class IndexSink : public json::EventSink {
 public:
  IndexSink(const std::string& where, ShardIndex& index) : where_(where), index_(index) {}

  void begin_object() override {
    if (is_in_map() && depth_ == 2) fail_shard("an object");
    if (depth_ == 1 && section_ == "weight_map") has_map_ = true;
    ++depth_;
  }
  void end_object() override { --depth_; }
  void begin_array() override {
    if (depth_ == 0) fail_input(where_, "expected a JSON object");
    if (is_in_map()) fail_shard("an array");
    ++depth_;
  }
  void end_array() override { --depth_; }
  void key(std::string_view name) override {
    if (depth_ == 1) {
      if (!sections_.insert(std::string(name)).second) {
        fail_input(where_, fmt::format("\"{}\" is there twice", printable(name)));
      }
      section_ = name;
    } else {
      name_ = name;
    }
  }
  void string(std::string_view value) override {
    if (depth_ == 0) fail_input(where_, "expected a JSON object");
    if (is_in_map()) add(value);
  }
  void unsigned_number(std::uint64_t value) override {
    if (is_in_map()) fail_shard(fmt::format("the number {}", value));
    if (depth_ == 2 && section_ == "metadata" && name_ == "total_size") {
      index_.total_size =
          static_cast<std::int64_t>(std::min(value, static_cast<std::uint64_t>(INT64_MAX)));
    }
  }
  void other(std::string_view what) override {
    if (is_in_map()) fail_shard(what);
  }

  // After the last event.
  void finish() const {
    if (!has_map_) fail_input(where_, "weight_map: missing or not an object");
    if (index_.shards.empty()) fail_input(where_, "weight_map is empty");
  }

 private:
  [[nodiscard]] bool is_in_map() const { return depth_ == 2 && section_ == "weight_map"; }

  [[noreturn]] void fail_shard(std::string_view found) const {
    fail_input(where_, fmt::format("weight_map: tensor \"{}\": expected a file name, found {}",
                                   printable(name_), found));
  }

  void add(std::string_view shard) {
    if (name_.size() > kMaxTensorNameBytes) {
      fail_input(where_, fmt::format("tensor \"{}\": the name is too long", printable(name_)));
    }
    if (static_cast<std::int64_t>(index_.shard_of.size()) == kMaxTensorsPerFile) {
      fail_input(where_, fmt::format("weight_map has more than {} entries", kMaxTensorsPerFile));
    }
    // The text of the index was reserved for the names, so that they stay where they are.
    MOE_CHECK(name_.size() <= index_.names.capacity() - index_.names.size());
    const std::size_t begin = index_.names.size();
    index_.names.insert(index_.names.end(), name_.begin(), name_.end());
    const std::string_view kept(index_.names.data() + begin, name_.size());
    if (!index_.shard_of.insert(kept, shard_number(shard)).second) {
      fail_input(where_, fmt::format("tensor \"{}\" is in weight_map twice", printable(name_)));
    }
  }

  std::size_t shard_number(std::string_view shard) {
    // Neighbours in the file mostly share their shard.
    if (!index_.shards.empty() && index_.shards[last_] == shard) return last_;
    const auto known = position_.find(std::string(shard));
    if (known != position_.end()) return last_ = known->second;
    if (!is_plain_file_name(shard)) {
      fail_input(where_,
                 fmt::format("weight_map: tensor \"{}\": \"{}\" is not a plain file name of this "
                             "directory",
                             printable(name_), printable(shard)));
    }
    if (index_.shards.size() == kMaxShards) fail_input(where_, "more than 100000 shards");
    last_ = index_.shards.size();
    position_.emplace(shard, last_);
    index_.shards.emplace_back(shard);
    return last_;
  }

  const std::string& where_;
  ShardIndex& index_;
  std::unordered_set<std::string> sections_;
  std::unordered_map<std::string, std::size_t> position_;
  std::string section_;
  std::string name_;
  std::size_t last_ = 0;
  int depth_ = 0;
  bool has_map_ = false;
};

}  // namespace

bool is_plain_file_name(std::string_view name) {
  if (name.empty() || name.size() > 255 || name == "." || name == "..") return false;
  return std::ranges::none_of(name, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return c == '/' || c == '\\' || byte < 0x20 || byte == 0x7f;
  });
}

ShardIndex parse_shard_index(std::string_view json_text, const std::string& where) {
  if (std::ssize(json_text) > kMaxHeaderBytes) {
    fail_input(where, fmt::format("{} bytes, more than the limit of {}", json_text.size(),
                                  kMaxHeaderBytes));
  }
  ShardIndex index;
  index.shard_of.reserve(json_text.size() / kBytesPerEntry);
  index.names.reserve(json_text.size());
  IndexSink sink(where, index);
  json::read_events(json_text, where, sink);
  sink.finish();
  return index;
}

}  // namespace moe::model
