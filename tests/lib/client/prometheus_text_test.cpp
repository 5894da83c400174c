// Goal: metrics pages are read as the format says, and a bad line costs that line.

#include "lib/client/prometheus_text.hpp"

#include <cmath>

#include <gtest/gtest.h>

namespace moe::client {
namespace {

TEST(PrometheusText, NamesLabelsAndValuesAreRead) {
  const MetricsPage page = parse_metrics_page(
      "# HELP a:b_total Text.\n# TYPE a:b_total counter\n"
      "a:b_total{x=\"1\",y=\"with \\\"quotes\\\", \\\\ and \\n break\"} 3.5\n"
      "plain 7 1700000000000\n"
      "spaced  { k = \"v\" , }  +2e3\r\n"
      "exemplar_bucket{le=\"0.5\"} 4 # {trace=\"x\"} 0.3\n"
      "no_newline -1");
  ASSERT_EQ(page.samples.size(), 5U);
  EXPECT_EQ(page.num_bad_lines, 0);
  EXPECT_EQ(page.samples[0].name, "a:b_total");
  EXPECT_EQ(page.samples[0].label("y"), "with \"quotes\", \\ and \n break");
  EXPECT_EQ(page.samples[0].label("z"), "");
  EXPECT_DOUBLE_EQ(page.samples[0].value, 3.5);
  EXPECT_DOUBLE_EQ(page.samples[1].value, 7.0);
  EXPECT_DOUBLE_EQ(page.samples[2].value, 2000.0);
  EXPECT_EQ(page.samples[2].label("k"), "v");
  EXPECT_DOUBLE_EQ(page.samples[3].value, 4.0);
  EXPECT_DOUBLE_EQ(page.samples[4].value, -1.0);
}

TEST(PrometheusText, SpecialValuesStayAndAreLeftOutOfSums) {
  const MetricsPage page = parse_metrics_page("a NaN\na +Inf\na{x=\"1\"} 2\na{x=\"2\"} 4\n");
  ASSERT_EQ(page.samples.size(), 4U);
  EXPECT_TRUE(std::isnan(page.samples[0].value));
  EXPECT_TRUE(std::isinf(page.samples[1].value));
  EXPECT_DOUBLE_EQ(*page.sum("a"), 6.0);
  EXPECT_DOUBLE_EQ(*page.mean("a"), 3.0);
  EXPECT_FALSE(page.sum("b"));
  EXPECT_FALSE(parse_metrics_page("a NaN\n").sum("a"));
}

TEST(PrometheusText, BadLinesAreCountedAndPassedOver) {
  const MetricsPage page = parse_metrics_page(
      "ok 1\n9bad 1\nno_value\nopen{x=\"1\" 2\nunquoted{x=1} 2\ntext{x=\"1\"} two\n"
      "cut{x=\"\\\nhuge 1e999\n<html>\nok 2\n");
  EXPECT_EQ(page.samples.size(), 2U);
  EXPECT_EQ(page.num_bad_lines, 8);
}

TEST(PrometheusText, HistogramsAddTheirSeriesAndOrderTheirBuckets) {
  const MetricsPage page = parse_metrics_page(
      "h_bucket{le=\"+Inf\",e=\"0\"} 10\nh_bucket{le=\"1.0\",e=\"0\"} 6\n"
      "h_bucket{le=\"0.5\",e=\"0\"} 2\nh_count{e=\"0\"} 10\nh_sum{e=\"0\"} 8\n"
      "h_bucket{le=\"1\",e=\"1\"} 1\nh_bucket{le=\"+Inf\",e=\"1\"} 1\nh_count{e=\"1\"} 1\n"
      "h_sum{e=\"1\"} 1\nh_created{e=\"0\"} 1.7e9\n");
  const auto histogram = histogram_of(page, "h");
  ASSERT_TRUE(histogram);
  EXPECT_DOUBLE_EQ(histogram->count, 11.0);
  EXPECT_DOUBLE_EQ(histogram->sum, 9.0);
  ASSERT_EQ(histogram->buckets.size(), 3U);
  EXPECT_DOUBLE_EQ(histogram->buckets[1].end, 1.0);
  EXPECT_DOUBLE_EQ(histogram->buckets[1].count, 7.0);
  EXPECT_EQ(*histogram->quantile_bucket(0.1), std::pair(0.0, 0.5));
  EXPECT_EQ(*histogram->quantile_bucket(0.5), std::pair(0.5, 1.0));
  EXPECT_TRUE(std::isinf(histogram->quantile_bucket(0.9)->second));
  EXPECT_FALSE(histogram_of(page, "g"));
}

TEST(PrometheusText, WhatWasAddedIsADifferenceUnlessTheServerWasRestarted) {
  const auto at = [](const std::string& low, const std::string& all, const std::string& sum) {
    return *histogram_of(
        parse_metrics_page("h_bucket{le=\"1\"} " + low + "\nh_bucket{le=\"+Inf\"} " + all +
                           "\nh_count " + all + "\nh_sum " + sum + "\n"),
        "h");
  };
  const auto more = added(at("1", "4", "10"), at("3", "8", "30"));
  ASSERT_TRUE(more);
  EXPECT_DOUBLE_EQ(*more->mean(), 5.0);
  EXPECT_DOUBLE_EQ(more->buckets[0].count, 2.0);
  EXPECT_FALSE(added(at("3", "8", "30"), at("1", "4", "10")));
  EXPECT_FALSE(added(at("3", "4", "30"), at("1", "4", "10")));
  EXPECT_FALSE(added(at("1", "4", "10"), at("1", "4", "10"))->mean());
}

}  // namespace
}  // namespace moe::client
