// Attention of one key/value head on one thread, at every level that this machine runs: a prompt
// (FLOP/s) and one decoded token (bytes/s of keys and values).

#include <algorithm>
#include <string>

#include <benchmark/benchmark.h>

#include "kernels/api.hpp"
#include "lib/base/aligned_buffer.hpp"

namespace moe::kernels {
namespace {

struct Shape {
  const char* name;
  std::int64_t num_heads;
  std::int64_t k_dim;
  std::int64_t v_dim;
  bool has_key_panels;  // as the engine keeps keys, or in rows as the latents of MLA
};

// Query heads that share a key/value head: 1 in OLMoE, 4 in Mixtral, 8 in Qwen3 MoE; DeepSeek-V2
// keys are longer than its values.
constexpr Shape kShapes[] = {{"olmoe", 1, 128, 128, true},
                             {"mixtral", 4, 128, 128, true},
                             {"qwen3", 8, 128, 128, true},
                             {"mla", 1, 192, 128, false}};

void run(benchmark::State& state, const KernelTable& table, const Shape& shape,
         std::int64_t num_queries, std::int64_t num_keys) {
  const std::int64_t rows = num_queries * shape.num_heads;
  AlignedBuffer<float> q(rows * shape.k_dim);
  AlignedBuffer<float> k((num_keys + kKeyPanelKeys - 1) / kKeyPanelKeys * kKeyPanelKeys *
                         shape.k_dim);
  AlignedBuffer<float> v(num_keys * shape.v_dim);
  AlignedBuffer<float> out(rows * shape.v_dim);
  AlignedBuffer<float> scratch(
      attention_scratch_floats(shape.num_heads, num_keys - 1, shape.v_dim));
  std::fill_n(q.data(), q.size(), 0.1F);
  std::fill_n(k.data(), k.size(), 0.1F);
  std::fill_n(v.data(), v.size(), 0.1F);
  const AttentionArgs args{.q = q.data(),
                           .q_stride = shape.num_heads * shape.k_dim,
                           .q_head_stride = shape.k_dim,
                           .num_queries = num_queries,
                           .num_heads = shape.num_heads,
                           .first_position = num_keys - num_queries,
                           .k = k.data(),
                           .k_stride = shape.k_dim,
                           .k_panel_stride = shape.has_key_panels ? kKeyPanelKeys * shape.k_dim : 0,
                           .k_dim = shape.k_dim,
                           .v = v.data(),
                           .v_stride = shape.v_dim,
                           .v_dim = shape.v_dim,
                           .scale = 0.1F,
                           .out = out.data(),
                           .out_stride = shape.num_heads * shape.v_dim,
                           .out_head_stride = shape.v_dim,
                           .scratch = scratch.data()};
  for (auto _ : state) {
    table.attention(args);
    benchmark::ClobberMemory();
  }
  // Query i of the call sees num_keys - num_queries + i + 1 keys.
  const double visible =
      static_cast<double>(num_queries) *
      (static_cast<double>(num_keys) - (static_cast<double>(num_queries) - 1.0) / 2.0);
  const auto dims = static_cast<double>(shape.k_dim + shape.v_dim);
  const auto iterations = static_cast<double>(state.iterations());
  state.counters["FLOP/s"] =
      benchmark::Counter(2.0 * dims * visible * static_cast<double>(shape.num_heads) * iterations,
                         benchmark::Counter::kIsRate);
  state.counters["kv_bytes/s"] = benchmark::Counter(
      4.0 * dims * static_cast<double>(num_keys) * iterations, benchmark::Counter::kIsRate);
}

void register_level(const KernelTable& table) {
  const std::string level = isa_name(table.isa);
  for (const Shape& shape : kShapes) {
    const std::string suffix = "/" + level + "/" + shape.name + "/";
    benchmark::RegisterBenchmark(
        ("prefill" + suffix + "512").c_str(),
        [&table, &shape](benchmark::State& state) { run(state, table, shape, 512, 512); });
    for (const std::int64_t num_keys : {512, 8192, 131072}) {
      benchmark::RegisterBenchmark(("decode" + suffix + std::to_string(num_keys)).c_str(),
                                   [&table, &shape, num_keys](benchmark::State& state) {
                                     run(state, table, shape, 1, num_keys);
                                   });
    }
  }
}

}  // namespace
}  // namespace moe::kernels

int main(int argc, char** argv) {
  using namespace moe::kernels;
  for (int level = 0; level < kNumIsas; ++level) {
    const KernelTable* table = kernel_table(static_cast<Isa>(level));
    if (table != nullptr) {
      register_level(*table);
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
