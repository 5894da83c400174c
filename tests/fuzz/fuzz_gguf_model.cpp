// A GGUF file from arbitrary bytes, as a model and as a tokenizer: refused with a one-line Error,
// or every row of every matrix can be read.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/base/text.hpp"
#include "lib/model/accounting.hpp"
#include "lib/model/gguf_binder.hpp"
#include "lib/model/gguf_file.hpp"
#include "lib/model/gguf_tokenizer.hpp"

namespace {

void expect_one_line(const moe::Error& error) {
  const std::string_view message = error.what();
  MOE_CHECK(message.find('\n') == std::string_view::npos);
  MOE_CHECK(moe::first_invalid_utf8(message) == message.size());
}

void read_everything(const moe::model::BoundModel& model) {
  using namespace moe::model;
  const auto read_matrix = [](Part, std::int32_t, std::int32_t, const MatrixView& view) {
    std::vector<float> row(static_cast<std::size_t>(view.cols));
    for (std::int64_t r = 0; r < view.rows; ++r) read_matrix_row(view, r, row.data());
  };
  const auto read_all = [](Part, std::int32_t, std::int32_t, const VectorView& view) {
    MOE_CHECK(static_cast<std::int64_t>(read_vector(view).size()) == view.size);
  };
  for_each_weight(model, {read_matrix, read_all});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::shared_ptr<const moe::model::GgufFile> file;
  try {
    file = std::make_shared<const moe::model::GgufFile>(std::as_bytes(std::span(data, size)),
                                                        "model.gguf");
  } catch (const moe::Error& error) {
    expect_one_line(error);
    return 0;
  }
  try {
    read_everything(moe::model::bind_gguf(file, {}));
  } catch (const moe::Error& error) {
    expect_one_line(error);
  }
  try {
    if (const auto tokenizer = moe::model::load_gguf_tokenizer(*file)) {
      const std::vector<std::int32_t> ids = tokenizer->encode("a b 12", true);
      MOE_CHECK(moe::first_invalid_utf8(tokenizer->decode(ids, false)) ==
                tokenizer->decode(ids, false).size());
    }
  } catch (const moe::Error& error) {
    expect_one_line(error);
  }
  return 0;
}
