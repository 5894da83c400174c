// The other ways in which compressed-tensors stores a matrix, made from a tiny checkpoint of signed
// bytes with a scale a row: words of eight bits, and FP8 with scales of every kind.

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/base/error.hpp"
#include "lib/base/int_math.hpp"
#include "lib/model/accounting.hpp"
#include "lib/model/bound_model.hpp"
#include "lib/model/dtype.hpp"
#include "lib/model/safetensors.hpp"
#include "lib/model/safetensors_writer.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::model {
namespace {

namespace fs = std::filesystem;

const fs::path kSource = fs::path(MOE_SOURCE_DIR) / "scenarios/checkpoints/ct-w8a8";

struct Tensor {
  std::string name;
  Dtype dtype = Dtype::kBf16;
  Shape shape;
  std::string bytes;
};

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

void replace_once(std::string& text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
}

// The source with `edits` in its config.json and, for each matrix of codes "MODULE.weight", the
// tensors that `rewrite` gives instead of it and of its scales.
void copy_rewritten(
    const fs::path& directory, const std::vector<std::pair<std::string, std::string>>& edits,
    const std::function<std::vector<Tensor>(const Tensor& codes, const Tensor& scales)>& rewrite) {
  fs::create_directory(directory);
  std::string config = test::read_file(kSource / "config.json");
  for (const auto& [from, to] : edits) replace_once(config, from, to);
  test::write_file(directory / "config.json", config);
  const SafetensorsFile file(kSource / "model.safetensors");
  const auto read = [&file](const TensorEntry& entry) {
    const auto bytes = file.ref(entry).bytes;
    return Tensor{entry.name,
                  entry.dtype,
                  entry.shape,
                  {reinterpret_cast<const char*>(bytes.data()), bytes.size()}};
  };
  std::vector<Tensor> tensors;
  for (const TensorEntry& entry : file.entries()) {
    if (entry.name.ends_with("weight_scale")) continue;
    Tensor tensor = read(entry);
    if (tensor.dtype != Dtype::kI8) {
      tensors.push_back(std::move(tensor));
      continue;
    }
    for (const TensorEntry& scales : file.entries()) {
      if (scales.name != tensor.name + "_scale") continue;
      for (Tensor& written : rewrite(tensor, read(scales))) tensors.push_back(std::move(written));
    }
  }
  std::vector<TensorDeclaration> declarations;
  for (const Tensor& tensor : tensors) {
    declarations.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  SafetensorsWriter writer(directory / "model.safetensors", declarations);
  for (const Tensor& tensor : tensors) {
    writer.write(std::as_bytes(std::span(tensor.bytes.data(), tensor.bytes.size())));
  }
  writer.finish();
}

struct Matrix {
  std::string name;  // empty for plain numbers
  std::vector<std::vector<float>> rows;
};

std::vector<Matrix> matrices_of(const BoundModel& model) {
  std::vector<Matrix> all;
  const auto collect = [&all](Part /*part*/, int /*layer*/, int /*expert*/,
                              const MatrixView& view) {
    Matrix& matrix = all.emplace_back();
    matrix.name = view.encoding == MatrixEncoding::kPlain ? "" : view.name;
    for (std::int64_t r = 0; r < view.rows; ++r) {
      matrix.rows.emplace_back(static_cast<std::size_t>(view.cols));
      read_matrix_row(view, r, matrix.rows.back().data());
    }
  };
  const auto skip = [](Part /*part*/, int /*layer*/, int /*expert*/, const VectorView& /*view*/) {};
  for_each_weight(model, {.matrix = collect, .vector = skip});
  return all;
}

TEST(CompressedTensors, EightBitsInWordsAreThoseInBytes) {
  const test::TempDir directory;
  copy_rewritten(directory.path() / "c", {{"int-quantized", "pack-quantized"}},
                 [](const Tensor& codes, const Tensor& scales) {
                   const std::string module = codes.name.substr(0, codes.name.size() - 7);
                   std::string words = codes.bytes;
                   for (char& code : words) code = static_cast<char>(code ^ char{-128});
                   const Shape shape = {codes.shape[0], codes.shape[1] / 4};
                   return std::vector<Tensor>{
                       {module + ".weight_packed", Dtype::kI32, shape, words},
                       {module + ".weight_shape",
                        Dtype::kI64,
                        {2},
                        bytes_of(std::vector<std::int64_t>{codes.shape[0], codes.shape[1]})},
                       scales};
                 });
  const BoundModel expected = bind_checkpoint(kSource);
  const BoundModel model = bind_checkpoint(directory.path() / "c");
  EXPECT_EQ(count_bytes(model).total, count_bytes(expected).total);
  const auto found = matrices_of(model);
  const auto right = matrices_of(expected);
  ASSERT_EQ(found.size(), right.size());
  int num_packed = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i].name.ends_with("weight_packed")) ++num_packed;
    EXPECT_EQ(found[i].rows, right[i].rows) << right[i].name;
  }
  EXPECT_GT(num_packed, 0);
}

// ---- FP8 ----

struct Fp8Case {
  std::string strategy;
  std::int64_t block_rows = 0;  // 0: all
  std::int64_t block_cols = 0;
  bool is_scalar = false;  // one scale as a tensor without dimensions
  bool has_input_scale = false;
};

void PrintTo(const Fp8Case& value, std::ostream* out) {
  *out << value.strategy;
}

std::uint8_t fp8_code(char byte) {
  const auto code = static_cast<std::uint8_t>(byte);
  return (code & 0x7fU) == 0x7fU ? static_cast<std::uint8_t>(code - 1) : code;  // not a NaN
}

