#include "lib/json/events.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/base/error.hpp"

namespace moe::json {
namespace {

using ::testing::HasSubstr;

class Recorder : public EventSink {
 public:
  void begin_object() override { text += "{"; }
  void key(std::string_view name) override { text += std::string(name) + ":"; }
  void end_object() override { text += "}"; }
  void begin_array() override { text += "["; }
  void end_array() override { text += "]"; }
  void string(std::string_view value) override { text += "'" + std::string(value) + "' "; }
  void unsigned_number(std::uint64_t value) override { text += std::to_string(value) + " "; }
  void other(std::string_view what) override { text += "<" + std::string(what) + "> "; }

  std::string text;
};

std::string events(std::string_view json) {
  Recorder recorder;
  read_events(json, "x.json", recorder);
  return recorder.text;
}

std::string refusal(std::string_view json) {
  try {
    (void)events(json);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInput);
    return error.what();
  }
  return "accepted";
}

TEST(Events, ComeInTheOrderOfTheText) {
  EXPECT_EQ(events(R"( {"b":[1,"x\u00e9",[]],"a":{"b":18446744073709551615}} )"),
            "{b:[1 'x\xc3\xa9' []]a:{b:18446744073709551615 }}");
}

TEST(Events, NameWhatIsNoTextAndNoUnsignedNumber) {
  EXPECT_EQ(events("[-3,1.5,true,null]"),
            "[<the negative number -3> <the number 1.5> <a boolean> <null> ]");
  EXPECT_EQ(events("7"), "7 ");
}

TEST(Events, RepeatedKeysAreTheSinksBusiness) {
  EXPECT_EQ(events(R"({"a":1,"a":2})"), "{a:1 a:2 }");
}

TEST(Events, RefuseWhatIsNotJsonAndSayWhere) {
  EXPECT_THAT(refusal(R"({"a":1,})"), HasSubstr("x.json: not valid JSON at byte"));
  EXPECT_THAT(refusal(R"({"a":1} x)"), HasSubstr("x.json: not valid JSON at byte"));
  EXPECT_THAT(refusal(R"({"a":01})"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal(R"({"a":NaN})"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("{\"a\":\"\xff\"}"), HasSubstr("UTF-8"));
  EXPECT_THAT(refusal(std::string_view("{}\0", 3)), HasSubstr("0x00"));
  EXPECT_THAT(refusal(""), HasSubstr("empty"));
  EXPECT_THAT(refusal("   "), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("[18446744073709551616]"), HasSubstr("x.json"));
  EXPECT_THAT(refusal(std::string(100, '[') + std::string(100, ']')), HasSubstr("deeper than 64"));
}

TEST(Events, NothingIsSentFromABrokenText) {
  Recorder recorder;
  EXPECT_THROW(read_events(R"({"a":1,"b")", "x.json", recorder), Error);
  EXPECT_EQ(recorder.text, "");
}

}  // namespace
}  // namespace moe::json
