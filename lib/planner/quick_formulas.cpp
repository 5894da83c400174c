#include "lib/planner/quick_formulas.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/planner/kv.hpp"
#include "lib/planner/quick_parts.hpp"

namespace moe::planner {
namespace quick {
namespace {

// A token's vector as FP8 with one FP32 scale for 128 values, or as BF16.
constexpr double kScaleGroup = 128.0;

double either(std::int64_t given, double own) {
  return given > 0 ? static_cast<double>(given) : own;
}

Geometry geometry_of(const model::Architecture& architecture, const QuickInputs& in) {
  const auto layer = std::find_if(
      architecture.layers.begin(), architecture.layers.end(),
      [](const model::LayerSpec& one) { return one.ffn.kind == model::FfnKind::kMoe; });
  const model::FfnSpec& ffn = layer->ffn;
  const model::ParameterSummary parameters = model::count_parameters(architecture);
  Geometry g;
  g.true_hidden = static_cast<double>(architecture.hidden_size);
  g.true_top_k = ffn.top_k;
  g.moe_layers = architecture.num_moe_layers();
  g.hidden = either(in.hidden_size, g.true_hidden);
  g.layers = either(in.num_layers, static_cast<double>(architecture.layers.size()));
  g.ffn = either(in.ffn_width, ffn.expert_width);
  g.experts = either(in.num_experts, ffn.num_experts);
  g.top_k = either(in.top_k, ffn.top_k);
  g.num_matrices = ffn.is_gated ? 3.0 : 2.0;
  const double input_width = ffn.expert_input > 0 ? ffn.expert_input : g.true_hidden;
  g.expert_elements = g.num_matrices * input_width * ffn.expert_width;
  g.all_expert_elements = static_cast<double>(parameters.of(model::Part::kRoutedExperts));
  for (const model::WeightGroup& group : architecture.weights) {
    const auto first_moe = static_cast<std::int32_t>(layer - architecture.layers.begin());
    if (group.part == model::Part::kRoutedExperts && group.layer == first_moe && group.count > 0) {
      g.one_expert_bytes +=
          static_cast<double>(group.bytes()) / static_cast<double>(ffn.num_experts);
    }
  }
  const StageRange all{0, static_cast<std::int32_t>(architecture.layers.size())};
  g.kv_token_bytes = kv_per_token(architecture, Layout{}, in.fit.kv, all).uniform();
  g.total_parameters = static_cast<double>(parameters.total);
  g.active_parameters = static_cast<double>(parameters.active_without_input_embedding);
  g.combine_bytes = 2.0 * g.true_hidden;
  g.dispatch_bytes =
      in.has_fp8_dispatch ? g.true_hidden + 4.0 * g.true_hidden / kScaleGroup : g.combine_bytes;
  return g;
}

}  // namespace

void add_traffic_rows(const Geometry& g, const QuickInputs& in, std::vector<QuickRow>& rows) {
  const double ranks = in.num_ranks;
  const double remote = (ranks - 1.0) / ranks;
  // One vector out and back, BF16.
  const double quick_vector = 2.0 * g.hidden * 2.0;
  const double quick_layer = g.top_k * quick_vector * kPracticalRatio * 1000.0;
  const double right_copy = g.dispatch_bytes + g.combine_bytes;
  const double right_layer = g.true_top_k * right_copy * remote;
  const double right_token = g.moe_layers * right_layer;
  const double right_total = static_cast<double>(in.tokens) * right_token;
  rows.push_back({"traffic.routing_decisions", "Expert uses of one token", "experts x top_k",
                  "MoE layers x top_k", "1", g.experts * g.top_k, g.moe_layers * g.true_top_k,
                  "A router decides once in every MoE layer; the number of experts is no number of "
                  "layers."});
  rows.push_back({"traffic.token_layer_bytes", "Bytes of one token in one layer, out and back",
                  "2 x hidden x 2 bytes", "top_k x hidden x (dispatch + combine bytes)", "bytes",
                  quick_vector, g.true_top_k * right_copy,
                  "The short formula moves one vector; a token goes to top_k experts, each with "
                  "its own copy, and FP8 dispatch needs scales."});
  rows.push_back({"traffic.int8_token_bytes", "The same for one expert when the tokens are 8 bit",
                  "hidden x 2 x 1 byte", "hidden x (1 byte out + 2 bytes back)", "bytes",
                  2.0 * g.hidden, 3.0 * g.true_hidden,
                  "Only the dispatch shrinks: results come back in 16 bit in the engines that "
                  "quantise at all."});
  rows.push_back({"traffic.remote_share",
                  fmt::format("Share of the traffic that leaves its GPU, {} GPUs", in.num_ranks),
                  "3/4", "(P - 1) / P", "1", kPracticalRatio, remote,
                  "With uniform routing only 1/P of the experts are at home."});
  rows.push_back({"traffic.layer_bytes", "Remote bytes of one token in one layer",
                  "top_k x 2 x hidden x 2 x 3/4, read as kB",
                  "top_k x (dispatch + combine) x (P - "
                  "1)/P",
                  "bytes", quick_layer, right_layer,
                  "Kilobytes were written as megabytes: a factor of 1000."});
  rows.push_back({"traffic.all_layers_bytes", "Remote bytes of one token in all layers",
                  "layers x the line above", "MoE layers x the line above", "bytes",
                  g.layers * quick_layer, right_token,
                  "The factor of 1000 again, and only MoE layers exchange tokens."});
  rows.push_back({"traffic.batch_bytes", fmt::format("Remote bytes of {} tokens", in.tokens),
                  "tokens x the line above, compared with HBM bandwidth", "tokens x the line above",
                  "bytes", static_cast<double>(in.tokens) * g.layers * quick_layer, right_total,
                  "Off by 1000; and a volume is not a bandwidth, and the link is the interconnect, "
                  "not the memory."});
  const double link = in.gpu.scale_up_bytes_per_s;
  QuickRow time{"traffic.batch_time",
                "Time of that exchange on the scale-up link",
                "bytes / HBM bandwidth",
                "bytes / P / link rate in one direction",
                "s",
                std::nullopt,
                std::nullopt,
                "Each GPU sends its share over its own link, in one direction at a time."};
  if (in.gpu.memory_bytes_per_s > 0.0) {
    time.quick =
        static_cast<double>(in.tokens) * g.layers * quick_layer / in.gpu.memory_bytes_per_s;
  }
  if (link > 0.0) time.right = right_total / ranks / link;
  rows.push_back(time);
}

}  // namespace quick

std::optional<double> QuickRow::factor() const {
  if (!quick || !right || *quick == 0.0) return std::nullopt;
  return *right / *quick;
}

std::vector<QuickRow> quick_rows(const model::Architecture& architecture,
                                 const QuickInputs& inputs) {
  if (!architecture.is_moe()) {
    throw Error(
        ErrorCode::kUsage,
        fmt::format("the quick formulas are about experts, and {} has none", architecture.name));
  }
  const quick::Geometry g = quick::geometry_of(architecture, inputs);
  std::vector<QuickRow> rows;
  quick::add_traffic_rows(g, inputs, rows);
  quick::add_memory_rows(architecture, g, inputs, rows);
  quick::add_cache_rows(architecture, g, inputs, rows);
  quick::add_format_rows(g, inputs, rows);
  quick::add_hardware_rows(inputs, rows);
  return rows;
}

}  // namespace moe::planner
