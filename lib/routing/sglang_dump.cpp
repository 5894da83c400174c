// SGLang's expert distribution recorder: .pt files in its four modes.
//
//   stat, stat_approx  {"rank", "logical_count" [steps, layers, experts], ...}, already global
//   per_pass           {"records": [{"forward_pass_id", "rank", "global_physical_count"}, ...],
//                       "last_physical_to_logical_map"}; one file a rank, to be summed
//   per_token          the same with "topk_ids_of_layer" [layers, tokens, slots] in each record

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/routing/array_sources.hpp"
#include "lib/routing/id_cleaner.hpp"
#include "lib/routing/readers.hpp"
#include "lib/routing/torch_file.hpp"

namespace moe::routing {
namespace {

using Files = std::shared_ptr<const std::vector<TorchFile>>;

const PickleTensor* tensor_of(const TorchFile& file, PickleValue dict, const char* key) {
  const PickleValue* value = file.document().find(dict, key);
  return value != nullptr ? file.document().tensor(*value) : nullptr;
}

std::int64_t integer_of(const TorchFile& file, PickleValue dict, const char* key,
                        std::int64_t fallback) {
  const PickleValue* value = file.document().find(dict, key);
  std::int64_t result = fallback;
  if (value != nullptr) (void)PickleDocument::as_integer(*value, result);
  return result;
}

// One record of a per_pass or per_token dump.
struct Record {
  std::int64_t pass = 0;
  std::int64_t rank = 0;
  ArrayView counts;  // [layers, slots]
  ArrayView ids;     // [layers, tokens, k]; no axes in per_pass mode
  std::vector<std::int64_t> sequence_tokens;
  Phase phase = Phase::kPrefill;
};

class DumpReader {
 public:
  explicit DumpReader(const ReaderRequest& request) : request_(request) {
    auto files = std::make_shared<std::vector<TorchFile>>();
    for (const SharedMap& map : request.maps) files->emplace_back(map);
    files_ = files;
  }

  RoutingInput read() {
    const TorchFile& first = files_->front();
    const PickleValue root = first.document().root;
    if (first.document().find(root, "records") != nullptr) return read_records();
    if (tensor_of(first, root, "logical_count") != nullptr) return read_stat();
    if (first.document().find(root, "physical_to_logical_map") != nullptr) {
      fail_input(first.where(),
                 "holds a placement (physical_to_logical_map), not a load; give the dump "
                 "that it was made from");
    }
    fail_input(first.where(),
               "expected a dump of SGLang's expert distribution recorder: records or "
               "logical_count");
  }

 private:
  RoutingInput read_stat() {
    const TorchFile& file = files_->front();
    if (files_->size() > 1) {
      fail_input((*files_)[1].where(), "a stat dump is already summed over ranks: give one file");
    }
    ArrayView counts = file.view(*tensor_of(file, file.document().root, "logical_count"));
    if (counts.rank() == 2) {
      counts.shape = {1, counts.shape[0], counts.shape[1]};
      counts.strides = {0, counts.strides[0], counts.strides[1]};
    }
    if (counts.rank() != 3) {
      fail_input(file.where(),
                 "logical_count: expected [steps, layers, experts], found " + counts.shape_text());
    }
    check_shape(file.where(), counts.shape[1], counts.shape[2]);
    RoutingInput input;
    input.info.format = Format::kSglangStat;
    input.info.layers = number_layers(counts.shape[1], request_.options.first_layer);
    input.info.num_experts = static_cast<std::int32_t>(counts.shape[2]);
    CountPlan plan;
    plan.num_steps = counts.shape[0];
    plan.fill = [counts](std::int64_t step_idx, std::vector<CountPart>& parts) {
      const ArrayView step = counts.at(step_idx);
      for (std::int64_t l = 0; l < step.shape[0]; ++l) parts.push_back({l, step.at(l)});
      return step_idx;
    };
    plan.maps = {file.map()};
    input.counts = make_count_source(input.info, std::move(plan));
    return input;
  }

