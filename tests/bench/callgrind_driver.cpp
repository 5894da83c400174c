// Fixed work of the hot kernels, one case after another, for scripts/callgrind.py: valgrind counts
// the instructions inside moe_counted_work() and writes a file each time it is left. Prints what
// was built, then the name of each case, in order.
//
//   callgrind_driver [PREFIX]    only the cases whose name begins with PREFIX

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/api.hpp"
#include "lib/base/aligned_buffer.hpp"
#include "lib/engine/router.hpp"
#include "lib/model/tokenizer.hpp"
#include "tests/bench/weights.hpp"

using Work = std::function<void()>;

extern "C" __attribute__((noinline)) void moe_counted_work(const Work& work) {
  work();
}

namespace moe::kernels {
namespace {

using bench::Format;
using bench::Int8Activations;
using bench::Weights;

constexpr std::int64_t kCols = 256;
constexpr std::int64_t kRows = 64;

struct Case {
  std::string name;
  std::function<Work()> prepare;  // what it returns is counted
};

AlignedBuffer<float> filled(std::int64_t count, float value) {
  AlignedBuffer<float> buffer(count);
  std::fill_n(buffer.data(), count, value);
  return buffer;
}

struct ProductData {
  ProductData(const Format& format, std::int64_t outputs, std::int64_t num_rows)
      : weights(format, outputs, kCols, 1),
        x(filled(num_rows * kCols, 0.01F)),
        y(num_rows * outputs) {}

  Weights weights;
  AlignedBuffer<float> x;
  AlignedBuffer<float> y;
};

Work prepare_gemm(const KernelTable& table, const Format& format, std::int64_t num_rows) {
  auto data = std::make_shared<ProductData>(format, kRows, num_rows);
  return [data, &table, num_rows] {
    GemmArgs args;
    args.weight = data->weights.view;
    args.panel_end = kRows / kPanelRows;
    args.x = data->x.data();
    args.x_stride = kCols;
    args.num_rows = num_rows;
    args.y = data->y.data();
    args.y_stride = kRows;
    table.gemm(args);
  };
}

Work prepare_gemm_int8(const KernelTable& table, const Format& format, std::int64_t num_rows) {
  struct Data : ProductData {
    Data(const Format& of, std::int64_t rows)
        : ProductData(of, kRows, rows), codes(weights.view, rows) {}
    Int8Activations codes;
  };
  auto data = std::make_shared<Data>(format, num_rows);
  return [data, &table, num_rows] {
    GemmArgs args;
    args.weight = data->weights.view;
    args.panel_end = kRows / kPanelRows;
    data->codes.set(args);
    args.num_rows = num_rows;
    args.y = data->y.data();
    args.y_stride = kRows;
    table.gemm_int8(args);
  };
}

Work prepare_quantize(const KernelTable& table) {
  struct Data {
    AlignedBuffer<float> x = filled(2048, 0.3F);
    AlignedBuffer<std::int8_t> codes{2048};
    AlignedBuffer<float> scales{64};
    AlignedBuffer<std::int32_t> sums{64};
  };
  auto data = std::make_shared<Data>();
  return [data, &table] {
    for (int i = 0; i < 100; ++i) {
      table.quantize_row(
          {data->x.data(), 2048, 32, data->codes.data(), data->scales.data(), data->sums.data()});
    }
  };
}

Work prepare_gate_up(const KernelTable& table, const Format& format, std::int64_t num_rows) {
  auto data = std::make_shared<ProductData>(format, 2 * kRows, num_rows);
  return [data, &table, num_rows] {
    GateUpArgs args;
    args.weight = data->weights.view;
    args.pair_end = kRows / kPanelRows;
    args.x = data->x.data();
    args.x_stride = kCols;
    args.num_rows = num_rows;
    args.h = data->y.data();
    args.h_stride = kRows;
    args.intermediate = kRows;
    table.gemm_gate_up(args);
  };
}

// Four query heads on one key/value head, as in Mixtral; keys in panels, whose number is a multiple
// of 16 here.
struct AttentionData {
  static constexpr std::int64_t kHeads = 4;
  static constexpr std::int64_t kDim = 128;

  AttentionData(std::int64_t num_queries, std::int64_t num_keys)
      : q(filled(num_queries * kHeads * kDim, 0.1F)),
        k(filled(num_keys * kDim, 0.1F)),
        v(filled(num_keys * kDim, 0.1F)),
        out(num_queries * kHeads * kDim),
        scratch(attention_scratch_floats(kHeads, num_keys - 1, kDim)) {}

