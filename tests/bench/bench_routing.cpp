// Metrics over a token trace: assignments per second on one core, from memory and from a file with
// all its checks.

#include <filesystem>
#include <fstream>
#include <string>

#include <benchmark/benchmark.h>
#include <unistd.h>

#include "lib/base/rng.hpp"
#include "lib/routing/open_input.hpp"
#include "lib/routing/sanity.hpp"
#include "lib/routing/skew.hpp"
#include "lib/routing/synthetic.hpp"
#include "lib/routing/token_tally.hpp"
#include "lib/routing/windows.hpp"

namespace moe::routing {
namespace {

// The shape of DeepSeek-V3: 58 MoE layers of 256 experts, 8 a token; 2,048 tokens.
SyntheticSpec large_spec() {
  SyntheticSpec spec;
  spec.num_layers = 58;
  spec.num_experts = 256;
  spec.top_k = 8;
  spec.num_tokens = 2048;
  return spec;
}

// A .npy file of ids [tokens, 58, 8] of one byte.
class IdFile {
 public:
  explicit IdFile(std::int64_t num_tokens)
      : path_(std::filesystem::temp_directory_path() /
              ("bench_routing." + std::to_string(::getpid()) + ".npy")) {
    std::string header = "{'descr': '|u1', 'fortran_order': False, 'shape': (" +
                         std::to_string(num_tokens) + ", 58, 8), }";
    while ((10 + header.size() + 1) % 64 != 0) header += ' ';
    header += '\n';
    std::ofstream out(path_, std::ios::binary);
    const auto length = static_cast<std::uint16_t>(header.size());
    out.write("\x93NUMPY\x01\x00", 8);
    out.write(reinterpret_cast<const char*>(&length), 2);
    out << header;
    Rng rng(1);
    std::string row(8, '\0');
    for (std::int64_t r = 0; r < num_tokens * 58; ++r) {
      const std::uint64_t first = rng.next_bits();
      for (std::uint64_t k = 0; k < 8; ++k) {
        row[k] = static_cast<char>(((first & 31U) + 31U * k) % 254U);
      }
      out << row;
    }
  }
  IdFile(const IdFile&) = delete;
  IdFile& operator=(const IdFile&) = delete;
  ~IdFile() { std::filesystem::remove(path_); }
  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

void add_skew(const InputInfo& info, std::span<const std::int64_t> counts) {
  for (std::int64_t l = 0; l < info.num_layers(); ++l) {
    benchmark::DoNotOptimize(skew_of(counts.subspan(static_cast<std::size_t>(l * info.num_experts),
                                                    static_cast<std::size_t>(info.num_experts))));
  }
}

void metrics_from_memory(benchmark::State& state) {
  RoutingInput input = make_synthetic(large_spec(), 2048);
  std::vector<TokenBlock> blocks;
  for (TokenBlock block; input.tokens->next(block);) blocks.push_back(block);
  for (auto _ : state) {
    TokenTally tally(input.info);
    for (const TokenBlock& block : blocks) tally.add(block, 0, block.num_tokens);
    add_skew(input.info, tally.counts());
  }
  state.SetItemsProcessed(state.iterations() * 2048 * 58 * 8);
}
BENCHMARK(metrics_from_memory)->Unit(benchmark::kMillisecond);

void metrics_from_file(benchmark::State& state) {
  const IdFile file(16384);
  OpenOptions options;
  options.num_experts = 256;
  for (auto _ : state) {
    RoutingInput input = open_input(file.path(), options);
    const ExpertCounts counts = count_windows(input, parse_window("256tokens"));
    const std::vector<std::int64_t> total = counts.total();
    add_skew(counts.info, total);
  }
  state.SetItemsProcessed(state.iterations() * 16384 * 58 * 8);
}
BENCHMARK(metrics_from_file)->Unit(benchmark::kMillisecond);

void sanity_checks_from_file(benchmark::State& state) {
  const IdFile file(16384);
  OpenOptions options;
  options.num_experts = 256;
  for (auto _ : state) {
    RoutingInput input = open_input(file.path(), options);
    benchmark::DoNotOptimize(check_input(input));
  }
  state.SetItemsProcessed(state.iterations() * 16384 * 58 * 8);
}
BENCHMARK(sanity_checks_from_file)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace moe::routing