  RoutingInput read_records() {
    for (const TorchFile& file : *files_) collect(file);
    if (records_.empty()) {
      fail_input(request_.where(),
                 "the dump holds no records: recording was not on, or nothing was "
                 "served meanwhile");
    }
    std::stable_sort(records_.begin(), records_.end(), [](const Record& a, const Record& b) {
      return std::pair(a.pass, a.rank) < std::pair(b.pass, b.rank);
    });
    const bool has_ids = records_.front().ids.rank() == 3;
    RoutingInput input;
    input.info.format = has_ids ? Format::kSglangPerToken : Format::kSglangPerPass;
    fill_info(input);
    if (has_ids) {
      make_token_source(input);
    } else {
      make_record_counts(input);
    }
    observe_passes(input);
    return input;
  }

  void collect(const TorchFile& file) {
    const PickleDocument& document = file.document();
    const PickleValue root = document.root;
    const PickleValue* records = document.find(root, "records");
    if (records == nullptr || records->kind != PickleKind::kList) {
      fail_input(file.where(), "expected a list of records");
    }
    for (const PickleValue value : document.list(*records)) {
      Record record;
      record.pass = integer_of(file, value, "forward_pass_id", -1);
      record.rank = integer_of(file, value, "rank", 0);
      // Forward mode 2 is decode in SGLang's numbering (1 extend, 2 decode, 3 mixed).
      if (integer_of(file, value, "forward_mode", 1) == 2) record.phase = Phase::kDecode;
      if (record.pass < 0) fail_input(file.where(), "a record without forward_pass_id");
      const PickleTensor* ids = tensor_of(file, value, "topk_ids_of_layer");
      const PickleTensor* counts = tensor_of(file, value, "global_physical_count");
      if (ids == nullptr && counts == nullptr) {
        fail_input(file.where(),
                   "a record with neither topk_ids_of_layer nor global_physical_count");
      }
      if (ids != nullptr) record.ids = checked(file, *ids, 3, "topk_ids_of_layer");
      if (counts != nullptr) record.counts = checked(file, *counts, 2, "global_physical_count");
      const PickleValue* lengths = document.find(value, "extend_seq_lens");
      if (lengths != nullptr) {
        for (const PickleValue length : document.list(*lengths)) {
          std::int64_t tokens = 0;
          if (PickleDocument::as_integer(length, tokens)) record.sequence_tokens.push_back(tokens);
        }
      }
      records_.push_back(std::move(record));
    }
    const PickleTensor* map = tensor_of(file, root, "last_physical_to_logical_map");
    if (map == nullptr) return;
    maps_.push_back(checked(file, *map, 2, "last_physical_to_logical_map"));
  }

  static ArrayView checked(const TorchFile& file, const PickleTensor& tensor, std::size_t rank,
                           const char* name) {
    ArrayView view = file.view(tensor);
    if (view.rank() != rank || !is_integer(view.type)) {
      fail_input(file.where(),
                 fmt::format("{}: expected whole numbers in {} dimensions, found {} {}", name, rank,
                             element_name(view.type), view.shape_text()));
    }
    return view;
  }

  void fill_info(RoutingInput& input) {
    InputInfo& info = input.info;
    const Record& first = records_.front();
    const bool has_ids = first.ids.rank() == 3;
    const std::int64_t num_layers = has_ids ? first.ids.shape[0] : first.counts.shape[0];
    std::int64_t num_slots = first.counts.rank() == 2 ? first.counts.shape[1] : 0;
    for (const Record& record : records_) {
      const bool fits =
          (record.ids.rank() == 3) == has_ids &&
          (!has_ids ||
           (record.ids.shape[0] == num_layers && record.ids.shape[2] == first.ids.shape[2])) &&
          (record.counts.rank() != 2 ||
           (record.counts.shape[0] == num_layers && record.counts.shape[1] == num_slots));
      if (!fits) {
        fail_input(request_.where(),
                   fmt::format("the record of pass {} rank {} has other layers, slots "
                               "or modes than the first",
                               record.pass, record.rank));
      }
    }
    read_placement(input, num_layers, num_slots);
    check_shape(request_.where(), num_layers, info.num_experts);
    info.layers = number_layers(num_layers, request_.options.first_layer);
    info.num_shared_experts = request_.options.num_shared_experts;
    std::set<std::int32_t> ranks;
    for (const Record& record : records_) ranks.insert(static_cast<std::int32_t>(record.rank));
    info.ranks.assign(ranks.begin(), ranks.end());
    if (!has_ids) return;
    info.has_tokens = true;
    info.top_k = static_cast<std::int32_t>(first.ids.shape[2]);
    for (const Record& record : records_) info.has_requests |= !record.sequence_tokens.empty();
  }

