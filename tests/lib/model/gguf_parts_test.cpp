// Goal: a GGUF model in several files is the model in one file, and every way in which the parts
// can disagree is refused in one line. Method: a whole file is cut into parts as llama-gguf-split
// does it: the keys in the first part, split.* in all, the tensors in their order.

#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/base/error.hpp"
#include "lib/base/int_math.hpp"
#include "lib/model/accounting.hpp"
#include "lib/model/bound_model.hpp"
#include "lib/model/gguf_file.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::model {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::uint32_t kTypeU16 = 2;
constexpr std::uint32_t kTypeI32 = 5;

template <typename Number>
void append(std::string& out, Number value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void append_text(std::string& out, std::string_view text) {
  append(out, std::uint64_t{text.size()});
  out.append(text);
}

// What a part says of itself.
struct SplitKeys {
  std::uint16_t number = 0;
  std::uint16_t count = 1;
  std::int32_t num_tensors = 0;
};

// A part with `tensors` of `file`, and its keys when it is the first.
std::string make_part(const GgufFile& file, const std::vector<GgufTensor>& tensors,
                      const SplitKeys& split, bool has_keys) {
  std::string out = "GGUF";
  append(out, std::uint32_t{3});
  append(out, std::uint64_t{tensors.size()});
  append(out, std::uint64_t{3 + (has_keys ? file.header().values.size() : 0)});
  for (const auto& [key, value] : file.header().values) {
    if (!has_keys) break;
    append_text(out, key);
    append(out, static_cast<std::uint32_t>(value.type));
    if (value.type == GgufValueType::kArray) {
      append(out, static_cast<std::uint32_t>(value.element_type));
      append(out, value.count);
    } else if (value.type == GgufValueType::kString) {
      append(out, std::uint64_t{value.bytes.size()});
    }
    out.append(reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size());
  }
  append_text(out, "split.no");
  append(out, kTypeU16);
  append(out, split.number);
  append_text(out, "split.count");
  append(out, kTypeU16);
  append(out, split.count);
  append_text(out, "split.tensors.count");
  append(out, kTypeI32);
  append(out, split.num_tensors);
  std::int64_t offset = 0;
  for (const GgufTensor& tensor : tensors) {
    append_text(out, tensor.name);
    append(out, static_cast<std::uint32_t>(tensor.dims.size()));
    for (const std::int64_t size : tensor.dims) append(out, size);
    append(out, tensor.type_id);
    append(out, offset);
    offset = align_up(offset + tensor.size_bytes, std::int64_t{32});
  }
  for (const GgufTensor& tensor : tensors) {
    out.resize((out.size() + 31) / 32 * 32);
    const auto bytes = file.bytes(tensor);
    out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return out;
}

// Three parts of a tiny model in a folder of their own.
class GgufParts : public ::testing::Test {
 protected:
  static constexpr std::uint16_t kCount = 3;

  GgufParts() {
    const auto& tensors = whole_.header().tensors;
    const std::size_t third = tensors.size() / kCount;
    for (std::size_t part = 0; part < kCount; ++part) {
      const auto begin = tensors.begin() + static_cast<std::ptrdiff_t>(part * third);
      const auto end =
          part + 1 == kCount ? tensors.end() : begin + static_cast<std::ptrdiff_t>(third);
      tensors_.emplace_back(begin, end);
      write(part, tensors_.back(),
            {static_cast<std::uint16_t>(part), kCount, static_cast<std::int32_t>(tensors.size())});
    }
  }

  fs::path path(std::size_t part) const {
    return directory_.path() / fmt::format("tiny-{:05}-of-{:05}.gguf", part + 1, kCount);
  }
  void write(std::size_t part, const std::vector<GgufTensor>& tensors,
             const SplitKeys& split) const {
    test::write_file(path(part), make_part(whole_, tensors, split, part == 0));
  }
  // "" when it is accepted.
  static std::string refusal(const fs::path& given) {
    try {
      (void)bind_checkpoint(given);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInput);
      const std::string message = error.what();
      EXPECT_EQ(message.find('\n'), std::string::npos);
      return message;
    }
    return "";
  }
  std::int32_t num_tensors() const {
    return static_cast<std::int32_t>(whole_.header().tensors.size());
  }

  const fs::path whole_path_ = fs::path(MOE_SOURCE_DIR) / "tests/data/gguf/mixtral-gguf-q4_0.gguf";
  const GgufFile whole_{whole_path_};
  const test::TempDir directory_;
  std::vector<std::vector<GgufTensor>> tensors_;
};

TEST_F(GgufParts, AreTheModelOfTheWholeFile) {
  for (const fs::path& given : {path(0), directory_.path()}) {
    const BoundModel parts = bind_checkpoint(given);
    const BoundModel whole = bind_checkpoint(whole_path_);
    std::vector<std::vector<float>> rows;
    const auto collect = [&rows](const BoundModel& model) {
      rows.clear();
      for_each_weight(model, {[&](Part, std::int32_t, std::int32_t, const MatrixView& view) {
                                std::vector<float> row(static_cast<std::size_t>(view.cols));
                                read_matrix_row(view, view.rows - 1, row.data());
                                rows.push_back(std::move(row));
                              },
                              [&](Part, std::int32_t, std::int32_t, const VectorView& view) {
                                rows.push_back(read_vector(view));
                              }});
      return rows;
    };
    EXPECT_EQ(collect(parts), collect(whole));
    EXPECT_EQ(parts.gguf->num_parts(), kCount);
    EXPECT_EQ(parts.file_bytes,
              static_cast<std::int64_t>(fs::file_size(path(0)) + fs::file_size(path(1)) +
                                        fs::file_size(path(2))));
  }
}

TEST_F(GgufParts, AMissingPartIsNamed) {
  fs::remove(path(1));
  for (const fs::path& given : {path(0), directory_.path()}) {
    EXPECT_THAT(refusal(given),
                AllOf(HasSubstr("part 2 of 3 is missing"), HasSubstr("tiny-00002-of-00003.gguf")));
  }
  fs::remove(path(0));
  EXPECT_THAT(refusal(directory_.path()),
              AllOf(HasSubstr("part 1 is missing"), HasSubstr("tiny-00001-of-00003.gguf")));
}

TEST_F(GgufParts, AnotherPartThanTheFirstSaysWhichToGive) {
  EXPECT_THAT(refusal(path(1)), AllOf(HasSubstr("part 2 of 3"), HasSubstr("give the first part"),
                                      HasSubstr("tiny-00001-of-00003.gguf")));
}

TEST_F(GgufParts, PartsThatDisagreeAreRefused) {
  write(1, tensors_[1], {1, 4, num_tensors()});
  EXPECT_THAT(refusal(path(0)),
              AllOf(HasSubstr("tiny-00002"), HasSubstr("split.count"), HasSubstr("4, expected 3")));
  write(1, tensors_[1], {2, kCount, num_tensors()});
  EXPECT_THAT(refusal(path(0)),
              AllOf(HasSubstr("tiny-00002"), HasSubstr("split.no"), HasSubstr("2, expected 1")));
}

TEST_F(GgufParts, ATensorInTwoPartsIsRefused) {
  std::vector<GgufTensor> again = tensors_[2];
  again.push_back(tensors_[0].back());
  write(2, again, {2, kCount, num_tensors() + 1});
  EXPECT_THAT(refusal(path(0)),
              AllOf(HasSubstr(tensors_[0].back().name), HasSubstr("is in part 1 and in part 3")));
}

TEST_F(GgufParts, TheNumberOfTensorsIsChecked) {
  std::vector<GgufTensor> fewer = tensors_[2];
  fewer.pop_back();
  write(2, fewer, {2, kCount, num_tensors()});
  EXPECT_THAT(refusal(path(0)), HasSubstr("split.tensors.count"));
}

TEST_F(GgufParts, AFirstPartByAnotherNameCannotFindTheOthers) {
  fs::rename(path(0), directory_.path() / "first.gguf");
  EXPECT_THAT(refusal(directory_.path() / "first.gguf"), HasSubstr("-00001-of-00003.gguf"));
}

TEST_F(GgufParts, ACutPartIsRefusedByItsName) {
  const std::string bytes = test::read_file(path(2));
  test::write_file(path(2), std::string_view(bytes).substr(0, bytes.size() / 2));
  EXPECT_THAT(refusal(path(0)), HasSubstr("tiny-00003"));
}

TEST(GgufPartName, IsReadOnlyAsTheSplitterWritesIt) {
  const auto name = GgufPartName::parse("a-b-00002-of-00010.gguf");
  ASSERT_TRUE(name.has_value());
  EXPECT_EQ(name->prefix, "a-b");
  EXPECT_EQ(name->number, 2);
  EXPECT_EQ(name->count, 10);
  EXPECT_EQ(name->of_part(7), "a-b-00007-of-00010.gguf");
  for (const char* other :
       {"a.gguf", "-00001-of-00002.gguf", "a-00003-of-00002.gguf", "a-00000-of-00002.gguf",
        "a-0001-of-0002.gguf", "a-00001-of-00002.bin", "a-0000x-of-00002.gguf"}) {
    EXPECT_FALSE(GgufPartName::parse(other).has_value()) << other;
  }
}

}  // namespace
}  // namespace moe::model
