#include "lib/report/writers.hpp"

#include <cmath>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/base/error.hpp"
#include "lib/json/read.hpp"
#include "lib/report/embedded.hpp"
#include "tests/lib/report/sample_report.hpp"

namespace moe::report {
namespace {

using test::expect_golden;
using test::hostile_report;
using test::sample_report;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr Format kAllFormats[] = {Format::kText, Format::kJson,  Format::kMarkdown,  Format::kCsv,
                                  Format::kHtml, Format::kJunit, Format::kPrometheus};

TEST(Writers, WriteTheGoldenFiles) {
  const Report report = sample_report();
  expect_golden("sample.txt", write_text(report));
  expect_golden("sample.json", write_json(report));
  expect_golden("sample.md", write_markdown(report));
  expect_golden("sample.csv", write_csv(report));
  expect_golden("sample.sweep.csv", write_csv_table(report, "sweep"));
  expect_golden("sample.xml", write_junit(report));
  expect_golden("sample.prom", write_prometheus(report));
}

// The page without the library that is compiled in, which the build machine decides about.
TEST(Writers, WriteTheGoldenPage) {
  std::string page = write_html(sample_report());
  const std::string library(embedded::chart_js());
  if (library.empty()) GTEST_SKIP() << "built without Chart.js";
  const auto at = page.find(library.substr(0, 60));
  ASSERT_NE(at, std::string::npos);
  const auto end = page.find("</script>", at);
  page.replace(at, end - at, "CHART.JS");
  expect_golden("sample.html", page);
}

TEST(Writers, KnowTheirNames) {
  EXPECT_EQ(format_names(), (std::vector<std::string>{"text", "json", "markdown", "csv", "html",
                                                      "junit", "prometheus"}));
  for (const std::string& name : format_names()) EXPECT_TRUE(parse_format(name)) << name;
  EXPECT_FALSE(parse_format("yaml"));
  EXPECT_EQ(format_of_path("out/r.html"), Format::kHtml);
  EXPECT_EQ(format_of_path("r.prom"), Format::kPrometheus);
  EXPECT_FALSE(format_of_path(".json"));
  EXPECT_FALSE(format_of_path("report"));
}

TEST(Writers, EndInANewlineAndRepeatThemselves) {
  const Report report = sample_report();
  for (const Format format : kAllFormats) {
    const std::string text = write(report, format);
    EXPECT_EQ(text.back(), '\n');
    EXPECT_EQ(text, write(report, format));
  }
}

TEST(Writers, RefuseNanEverywhere) {
  for (const Format format : kAllFormats) {
    Report report = sample_report();
    report.metrics["itl_s"].distribution->p50.value = std::nan("");
    try {
      (void)write(report, format);
      FAIL() << "NaN was written";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("/metrics/itl_s/distribution/p50 is nan"));
    }
    report = sample_report();
    report.tables["sweep"].rows[0][3] = std::numeric_limits<double>::infinity();
    EXPECT_THROW((void)write(report, format), Error);
  }
}

TEST(Writers, WriteAnEmptyReport) {
  for (const Format format : kAllFormats) EXPECT_FALSE(write(Report{}, format).empty());
}

TEST(WriteText, LetsNoTextSteerTheTerminal) {
  const std::string text = write_text(hostile_report());
  for (const char c : text) EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20);
  EXPECT_THAT(text, Not(HasSubstr("\xe2\x80\xae")));
  EXPECT_THAT(text, HasSubstr("NOT VALID, partial"));
}

TEST(WriteText, SaysWhyFiguresAreMissing) {
  const std::string text = write_text(sample_report());
  EXPECT_THAT(text, HasSubstr("too few samples (p50 needs 7, p90 44, p95 90, p99 459)"));
  EXPECT_THAT(text, HasSubstr("no energy counter can be read on this machine"));
}

TEST(WriteJson, IsWhatTheReaderReads) {
  EXPECT_EQ(test::schema_violations(hostile_report()), "");
  EXPECT_NO_THROW((void)json::parse(write_json(hostile_report()), "report"));
}

TEST(WriteMarkdown, EscapesCells) {
  const std::string text = write_markdown(hostile_report());
  EXPECT_THAT(text, Not(HasSubstr("<script>")));
  EXPECT_THAT(text, HasSubstr("&lt;/script&gt;"));
  EXPECT_THAT(text, HasSubstr("\\|,"));
}

TEST(WriteCsv, QuotesAsRfc4180Says) {
  const std::string text = write_csv_table(hostile_report(), "evil");
  EXPECT_THAT(text, HasSubstr("text,number\n\"</script><script>alert(1)</script>&\"\"'`|,\n"));
}

TEST(WriteCsv, KeepsSpreadsheetsFromRunningFormulas) {
  Report report = sample_report();
  report.tables["t"] = {"t", {{"text", ""}, {"number", "1"}}, {{std::string("=1+1"), -1.5}}, false};
  EXPECT_EQ(write_csv_table(report, "t"), "text,number\n'=1+1,-1.5\n");
}

TEST(WriteCsv, NamesTheTablesThereAre) {
  try {
    (void)write_csv_table(sample_report(), "none");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_STREQ(error.what(),
                 "no table \"none\" in this report; there are expert_load, stages, sweep, metrics");
  }
}

TEST(WriteHtml, EscapesEveryText) {
  const std::string page = write_html(hostile_report());
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(page, Not(HasSubstr("</script><script>a")));
  EXPECT_THAT(page, Not(HasSubstr("\x1b")));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;alert(1)"));
}

TEST(WriteHtml, AsksNothingOfTheNetwork) {
  const std::string page = write_html(sample_report());
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  for (const char* request : {"src=\"http", "href=\"http", "@import", "url(http", "fetch("}) {
    EXPECT_THAT(page, Not(HasSubstr(request)));
  }
}

TEST(WriteJunit, CountsWhatItHolds) {
  const Report report = sample_report();
  const std::string text = write_junit(report);
  EXPECT_THAT(text, HasSubstr("<testcase classname=\"moe-bench\" name=\"validity\" time=\"0\"/>"));
  EXPECT_THAT(text, HasSubstr("name=\"kernels.fused\" time=\"0\">\n      <failure message="));
  EXPECT_THAT(text, HasSubstr("<skipped message=\"not measured: "));
  EXPECT_THAT(write_junit(hostile_report()), HasSubstr("type=\"validity\""));
  EXPECT_THAT(write_junit(hostile_report()), HasSubstr("name=\"finding evil\""));
}

}  // namespace
}  // namespace moe::report