  void read_placement(RoutingInput& input, std::int64_t num_layers, std::int64_t num_slots) {
    InputInfo& info = input.info;
    if (maps_.empty()) {
      if (num_slots == 0 && !request_.options.num_experts.has_value()) {
        fail_input(request_.where(),
                   "neither last_physical_to_logical_map nor counts say how many "
                   "experts there are; give --experts");
      }
      info.num_experts =
          request_.options.num_experts.value_or(static_cast<std::int32_t>(num_slots));
      add_observation(input.observations, "placement.unknown", 1,
                      "no last_physical_to_logical_map: slots are taken for experts");
      return;
    }
    const ArrayView& map = maps_.front();
    if (map.shape[0] != num_layers || (num_slots != 0 && map.shape[1] != num_slots)) {
      fail_input(request_.where(), "last_physical_to_logical_map: expected " +
                                       fmt::format("[{}, {}]", num_layers, num_slots) + ", found " +
                                       map.shape_text());
    }
    check_shape(request_.where(), map.shape[0], map.shape[1]);
    info.num_slots = map.shape[1];
    std::vector<std::int32_t> row(static_cast<std::size_t>(info.num_slots));
    std::int64_t num_other = 0;
    for (std::int64_t l = 0; l < num_layers; ++l) {
      read_integers(map.at(l), 0, std::span(row));
      info.physical_to_logical.insert(info.physical_to_logical.end(), row.begin(), row.end());
      for (std::size_t i = 1; i < maps_.size(); ++i) num_other += differs(maps_[i], map, l, row);
    }
    const auto [least, most] =
        std::minmax_element(info.physical_to_logical.begin(), info.physical_to_logical.end());
    if (*least < 0 || *most >= info.num_slots) {
      fail_input(request_.where(),
                 fmt::format("last_physical_to_logical_map: expected experts from 0 to "
                             "{}, found {} to {}",
                             info.num_slots - 1, *least, *most));
    }
    info.num_experts = std::max(request_.options.num_experts.value_or(0), *most + 1);
    if (num_other > 0) {
      add_observation(input.observations, "placement.mixed", num_other,
                      "the files hold different placements: they come from different times");
    }
    add_observation(input.observations, "placement.last_only", 1,
                    "the dump holds the last placement only; if experts moved while it was "
                    "recorded, earlier passes are attributed to the wrong experts");
  }

  static std::int64_t differs(const ArrayView& other, const ArrayView& map, std::int64_t layer,
                              const std::vector<std::int32_t>& row) {
    if (other.shape != map.shape) return 1;
    std::vector<std::int32_t> other_row(row.size());
    read_integers(other.at(layer), 0, std::span(other_row));
    return other_row != row ? 1 : 0;
  }

  void make_token_source(RoutingInput& input) {
    SegmentPlan plan;
    plan.num_tokens = 0;
    auto records = std::make_shared<std::vector<Record>>();
    std::int64_t num_repeated = 0;
    for (const Record& record : records_) {
      // Without data parallelism every rank records the same tokens.
      const bool repeats = !records->empty() && records->back().pass == record.pass &&
                           same_ids(records->back().ids, record.ids);
      if (repeats) {
        ++num_repeated;
        continue;
      }
      plan.num_tokens += record.ids.shape[1];
      records->push_back(record);
    }
    if (num_repeated > 0) {
      add_observation(input.observations, "records.same_on_ranks", num_repeated,
                      "several ranks recorded the same tokens in one pass; they count once");
    }
    plan.num_segments = static_cast<std::int64_t>(records->size());
    plan.fill = [records](std::int64_t segment_idx, TokenSegment& segment) {
      const Record& record = (*records)[static_cast<std::size_t>(segment_idx)];
      segment.step = record.pass;
      segment.phase = record.phase;
      segment.num_tokens = record.ids.shape[1];
      std::int64_t sum = 0;
      for (const std::int64_t tokens : record.sequence_tokens) sum += tokens > 0 ? tokens : 0;
      // Lengths that do not add up belong to another rank's batch or hold padding.
      if (sum == segment.num_tokens) segment.sequence_tokens = record.sequence_tokens;
      for (std::int64_t l = 0; l < record.ids.shape[0]; ++l) {
        segment.rows.push_back(record.ids.at(l));
      }
    };
    for (const TorchFile& file : *files_) plan.maps.push_back(file.map());
    input.tokens = make_segment_source(input.info, std::move(plan), request_.options.block_tokens);
  }