  AlignedBuffer<float> q, k, v, out, scratch;
};

Work prepare_attention(const KernelTable& table, std::int64_t num_queries, std::int64_t num_keys) {
  using Data = AttentionData;
  auto data = std::make_shared<Data>(num_queries, num_keys);
  return [data, &table, num_queries, num_keys] {
    AttentionArgs args;
    args.q = data->q.data();
    args.q_stride = Data::kHeads * Data::kDim;
    args.q_head_stride = Data::kDim;
    args.num_queries = num_queries;
    args.num_heads = Data::kHeads;
    args.first_position = num_keys - num_queries;
    args.k = data->k.data();
    args.k_panel_stride = kKeyPanelKeys * Data::kDim;
    args.k_dim = Data::kDim;
    args.v = data->v.data();
    args.v_stride = Data::kDim;
    args.v_dim = Data::kDim;
    args.scale = 0.1F;
    args.out = data->out.data();
    args.out_stride = Data::kHeads * Data::kDim;
    args.out_head_stride = Data::kDim;
    args.scratch = data->scratch.data();
    table.attention(args);
  };
}

Work prepare_rms_norm(const KernelTable& table) {
  constexpr std::int64_t kSize = 2048;
  auto data = std::make_shared<std::pair<AlignedBuffer<float>, AlignedBuffer<float>>>(
      filled(kSize, 0.5F), filled(kSize, 1.0F));
  return [data, &table] {
    for (int i = 0; i < 100; ++i) {
      table.rms_norm(data->first.data(), data->second.data(), kSize, 1e-5F, data->first.data());
    }
  };
}

// 8 of 128 experts, softmax, as in Qwen3: 100 tokens with logits in no order.
Work prepare_router() {
  struct Data {
    std::vector<float> logits = std::vector<float>(128);
    std::vector<float> scratch;
    std::vector<std::int32_t> ids = std::vector<std::int32_t>(8);
    std::vector<float> weights = std::vector<float>(8);
  };
  auto data = std::make_shared<Data>();
  for (std::size_t i = 0; i < data->logits.size(); ++i) {
    data->logits[i] = static_cast<float>(i * 37 % 128) / 16.0F;
  }
  data->scratch.resize(static_cast<std::size_t>(engine::route_scratch_floats(128)));
  return [data] {
    const model::RouterRule rule;
    for (int token = 0; token < 100; ++token) {
      engine::route(rule, data->logits, nullptr, 8, data->scratch.data(), data->ids.data(),
                    data->weights.data());
    }
  };
}

Work prepare_tokenizer() {
  const auto file =
      std::filesystem::path(MOE_SOURCE_DIR) / "scenarios/checkpoints/tinymoe-qwen3/tokenizer.json";
  auto tokenizer = std::make_shared<model::Tokenizer>(model::Tokenizer::load(file));
  std::string text;
  for (int i = 0; i < 100; ++i) {
    text += "The router sends token " + std::to_string(i * 7919) + " to its experts, doesn't it?\n";
  }
  static_cast<void>(tokenizer->encode(text, false));  // what happens once happens before
  return [tokenizer, text] { static_cast<void>(tokenizer->encode(text, false)); };
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2}) {
    const KernelTable* const table = kernel_table(isa);
    if (table == nullptr) continue;
    const std::string level = isa_name(isa);
    for (const Format& format : bench::kFormats) {
      for (const std::int64_t rows : {1, 8, 32}) {
        const std::string suffix = "/" + level + "/" + format.name + "/" + std::to_string(rows);
        cases.push_back({"gemm" + suffix,
                         [table, &format, rows] { return prepare_gemm(*table, format, rows); }});
        if (format.format == WeightFormat::kInt8 || format.format == WeightFormat::kInt4) {
          cases.push_back({"gemm_int8" + suffix, [table, &format, rows] {
                             return prepare_gemm_int8(*table, format, rows);
                           }});
        }
        cases.push_back({"gate_up" + suffix,
                         [table, &format, rows] { return prepare_gate_up(*table, format, rows); }});
      }
    }
    cases.push_back({"attention/" + level + "/prefill_64",
                     [table] { return prepare_attention(*table, 64, 64); }});
    cases.push_back({"attention/" + level + "/decode_1024",
                     [table] { return prepare_attention(*table, 1, 1024); }});
    cases.push_back({"quantize_row/" + level, [table] { return prepare_quantize(*table); }});
    cases.push_back({"rms_norm/" + level, [table] { return prepare_rms_norm(*table); }});
  }
  cases.push_back({"router", prepare_router});
  cases.push_back({"tokenizer_encode", prepare_tokenizer});
  return cases;
}

}  // namespace
}  // namespace moe::kernels

int main(int argc, char** argv) {
  const std::string_view prefix = argc > 1 ? argv[1] : "";
#if defined(NDEBUG)
  const char* const build = "release";
#else
  const char* const build = "debug";
#endif
  std::printf("compiler %s\nbuild %s\n", __VERSION__, build);
  for (const moe::kernels::Case& entry : moe::kernels::all_cases()) {
    if (entry.name.compare(0, prefix.size(), prefix) != 0) continue;
    const Work work = entry.prepare();
    moe_counted_work(work);
    std::printf("case %s\n", entry.name.c_str());
  }
  return 0;
}
