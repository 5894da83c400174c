// Laws on random text: what a byte-level tokenizer encodes, it decodes to the same text.

#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "lib/base/rng.hpp"
#include "lib/base/text.hpp"
#include "lib/model/tokenizer.hpp"
#include "lib/model/unicode_text.hpp"
#include "lib/model/utf8_stream.hpp"

namespace moe::model {
namespace {

Tokenizer load(const std::string& name) {
  return Tokenizer::load(std::filesystem::path(MOE_SOURCE_DIR) / "tests/data/tokenizers" / name /
                         "tokenizer.json");
}

char32_t random_character(Rng& rng) {
  constexpr std::array<char32_t, 12> kSpecial = {U' ',   U'\n',  U'\r',   U'\t', 0xA0,   0x3000,
                                                 0x200D, 0xFE0F, 0x1F468, 0x301, 0xFFFD, U'\''};
  switch (rng.next_below(5)) {
    case 0:
      return kSpecial[rng.next_below(kSpecial.size())];
    case 1:
    case 2:
      return static_cast<char32_t>(0x20 + rng.next_below(0x5F));
    case 3:
      return static_cast<char32_t>(0xA1 + rng.next_below(0xD000));
    default:
      return static_cast<char32_t>(0xE000 + rng.next_below(0x110000 - 0xE000));
  }
}

std::string random_text(Rng& rng) {
  std::string text;
  const std::uint64_t length = rng.next_below(40);
  for (std::uint64_t i = 0; i < length; ++i) append_code_point(random_character(rng), text);
  return text;
}

// Tokenizers without a normalizer and without an added prefix.
class ByteLevelRoundTrip : public testing::TestWithParam<const char*> {};

TEST_P(ByteLevelRoundTrip, GivesTheTextBack) {
  const Tokenizer tokenizer = load(GetParam());
  Rng rng(11);
  for (int round = 0; round < 1000; ++round) {
    const std::string text = random_text(rng);
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, false), false), text);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ByteLevelRoundTrip,
                         testing::Values("bl-dsv3", "bl-llama3-ignore-merges", "bl-o200k",
                                         "bl-llama3-no-ignore-merges", "checkpoint-bytelevel"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           for (char& c : name) {
                             if (c == '-') c = '_';
                           }
                           return name;
                         });

TEST(TokenStreamProperty, AnyIdsStreamToWhatTheyDecodeTo) {
  Rng rng(12);
  for (const char* const name : {"bl-qwen2", "bl-added-tokens", "spm-no-byte-fallback"}) {
    const Tokenizer tokenizer = load(name);
    const auto bound = static_cast<std::uint64_t>(tokenizer.max_id()) + 3;
    for (int round = 0; round < 500; ++round) {
      std::vector<std::int32_t> ids;
      for (int i = 0; i < 12; ++i) ids.push_back(static_cast<std::int32_t>(rng.next_below(bound)));
      const bool skip_special = round % 2 == 0;
      TokenStream stream(tokenizer, skip_special);
      std::string text;
      for (const std::int32_t id : ids) {
        const std::string step = stream.push(id);
        EXPECT_TRUE(is_utf8(step));
        text += step;
      }
      text += stream.flush();
      const std::string whole = tokenizer.decode(ids, skip_special);
      EXPECT_TRUE(is_utf8(whole));
      if (whole.find(kReplacementCharacter) == std::string::npos || name[0] == 'b') {
        EXPECT_EQ(text, whole) << name;
      }
    }
  }
}

TEST(TokenizerProperty, SpecialTokensAreOnlyAddedInFront) {
  const Tokenizer tokenizer = load("bl-dsv3");
  Rng rng(13);
  for (int round = 0; round < 200; ++round) {
    const std::string text = random_text(rng);
    auto with = tokenizer.encode(text, true);
    ASSERT_FALSE(with.empty());
    EXPECT_EQ(with.front(), 800);
    with.erase(with.begin());
    EXPECT_EQ(with, tokenizer.encode(text, false));
  }
}

}  // namespace
}  // namespace moe::model
