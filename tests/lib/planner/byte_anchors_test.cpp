#include "lib/planner/byte_anchors.hpp"

#include <set>
#include <string>

#include <gtest/gtest.h>

#include "lib/base/error.hpp"
#include "tests/lib/planner/byte_support.hpp"

namespace moe::planner {
namespace {

std::vector<ByteAnchor> anchors() {
  const auto file = kScenarios / "anchors/bytes.json";
  return parse_byte_anchors(test::read_file(file), file.string());
}

TEST(ByteAnchors, EveryPublishedFigureIsMet) {
  std::set<std::string> models;
  for (const ByteAnchor& anchor : anchors()) {
    SCOPED_TRACE(anchor.id);
    const ByteAnchorResult result =
        check_byte_anchor(anchor, model_of(anchor.model, anchor.weights));
    EXPECT_TRUE(result.is_inside) << "published " << anchor.published << ", predicted "
                                  << result.predicted << ", error " << result.error;
    EXPECT_LE(anchor.tolerance, 0.031);
    if (anchor.kind == ByteAnchorKind::kParametersTotal) models.insert(anchor.model);
  }
  EXPECT_GE(models.size(), 38U);
}

TEST(ByteAnchors, TwoCheckpointsAreMetToTheByte) {
  EXPECT_EQ(model_of("gpt-oss-120b").weight_bytes(), 65'248'815'744);
  EXPECT_EQ(model_of("MiniMax-M2.5").weight_bytes(), 230'121'630'720);
}

TEST(ByteAnchors, AWrongEntryIsNamed) {
  const auto refusal = [](const char* text) -> std::string {
    try {
      (void)parse_byte_anchors(text, "bytes.json");
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_NE(refusal("{}").find("anchors"), std::string::npos);
  EXPECT_NE(refusal(R"({"anchors": [{"id": "a", "kind": "soup"}]})").find("\"soup\" is not known"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"anchors": [{"id": "a", "kind": "weight_bytes", "model": "m",
                       "source": "s", "published": -1, "tolerance": 0}]})")
                .find("\"a\": published"),
            std::string::npos);
}

}  // namespace
}  // namespace moe::planner
