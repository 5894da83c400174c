#include "lib/report/json_io.hpp"

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/base/error.hpp"
#include "lib/json/write.hpp"
#include "lib/report/embedded.hpp"
#include "lib/report/writers.hpp"
#include "tests/lib/report/sample_report.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::report {
namespace {

using json::Json;
using test::sample_report;
using ::testing::HasSubstr;

TEST(ToJson, GivesAValidReport) {
  EXPECT_EQ(test::schema_violations(sample_report()), "");
  EXPECT_EQ(test::schema_violations(test::hostile_report()), "");
}

TEST(ToJson, ReadsBackToTheSameBytes) {
  const std::string text = write_json(sample_report());
  EXPECT_EQ(write_json(parse_report(text, "report")), text);
}

TEST(ToJson, HasTheKeysOfTheEnvelopeInOrder) {
  const Json document = to_json(sample_report());
  std::string keys;
  for (const auto& [key, value] : document.items()) keys += key + " ";
  EXPECT_EQ(keys,
            "schema schema_version tool run environment subject settings metrics tables charts "
            "highlights findings validity acceptance ");
}

TEST(ReadReport, ReadsAFile) {
  const moe::test::TempDir folder;
  moe::test::write_file(folder / "r.json", write_json(sample_report()));
  const Report report = read_report((folder / "r.json").string());
  EXPECT_EQ(report.metrics.at("ttft_s").distribution->count, 24);
  EXPECT_EQ(std::get<std::int64_t>(report.tables.at("sweep").rows[2][0]), 16);
}

// The violations after a change to the sample's JSON.
std::string violations_after(const std::function<void(Json&)>& change) {
  Json document = to_json(sample_report());
  change(document);
  return json::describe(check_report(document));
}

TEST(CheckReport, IsStrict) {
  EXPECT_THAT(violations_after([](Json& d) { d["extra"] = 1; }),
              HasSubstr("unknown key \"extra\""));
  EXPECT_THAT(violations_after([](Json& d) { d.erase("charts"); }),
              HasSubstr("missing \"charts\""));
  EXPECT_THAT(violations_after([](Json& d) { d["run"]["started_at"] = "yesterday"; }),
              HasSubstr("/run/started_at: "));
  EXPECT_THAT(violations_after([](Json& d) { d["tool"]["name"] = "other"; }),
              HasSubstr("/tool/name: "));
  EXPECT_THAT(violations_after([](Json& d) { d["environment"]["variables"]["HOME"] = "x"; }),
              HasSubstr("/environment/variables/HOME: "));
  EXPECT_THAT(violations_after([](Json& d) { d["metrics"]["Bad Name"] = d["metrics"]["itl_s"]; }),
              HasSubstr("/metrics/Bad Name: "));
  EXPECT_THAT(violations_after([](Json& d) { d["acceptance"]["verdict"] = "ok"; }),
              HasSubstr("/acceptance/verdict: "));
}

TEST(CheckReport, WantsExactlyOneOfValueDistributionAndReason) {
  const auto with = [](const Json& changes) {
    return violations_after([&](Json& d) {
      Json& metric = d["metrics"]["weight_bytes"];
      metric.erase("value");
      for (const auto& [key, value] : changes.items()) metric[key] = value;
    });
  };
  const Json distribution = to_json(sample_report())["metrics"]["itl_s"]["distribution"];
  EXPECT_EQ(with({{"value", 1.0}}), "");
  EXPECT_EQ(with({{"distribution", distribution}}), "");
  EXPECT_EQ(with({{"value", nullptr}, {"reason", "no counter"}}), "");
  EXPECT_NE(with(Json::object()), "");
  EXPECT_NE(with({{"value", nullptr}}), "");
  EXPECT_NE(with({{"value", 1.0}, {"reason", "but"}}), "");
  EXPECT_NE(with({{"value", 1.0}, {"distribution", distribution}}), "");
}

TEST(CheckReport, ChecksWhatASchemaCannotSay) {
  EXPECT_THAT(violations_after([](Json& d) { d["tables"]["sweep"]["rows"][1].erase(0); }),
              HasSubstr("/tables/sweep/rows/1: expected 6 cells"));
  EXPECT_THAT(
      violations_after([](Json& d) { d["tables"]["sweep"]["columns"][1]["name"] = "batch"; }),
      HasSubstr("/tables/sweep/columns: two columns"));
  EXPECT_THAT(violations_after([](Json& d) { d["charts"][0]["table"] = "none"; }),
              HasSubstr("/charts/0/table: no table"));
  EXPECT_THAT(violations_after([](Json& d) { d["charts"][0]["y"][0] = "none"; }),
              HasSubstr("/charts/0/y: no column"));
  EXPECT_THAT(violations_after([](Json& d) { d["highlights"][0] = "none"; }),
              HasSubstr("/highlights: no metric"));
}

std::string report_refusal(const std::string& text) {
  try {
    (void)parse_report(text, "a.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInput);
    return error.what();
  }
  return {};
}

TEST(ParseReport, SaysWhatIsWrong) {
  EXPECT_THAT(report_refusal("[]"), HasSubstr("a.json: expected a report"));
  EXPECT_THAT(report_refusal("{}"), HasSubstr("a.json: expected a report"));
  EXPECT_THAT(report_refusal(R"({"schema": "moekit-report", "schema_version": 2})"),
              HasSubstr("a.json: schema_version 2 is not one that this build reads (1)"));
  EXPECT_THAT(report_refusal(R"({"schema": "moekit-report", "schema_version": 1})"),
              HasSubstr("a.json: not a valid report: /: missing \"tool\" (and "));
}

TEST(ParseReport, KeepsAnIntegerBeyond63BitsAsANumber) {
  Json document = to_json(sample_report());
  document["tables"]["sweep"]["rows"][0][0] = std::uint64_t{1} << 63U;
  const Report report = from_json(document, "x");
  EXPECT_EQ(std::get<double>(report.tables.at("sweep").rows[0][0]), 0x1p63);
}

TEST(MaskVolatile, HidesWhatTwoRunsDifferIn) {
  Json first = to_json(sample_report());
  Json second = first;
  second["run"]["started_at"] = "2027-01-01T00:00:00Z";
  second["run"]["duration_s"] = 99.0;
  second["environment"]["host"] = "other";
  second["metrics"]["output_tokens_per_s"]["value"] = 1.0;
  second["metrics"]["itl_s"]["distribution"]["count"] = 601;
  second["tables"]["sweep"]["rows"][0][3] = 0.5;
  EXPECT_EQ(mask_volatile(first), mask_volatile(second));
}

TEST(MaskVolatile, KeepsEverythingElse) {
  const Json masked = mask_volatile(to_json(sample_report()));
  EXPECT_EQ(masked["metrics"]["roofline_share_ratio"]["value"], 0.7312);  // modelled
  EXPECT_EQ(masked["metrics"]["itl_s"]["unit"], "s");
  EXPECT_EQ(masked["subject"]["name"], "tinymoe-qwen3");
  EXPECT_EQ(masked["run"]["argv"][0], "moe-bench");
  EXPECT_TRUE(masked["run"]["duration_s"].is_null());
  EXPECT_TRUE(masked["environment"].is_null());
  EXPECT_EQ(masked["acceptance"]["items"][0]["id"], "tiering.cold_miss");
}

// An independent implementation of JSON Schema must agree with ours.
TEST(ReportSchema, HoldsInPythonToo) {
  if (std::system("python3 -c 'import jsonschema' 2>/dev/null") != 0) {
    GTEST_SKIP() << "python3-jsonschema is not installed";
  }
  const moe::test::TempDir folder;
  moe::test::write_file(folder / "schema.json", embedded::report_schema());
  moe::test::write_file(folder / "good.json", write_json(sample_report()));
  moe::test::write_file(folder / "hostile.json", write_json(test::hostile_report()));
  Json bad = to_json(sample_report());
  bad["metrics"]["weight_bytes"]["reason"] = "both a value and a reason";
  json::write_file(folder / "bad.json", bad);
  const std::string script =
      "import json, sys, jsonschema\n"
      "schema = json.load(open('schema.json'))\n"
      "jsonschema.Draft202012Validator.check_schema(schema)\n"
      "check = jsonschema.Draft202012Validator(schema)\n"
      "found = [len(list(check.iter_errors(json.load(open(n + '.json')))))\n"
      "         for n in ('good', 'hostile', 'bad')]\n"
      "sys.exit(0 if found[0] == 0 and found[1] == 0 and found[2] > 0 else 1)\n";
  moe::test::write_file(folder / "check.py", script);
  EXPECT_EQ(std::system(("cd '" + folder.path().string() + "' && python3 check.py").c_str()), 0);
}

TEST(ReportSchema, HoldsForTheExampleReports) {
  const auto folder = std::filesystem::path(MOE_SOURCE_DIR) / "reports/examples";
  int num_reports = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    EXPECT_NO_THROW((void)read_report(entry.path().string())) << entry.path();
    ++num_reports;
  }
  EXPECT_GT(num_reports, 0);
}

}  // namespace
}  // namespace moe::report
