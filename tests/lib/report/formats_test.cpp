// Formats that other programs read: Prometheus, JUnit, and the page in a browser.

#include <cstdlib>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "lib/report/markup.hpp"
#include "lib/report/writers.hpp"
#include "tests/lib/report/sample_report.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::report {
namespace {

using test::hostile_report;
using test::sample_report;

// The rules of the text exposition format: HELP, then TYPE, then the samples of one family, each
// family once, each combination of labels once.
void expect_exposition(const std::string& text) {
  static const std::regex help("# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) .*");
  static const std::regex type("# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) gauge");
  static const std::regex sample(
      "([a-zA-Z_:][a-zA-Z0-9_:]*)"
      "\\{([a-zA-Z_]\\w*=\"([^\"\\\\\n]|\\\\[\\\\\"n])*\"(,[a-zA-Z_]\\w*=\"([^\"\\\\\n]|\\\\["
      "\\\\\"n])*\")*)?"
      "\\} -?[0-9.]+(e[-+]?[0-9]+)?");
  std::set<std::string> families;
  std::set<std::string> series;
  std::string family;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_match(line, match, help)) {
      EXPECT_TRUE(families.insert(match[1]).second) << line;
      family = match[1];
    } else if (std::regex_match(line, match, type)) {
      EXPECT_EQ(match[1], family);
    } else {
      ASSERT_TRUE(std::regex_match(line, match, sample)) << line;
      EXPECT_EQ(match[1], family);
      EXPECT_TRUE(series.insert(line.substr(0, line.find("} "))).second) << line;
    }
  }
}

TEST(WritePrometheus, IsWellFormed) {
  expect_exposition(write_prometheus(sample_report()));
  expect_exposition(write_prometheus(hostile_report()));
}

TEST(WritePrometheus, NamesUnitsAsPrometheusDoes) {
  const std::string text = write_prometheus(sample_report());
  EXPECT_NE(text.find("moekit_ttft_seconds{tool=\"moe-bench\",subject=\"tinymoe-qwen3\",kind="
                      "\"measured\",statistic=\"p50\"} 0.04"),
            std::string::npos);
  EXPECT_NE(text.find("moekit_output_tokens_per_second{"), std::string::npos);
  EXPECT_NE(text.find("moekit_weight_bytes{"), std::string::npos);
  EXPECT_EQ(text.find("statistic=\"p99\"} nan"), std::string::npos);
  EXPECT_EQ(text.find("moekit_energy_j"), std::string::npos);  // absent, not zero
}

TEST(WritePrometheus, KeepsFamiliesApart) {
  Report report = sample_report();
  Metric metric;
  metric.unit = "s";
  metric.value = 1.0;
  report.metrics["a"] = metric;
  report.metrics["a_s"] = metric;
  report.metrics["itl_s_samples"] = metric;
  expect_exposition(write_prometheus(report));
}

TEST(WritePrometheus, TurnsThePointOfASweepIntoLabels) {
  Report report = sample_report();
  report.metrics["itl_s.batch_4.prompt_tokens_128"] = report.metrics["itl_s"];
  report.metrics["itl_s.kind_1.warm"] = report.metrics["itl_s"];
  const std::string text = write_prometheus(report);
  expect_exposition(text);
  EXPECT_NE(text.find("moekit_itl_seconds_samples{tool=\"moe-bench\",subject=\"tinymoe-qwen3\","
                      "kind=\"measured\",batch=\"4\",prompt_tokens=\"128\"} 600\n"),
            std::string::npos);
  EXPECT_NE(text.find("point_kind=\"1\",point=\"warm\""), std::string::npos);
}

// Runs a Python script on a text; its exit status.
int python_on(const std::string& text, const std::string& script) {
  const moe::test::TempDir folder;
  moe::test::write_file(folder / "input", text);
  moe::test::write_file(folder / "check.py", script);
  return std::system(("cd '" + folder.path().string() + "' && python3 check.py").c_str());
}

TEST(WriteJunit, IsReadByAnXmlParser) {
  if (std::system("python3 -c 'import xml.etree.ElementTree' 2>/dev/null") != 0) {
    GTEST_SKIP() << "python3 is not installed";
  }
  const std::string script =
      "import sys, xml.etree.ElementTree as E\n"
      "root = E.parse('input').getroot()\n"
      "suite = root.find('testsuite')\n"
      "cases = suite.findall('testcase')\n"
      "count = lambda tag: sum(c.find(tag) is not None for c in cases)\n"
      "ok = (root.tag == 'testsuites' and int(suite.get('tests')) == len(cases)\n"
      "      and int(suite.get('failures')) == count('failure')\n"
      "      and int(suite.get('skipped')) == count('skipped') and len(cases) > 10)\n"
      "sys.exit(0 if ok else 1)\n";
  EXPECT_EQ(python_on(write_junit(sample_report()), script), 0);
  EXPECT_EQ(python_on(write_junit(hostile_report()), script), 0);
}

TEST(WriteHtml, IsBalanced) {
  if (std::system("python3 -c 'import html.parser' 2>/dev/null") != 0) {
    GTEST_SKIP() << "python3 is not installed";
  }
  const std::string script =
      "import sys, html.parser\n"
      "VOID = {'meta', 'br', 'line', 'rect'}\n"
      "class P(html.parser.HTMLParser):\n"
      "    stack = []; bad = []\n"
      "    def handle_starttag(self, tag, attrs):\n"
      "        if tag not in VOID: self.stack.append(tag)\n"
      "        self.bad += [a for a, _ in attrs if a.startswith('on')]\n"
      "    def handle_endtag(self, tag):\n"
      "        if tag in VOID: return\n"
      "        if not self.stack or self.stack.pop() != tag: self.bad.append(tag)\n"
      "p = P(); p.feed(open('input', encoding='utf-8').read())\n"
      "sys.exit(0 if not p.stack and not p.bad else 1)\n";
  EXPECT_EQ(python_on(write_html(sample_report()), script), 0);
  EXPECT_EQ(python_on(write_html(hostile_report()), script), 0);
}

TEST(EscapeMarkup, EscapesWhatMarkupReads) {
  EXPECT_EQ(escape_markup("<a b='c' d=\"e\">&"), "&lt;a b=&#39;c&#39; d=&quot;e&quot;&gt;&amp;");
  EXPECT_EQ(escape_markup(std::string("\x01\x0b\x00x\ny", 6)), "???x\ny");
}

TEST(EscapeScriptJson, CannotEndAScript) {
  EXPECT_EQ(escape_script_json("[\"</script><!--&\"]"),
            "[\"\\u003c/script\\u003e\\u003c!--\\u0026\"]");
}

}  // namespace
}  // namespace moe::report