  static bool same_ids(const ArrayView& a, const ArrayView& b) {
    if (a.shape != b.shape || a.num_elements() == 0) return false;
    std::vector<std::int64_t> left(static_cast<std::size_t>(a.shape[2]));
    std::vector<std::int64_t> right(left.size());
    for (std::int64_t l = 0; l < a.shape[0]; ++l) {
      const ArrayView rows_a = a.at(l);
      const ArrayView rows_b = b.at(l);
      for (std::int64_t t = 0; t < a.shape[1]; ++t) {
        read_integers(rows_a.at(t), 0, std::span(left));
        read_integers(rows_b.at(t), 0, std::span(right));
        if (left != right) return false;
      }
    }
    return true;
  }

  // Records of one pass are the ranks' shares of it.
  void make_record_counts(RoutingInput& input) {
    auto passes = std::make_shared<std::vector<std::pair<std::int64_t, std::vector<ArrayView>>>>();
    for (const Record& record : records_) {
      if (passes->empty() || passes->back().first != record.pass) {
        passes->push_back({record.pass, {}});
      }
      passes->back().second.push_back(record.counts);
    }
    CountPlan plan;
    plan.num_steps = static_cast<std::int64_t>(passes->size());
    plan.fill = [passes](std::int64_t step_idx, std::vector<CountPart>& parts) {
      const auto& [pass, shares] = (*passes)[static_cast<std::size_t>(step_idx)];
      for (const ArrayView& share : shares) {
        for (std::int64_t l = 0; l < share.shape[0]; ++l) parts.push_back({l, share.at(l)});
      }
      return pass;
    };
    for (const TorchFile& file : *files_) plan.maps.push_back(file.map());
    input.counts = make_count_source(input.info, std::move(plan));
  }

  // Passes or ranks that are not there.
  void observe_passes(RoutingInput& input) const {
    std::map<std::int64_t, std::set<std::int64_t>> ranks_of_pass;
    for (const Record& record : records_) ranks_of_pass[record.pass].insert(record.rank);
    const std::int64_t expected = ranks_of_pass.rbegin()->first - ranks_of_pass.begin()->first + 1;
    const auto num_passes = static_cast<std::int64_t>(ranks_of_pass.size());
    if (expected > num_passes) {
      add_observation(input.observations, "steps.gap", expected - num_passes,
                      fmt::format("{} of the passes {} to {} are in the dump", num_passes,
                                  ranks_of_pass.begin()->first, ranks_of_pass.rbegin()->first));
    }
    const auto num_ranks = static_cast<std::int64_t>(input.info.ranks.size());
    std::int64_t num_missing = input.info.ranks.back() + 1 - num_ranks;
    std::string detail = fmt::format("ranks up to {} recorded, {} of them are in the dump",
                                     input.info.ranks.back(), num_ranks);
    for (const auto& [pass, ranks] : ranks_of_pass) {
      const auto present = static_cast<std::int64_t>(ranks.size());
      if (present == num_ranks) continue;
      if (num_missing == 0) {
        detail = fmt::format("pass {} has records of {} of {} ranks", pass, present, num_ranks);
      }
      num_missing += num_ranks - present;
    }
    if (num_missing > 0) add_observation(input.observations, "ranks.missing", num_missing, detail);
  }

  const ReaderRequest& request_;
  Files files_;
  std::vector<Record> records_;
  std::vector<ArrayView> maps_;
};

}  // namespace

RoutingInput open_torch_dump(const ReaderRequest& request) {
  return DumpReader(request).read();
}

}  // namespace moe::routing
