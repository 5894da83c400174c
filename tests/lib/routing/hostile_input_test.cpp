// Goal: damaged and malicious files end in an Error that names the file, never in a crash, a large
// allocation or executed code. Method: truncation of good files at many places, and files written
// here byte by byte.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/base/error.hpp"
#include "lib/routing/open_input.hpp"
#include "lib/routing/pickle.hpp"
#include "tests/lib/routing/support.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::routing {
namespace {

using moe::test::read_file;
using moe::test::TempDir;
using moe::test::write_file;
using ::testing::HasSubstr;

std::string pickle_refusal(const std::string& stream) {
  try {
    (void)read_pickle(std::as_bytes(std::span(stream)), "p");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(HostileInput, TruncatedAnywhereIsRefused) {
  const TempDir dir;
  for (const char* name : {"synthetic_sglang_stat.pt", "synthetic_sglang_per_token_rank0.pt",
                           "synthetic_trtllm/rank0.safetensors", "sglang_dsv3/prefill_in1024.json",
                           "esft/summary_topk.npy"}) {
    const std::string bytes = read_file(test::data_file(name));
    const std::string file = (dir / "cut").string();
    for (std::size_t part = 0; part < 24; ++part) {
      write_file(file, std::string_view(bytes).substr(0, bytes.size() * part / 24));
      EXPECT_THAT(test::refusal_of(file), HasSubstr("cut")) << name << " " << part;
    }
  }
}

TEST(HostileInput, MissingOrForeignFilesAreNamed) {
  const TempDir dir;
  EXPECT_THAT(test::refusal_of("/nowhere/trace.pt"), HasSubstr("/nowhere/trace.pt"));
  EXPECT_THAT(test::refusal_of(dir.path().string()), HasSubstr("no dump files"));
  write_file(dir / "empty", "");
  EXPECT_THAT(test::refusal_of((dir / "empty").string()), HasSubstr("empty"));
  write_file(dir / "elf",
             "\x7f"
             "ELF\x02\x01\x01");
  EXPECT_THAT(test::refusal_of((dir / "elf").string()), HasSubstr("not recognised"));
  write_file(dir / "bare.pkl", std::string("\x80\x02]q\x00.", 6));
  EXPECT_THAT(test::refusal_of((dir / "bare.pkl").string()), HasSubstr("bare pickle"));
}

// The classic: a stream that would call os.system when loaded by Python.
TEST(Pickle, ThatNamesAFunctionIsRefused) {
  EXPECT_THAT(pickle_refusal("\x80\x02"
                             "cos\nsystem\nX\x02\x00\x00\x00"),
              HasSubstr("names os.system"));
  EXPECT_THAT(pickle_refusal("\x80\x04\x8c\x08"
                             "builtins\x8c\x04"
                             "eval\x93)R."),
              HasSubstr("names builtins.eval"));
  EXPECT_THAT(pickle_refusal("cposix\nsystem\n(X\x02\x00\x00\x00lstR."), HasSubstr("posix.system"));
}

TEST(Pickle, WithOtherInstructionsIsRefused) {
  for (const char opcode : {'i', 'o', 'b', '\x81', '\x92', 'P', 'B', 'C', 'I', 'L'}) {
    const std::string stream = std::string("\x80\x02)", 3) + opcode + "a\nb\n.";
    EXPECT_NE(pickle_refusal(stream), "") << static_cast<int>(opcode);
  }
}

TEST(Pickle, WithABrokenStackIsRefused) {
  for (const char* stream : {".", "a.", "(.", "h\x05.", "]]]a", "}(K\x01u.", "K\x01K\x02.",
                             "]K\x01s.", "\x85.", "R.", "Q.", "t.",
                             "X\xff\xff\xff\x7f"
                             "abc."}) {
    EXPECT_NE(pickle_refusal(stream), "") << stream;
  }
}

TEST(Pickle, ReadsPlainData) {
  const std::string stream = std::string(
      "\x80\x02}q\x00(X\x01\x00\x00\x00"
      "aK\x07X\x01\x00\x00\x00"
      "b](J\xff\xff\xff\xff\x8a\x02\x00\x01"
      "G?\xf0\x00\x00\x00\x00\x00\x00Neu.",
      44);
  const PickleDocument document = read_pickle(std::as_bytes(std::span(stream)), "p");
  std::int64_t number = 0;
  ASSERT_NE(document.find(document.root, "a"), nullptr);
  EXPECT_TRUE(PickleDocument::as_integer(*document.find(document.root, "a"), number));
  EXPECT_EQ(number, 7);
  const auto list = document.list(*document.find(document.root, "b"));
  ASSERT_EQ(list.size(), 4U);
  EXPECT_TRUE(PickleDocument::as_integer(list[0], number));
  EXPECT_EQ(number, -1);
  EXPECT_TRUE(PickleDocument::as_integer(list[1], number));
  EXPECT_EQ(number, 256);
  EXPECT_EQ(list[2].kind, PickleKind::kReal);
  EXPECT_EQ(list[3].kind, PickleKind::kNone);
}

// A list that holds itself, and lists of lists of one list: nothing is ever copied.
TEST(Pickle, OfSharedListsStaysSmall) {
  EXPECT_EQ(pickle_refusal("\x80\x02]q\x01h\x01"
                           "a."),
            "");
  std::string stream = "\x80\x02]q";
  stream += '\x01';
  for (int depth = 0; depth < 60; ++depth)
    stream += std::string(
        "0](h\x01h\x01"
        "eq\x01",
        10);
  EXPECT_EQ(pickle_refusal(stream + "."), "");
}

TEST(HostileInput, TensorsOutsideTheirStorageAreRefused) {
  const TempDir dir;
  std::string bytes = read_file(test::data_file("synthetic_sglang_stat.pt"));
  // The shape (4, 3, 16) becomes (200, 3, 16).
  const std::string shape = "K\x04K\x03K\x10\x87";
  const std::size_t at = bytes.find(shape);
  ASSERT_NE(at, std::string::npos);
  bytes[at + 1] = static_cast<char>(200);
  write_file(dir / "t.pt", bytes);
  EXPECT_THAT(test::refusal_of((dir / "t.pt").string()), HasSubstr("does not fit"));
}

TEST(HostileInput, ArraysThatOverflowAreRefused) {
  const TempDir dir;
  for (const char* shape :
       {"(4611686018427387904, 4)", "(1, 9223372036854775807, 2)", "(2, 2, 2, 2, 2, 2, 2, 2, 2)",
        "(1000000, 1000000)", "(-1, 4)", "('a',)", "(1,", "(99999999999999999999,)"}) {
    write_file(dir / "a.npy", test::npy_bytes("<i4", shape, "xxxx"));
    EXPECT_NE(test::refusal_of((dir / "a.npy").string()), "") << shape;
  }
  write_file(dir / "o.npy", test::npy_bytes("|O", "(1, 1)", "xxxxxxxx"));
  EXPECT_THAT(test::refusal_of((dir / "o.npy").string()), HasSubstr("type |O"));
  // Nothing in it, but a number of layers that would fill the memory.
  write_file(dir / "z.npy", test::npy_bytes("<i4", "(0, 1000000000, 4)", ""));
  EXPECT_NE(test::refusal_of((dir / "z.npy").string()), "");
}

TEST(HostileInput, ZipMembersOutsideTheFileAreRefused) {
  const TempDir dir;
  const std::string array = test::npy_bytes("<i8", "(1, 2)", test::raw<std::int64_t>({1, 2}));
  const std::string good = test::zip_bytes({{"a.npy", array}});
  write_file(dir / "g.npz", good);
  EXPECT_EQ(test::refusal_of((dir / "g.npz").string()), "");
  for (std::size_t at = good.size() - 80; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x55);
    write_file(dir / "b.npz", bad);
    (void)test::refusal_of((dir / "b.npz").string());  // an Error or a good reading, no crash
  }
  std::string compressed = good;
  compressed[compressed.find("PK\x01\x02") + 10] = 8;
  write_file(dir / "c.npz", compressed);
  EXPECT_THAT(test::refusal_of((dir / "c.npz").string()), HasSubstr("compressed"));
}

TEST(HostileInput, TextThatIsNoTraceIsRefusedWithItsPlace) {
  const TempDir dir;
  const std::pair<const char*, const char*> cases[] = {
      {"[[1, 2], [3]]", "layer 1"},
      {"[[1, \"x\"]]", "numbers"},
      {"{\"logical_count\": 3}", "logical_count"},
      {"{\"other\": 1}", "expected logical_count"},
      {"{\"layer\": 0, \"topk_ids\": [1, 2.5]}\n{}\n", ":1"},
      {"{\"layer\": -1, \"topk_ids\": [1]}\n{}\n", ":1"},
      {"1,2\n3\n", ":2"},
      {"1,x\n", "counts"},
      {"layer,expert,count\n0,0,-\n", "counts"},
      {"[[1e300]]", "count"},
      {"1\t2\t\t0.5\n", "2 ids and 1 weights"},
  };
  for (const auto& [text, message] : cases) {
    write_file(dir / "t", text);
    EXPECT_THAT(test::refusal_of((dir / "t").string()), HasSubstr(message)) << text;
  }
}

}  // namespace
}  // namespace moe::routing