float fp8_scale(std::int64_t block_row, std::int64_t block_col) {
  return 0.001F * static_cast<float>(1 + block_row % 7 + 8 * (block_col % 5));
}

void write_fp8(const fs::path& directory, const Fp8Case& kind) {
  const std::string structure =
      fmt::format("\"block_structure\": [{}, {}]", kind.block_rows, kind.block_cols);
  std::vector<std::pair<std::string, std::string>> edits = {
      {"int-quantized", "float-quantized"},
      {"\"type\": \"int\"", "\"type\": \"float\""},
      {"\"channel\"", '"' + kind.strategy + '"'}};
  if (kind.strategy == "block") edits.emplace_back("\"block_structure\": null", structure);
  copy_rewritten(directory, edits, [&kind](const Tensor& codes, const Tensor& /*scales*/) {
    const auto blocks = [](std::int64_t size, std::int64_t block) {
      return block == 0 ? 1 : div_ceil(size, block);
    };
    const Shape grid = {blocks(codes.shape[0], kind.block_rows),
                        blocks(codes.shape[1], kind.block_cols)};
    std::string fp8;
    for (const char code : codes.bytes) fp8 += static_cast<char>(fp8_code(code));
    std::vector<float> scales;
    for (std::int64_t row = 0; row < grid[0]; ++row) {
      for (std::int64_t col = 0; col < grid[1]; ++col) scales.push_back(fp8_scale(row, col));
    }
    const bool is_one = kind.block_rows == 0;
    std::vector<Tensor> tensors = {{codes.name, Dtype::kF8E4m3, codes.shape, fp8},
                                   {codes.name + "_scale", Dtype::kF32,
                                    kind.is_scalar ? Shape{}
                                    : is_one       ? Shape{1}
                                                   : grid,
                                    bytes_of(scales)}};
    if (kind.has_input_scale) {
      const std::string module = codes.name.substr(0, codes.name.size() - 7);
      tensors.push_back(
          {module + ".input_scale", Dtype::kF32, {1}, bytes_of(std::vector<float>{0.5F})});
    }
    return tensors;
  });
}

class CompressedFp8 : public ::testing::TestWithParam<Fp8Case> {};

TEST_P(CompressedFp8, RowsAreCodesTimesTheirScale) {
  const Fp8Case& kind = GetParam();
  const test::TempDir directory;
  write_fp8(directory.path() / "c", kind);
  const BoundModel model = bind_checkpoint(directory.path() / "c");
  EXPECT_EQ(model.ignored_tensors.empty(), !kind.has_input_scale);
  const SafetensorsFile source(kSource / "model.safetensors");
  int num_checked = 0;
  for (const Matrix& matrix : matrices_of(model)) {
    if (matrix.name.empty()) continue;
    const auto codes = source.at(matrix.name).bytes;
    std::size_t at = 0;
    for (std::size_t r = 0; r < matrix.rows.size(); ++r) {
      const auto row = static_cast<std::int64_t>(r);
      for (std::size_t c = 0; c < matrix.rows[r].size(); ++c, ++at) {
        const auto col = static_cast<std::int64_t>(c);
        const float scale = fp8_scale(kind.block_rows == 0 ? 0 : row / kind.block_rows,
                                      kind.block_cols == 0 ? 0 : col / kind.block_cols);
        const std::uint8_t code = fp8_code(static_cast<char>(codes[at]));
        ASSERT_EQ(matrix.rows[r][c], f8_e4m3_to_f32(code) * scale) << matrix.name;
      }
    }
    ++num_checked;
  }
  EXPECT_GT(num_checked, 0);
}

INSTANTIATE_TEST_SUITE_P(Scales, CompressedFp8,
                         ::testing::Values(Fp8Case{"channel", 1, 0}, Fp8Case{"tensor", 0, 0},
                                           Fp8Case{"tensor", 0, 0, true, true},
                                           Fp8Case{"block", 32, 32}, Fp8Case{"block", 48, 128}));

// Checkpoints of `kind` with one more edit in config.json: refused in words that name `key`.
void expect_refused(const Fp8Case& kind, const std::string& from, const std::string& to,
                    const std::string& key) {
  SCOPED_TRACE(to);
  const test::TempDir directory;
  const fs::path checkpoint = directory.path() / "c";
  write_fp8(checkpoint, kind);
  std::string config = test::read_file(checkpoint / "config.json");
  replace_once(config, from, to);
  test::write_file(checkpoint / "config.json", config);
  try {
    (void)bind_checkpoint(checkpoint);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr(key));
  }
}

TEST(CompressedFp8, WrongSettingsAreRefusedByName) {
  const Fp8Case channel = {"channel", 1, 0};
  expect_refused(channel, "\"num_bits\": 8", "\"num_bits\": 4", "num_bits");
  expect_refused(channel, "\"symmetric\": true", "\"symmetric\": false", "symmetric");
  expect_refused(channel, "\"strategy\": \"channel\"", "\"strategy\": \"group\"", "strategy");
  expect_refused(channel, "\"type\": \"float\"", "\"type\": \"int\"", "type");
  expect_refused({"block", 128, 128}, "\"block_structure\": [128, 128]",
                 "\"block_structure\": [128]", "block_structure");
}

TEST(CompressedFp8, ScalesOfAnotherShapeAreRefusedByName) {
  expect_refused({"block", 32, 32}, "\"strategy\": \"block\"", "\"strategy\": \"channel\"",
                 "weight_scale");
}

}  // namespace
}  // namespace moe::model
