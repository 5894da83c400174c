#include "lib/planner/sweep.hpp"

#include <algorithm>
#include <utility>

namespace moe::planner {
namespace {

// "heads 40 do not divide by 16" -> "heads # do not divide by #": reasons that differ in numbers
// only are one reason.
std::string without_numbers(const std::string& text) {
  std::string result;
  for (const char c : text) {
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit) {
      result += c;
    } else if (result.empty() || result.back() != '#') {
      result += '#';
    }
  }
  return result;
}

std::int32_t host_gpus(const Accelerator& gpu) {
  return std::max({1, gpu.scale_up_gpus, gpu.gpus_per_node});
}

bool is_over_slo(const SweepSpace& space, const ServingPoint& point) {
  return (space.max_tpot_s > 0.0 && point.tpot_s > space.max_tpot_s) ||
         (space.max_ttft_s > 0.0 && point.ttft_s > space.max_ttft_s);
}

void sweep_batches(const SweepSpace& space, const Accelerator& gpu, const StepModel& model,
                   double max_requests, SweepResult& result, ParetoFront& front,
                   const std::function<void(const SweepPoint&)>& visit) {
  SweepPoint point;
  point.layout = model.layout();
  point.max_requests = max_requests;
  for (const std::int32_t batch : space.batches) {
    const double clients = static_cast<double>(batch) * model.layout().dp;
    if (clients > max_requests) {
      ++result.num_over_cache;
      continue;
    }
    point.serving = serve_closed_loop(model, space.shape, clients, max_requests);
    ++result.num_points;
    if (is_over_slo(space, point.serving)) {
      ++result.num_over_slo;
      continue;
    }
    point.batch = batch;
    if (visit) {
      point.gpu = gpu.id;
      visit(point);
    }
    front.offer(point.serving.tpot_s, point.serving.output_tokens_per_s_per_gpu, point);
  }
}

}  // namespace

bool ParetoFront::offer(double tpot_s, double tokens_per_s_per_gpu, const SweepPoint& point) {
  auto next = by_tpot_.lower_bound(tpot_s);
  // Someone at least as fast gives at least as much.
  if (next != by_tpot_.end() && next->first == tpot_s &&
      next->second.throughput >= tokens_per_s_per_gpu) {
    return false;
  }
  if (next != by_tpot_.begin() && std::prev(next)->second.throughput >= tokens_per_s_per_gpu) {
    return false;
  }
  while (next != by_tpot_.end() && next->second.throughput <= tokens_per_s_per_gpu) {
    next = by_tpot_.erase(next);
  }
  by_tpot_.emplace(tpot_s, Entry{tokens_per_s_per_gpu, point});
  return true;
}

std::vector<SweepPoint> ParetoFront::points() const {
  std::vector<SweepPoint> result;
  for (const auto& [tpot_s, entry] : by_tpot_) result.push_back(entry.point);
  return result;
}

std::vector<Layout> candidate_layouts(const model::Architecture& architecture,
                                      std::int32_t max_gpus, std::int32_t max_tp,
                                      std::int32_t max_pp) {
  std::int32_t num_experts = 1;
  for (const model::LayerSpec& layer : architecture.layers) {
    num_experts = std::max(num_experts, layer.ffn.num_experts);
  }
  std::vector<Layout> layouts;
  for (std::int32_t pp = 1; pp <= std::min(max_pp, max_gpus); pp *= 2) {
    for (std::int32_t tp = 1; tp <= max_tp && tp * pp <= max_gpus; tp *= 2) {
      for (std::int32_t dp = 1; tp * dp * pp <= max_gpus; dp *= 2) {
        for (std::int32_t ep = 1; ep <= std::min(tp * dp, num_experts); ep *= 2) {
          Layout layout;
          layout.tp = tp;
          layout.dp = dp;
          layout.pp = pp;
          layout.ep = ep;
          layouts.push_back(layout);
        }
      }
    }
  }
  return layouts;
}

SweepResult sweep(const model::Architecture& architecture, const SweepSpace& space,
                  const MeasuredTimes& measured,
                  const std::function<void(const SweepPoint&)>& visit) {
  SweepResult result;
  std::vector<ParetoFront> fronts(space.gpus.size());
  FitOptions fit_options = space.fit;
  fit_options.kv = space.setup.kv;
  fit_options.overhead.engine = space.setup.engine;
  fit_options.request_tokens =
      static_cast<std::int64_t>(space.shape.input_tokens + space.shape.output_tokens);
  for (const Layout& layout :
       candidate_layouts(architecture, space.max_gpus, space.max_tp, space.max_pp)) {
    const std::string problem = layout_problem(architecture, layout);
    if (!problem.empty()) {
      ++result.illegal[without_numbers(problem)];
      continue;
    }
    const StepProfile profile = make_step_profile(architecture, layout, space.setup.kv);
    for (std::size_t g = 0; g < space.gpus.size(); ++g) {
      const Accelerator& gpu = *space.gpus[g];
      if (layout.tp > host_gpus(gpu)) {
        ++result.illegal["tensor parallelism beyond a scale-up domain or host"];
        continue;
      }
      ++result.num_layouts;
      fit_options.memory_bytes = gpu.usable_memory_bytes();
      const FitResult room = fit(architecture, layout, fit_options);
      if (!room.fits) {
        ++result.num_not_fitting;
        continue;
      }
      const StepModel model(profile, layout, gpu, space.setup, measured);
      sweep_batches(space, gpu, model, static_cast<double>(room.max_requests), result, fronts[g],
                    visit);
    }
  }
  for (std::size_t g = 0; g < fronts.size(); ++g) {
    for (SweepPoint& point : fronts[g].points()) {
      point.gpu = space.gpus[g]->id;
      result.front.push_back(std::move(point));
    }
  }
  return result;
}

}  // namespace moe::planner
