#include "lib/routing/token_figures.hpp"

#include <algorithm>
#include <vector>

#include "lib/base/check.hpp"
#include "lib/routing/skew.hpp"

namespace moe::routing {
namespace {

class Collector {
 public:
  Collector(const InputInfo& info, std::int64_t num_gpus, std::int64_t num_nodes)
      : num_gpus_(num_gpus),
        num_nodes_(num_nodes),
        last_token_of_(static_cast<std::size_t>(info.num_layers() * info.num_experts), -1),
        num_experts_(info.num_experts),
        gpu_marks_(static_cast<std::size_t>(std::max<std::int64_t>(num_gpus, 1)), -1),
        node_marks_(static_cast<std::size_t>(std::max<std::int64_t>(num_nodes, 1)), -1) {
    for (std::int64_t e = 0; num_gpus > 0 && e < info.num_experts; ++e) {
      const std::int64_t gpu = linear_gpu_of(e, info.num_experts, num_gpus);
      gpu_of_.push_back(gpu);
      node_of_.push_back(num_nodes > 1 ? linear_gpu_of(gpu, num_gpus, num_nodes) : 0);
    }
  }

  void add(const TokenBlock& block) {
    for (std::int64_t t = 0; t < block.num_tokens; ++t, ++token_) {
      for (std::int64_t l = 0; l < block.num_layers; ++l) {
        add_row(block.ids_of(t, l), block.top_k, l);
        if (num_gpus_ == 0) continue;
        add_gpus(block.ids_of(t, l), block.top_k);
        if (l + 1 < block.num_layers) {
          compare_layers(block.ids_of(t, l), block.ids_of(t, l + 1), block.top_k);
        }
      }
    }
  }

  TokenFigures figures() const {
    TokenFigures result;
    result.num_tokens = token_;
    const auto ratio = [](std::int64_t part, std::int64_t all) -> std::optional<double> {
      if (all == 0) return std::nullopt;
      return static_cast<double>(part) / static_cast<double>(all);
    };
    result.reuse_of_previous_token = ratio(num_reused_, num_reusable_);
    if (num_gpus_ == 0) return result;
    result.gpus_per_token_layer = ratio(num_gpu_visits_, num_rows_);
    if (num_nodes_ > 1) result.nodes_per_token_layer = ratio(num_node_visits_, num_rows_);
    result.same_gpu_in_next_layer = ratio(num_same_, num_pairs_);
    return result;
  }

 private:
  void add_row(const std::int32_t* ids, std::int64_t top_k, std::int64_t layer) {
    std::int64_t* last = last_token_of_.data() + layer * num_experts_;
    for (std::int64_t k = 0; k < top_k; ++k) {
      if (ids[k] < 0) continue;
      if (token_ > 0) {
        ++num_reusable_;
        num_reused_ += last[ids[k]] == token_ - 1 ? 1 : 0;
      }
      last[ids[k]] = token_;
    }
  }

  void add_gpus(const std::int32_t* ids, std::int64_t top_k) {
    ++mark_;
    bool is_used = false;
    for (std::int64_t k = 0; k < top_k; ++k) {
      if (ids[k] < 0) continue;
      is_used = true;
      const auto expert = static_cast<std::size_t>(ids[k]);
      std::int64_t& gpu = gpu_marks_[static_cast<std::size_t>(gpu_of_[expert])];
      std::int64_t& node = node_marks_[static_cast<std::size_t>(node_of_[expert])];
      num_gpu_visits_ += gpu != mark_ ? 1 : 0;
      num_node_visits_ += node != mark_ ? 1 : 0;
      gpu = mark_;
      node = mark_;
    }
    num_rows_ += is_used ? 1 : 0;
  }

  // Pairs of (expert here, expert in the next layer) that share a GPU.
  void compare_layers(const std::int32_t* here, const std::int32_t* next, std::int64_t top_k) {
    for (std::int64_t a = 0; a < top_k; ++a) {
      if (here[a] < 0) continue;
      for (std::int64_t b = 0; b < top_k; ++b) {
        if (next[b] < 0) continue;
        ++num_pairs_;
        num_same_ +=
            gpu_of_[static_cast<std::size_t>(here[a])] == gpu_of_[static_cast<std::size_t>(next[b])]
                ? 1
                : 0;
      }
    }
  }

  std::int64_t num_gpus_;
  std::int64_t num_nodes_;
  std::vector<std::int64_t> last_token_of_;  // [layers, E]
  std::int64_t num_experts_;
  std::vector<std::int64_t> gpu_of_;
  std::vector<std::int64_t> node_of_;
  std::vector<std::int64_t> gpu_marks_;
  std::vector<std::int64_t> node_marks_;
  std::int64_t mark_ = 0;
  std::int64_t token_ = 0;
  std::int64_t num_reused_ = 0;
  std::int64_t num_reusable_ = 0;
  std::int64_t num_rows_ = 0;
  std::int64_t num_gpu_visits_ = 0;
  std::int64_t num_node_visits_ = 0;
  std::int64_t num_pairs_ = 0;
  std::int64_t num_same_ = 0;
};

}  // namespace

TokenFigures token_figures(RoutingInput& input, std::int64_t num_gpus, std::int64_t num_nodes) {
  MOE_CHECK(input.tokens != nullptr);
  Collector collector(input.info, num_gpus, num_nodes);
  TokenBlock block;
  input.tokens->rewind();
  while (input.tokens->next(block)) collector.add(block);
  return collector.figures();
}

}  // namespace moe::routing
