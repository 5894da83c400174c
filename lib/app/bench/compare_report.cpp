#include "lib/app/bench/compare_report.hpp"

#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/bench/compare_answers.hpp"
#include "lib/app/bench/requests_jsonl.hpp"
#include "lib/app/bench/serve_report.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/stats/compare.hpp"

namespace moe::app {
namespace {

ServePointOutcome outcome_of(Subject& subject, const ServePoint& point, const LoadArgs& load) {
  ServePointOutcome outcome;
  outcome.point = point;
  outcome.is_in_process = subject.here != nullptr;
  outcome.result = client::merge_rounds(std::move(subject.rounds));
  const client::ServiceLevel level = service_level(load);
  outcome.figures = client::figures_of(outcome.result, level);
  if (!outcome.is_in_process) outcome.verdict = client::judge_client(outcome.result, {});
  outcome.meets_level = outcome.figures.shares.all && *outcome.figures.shares.all >= level.share;
  return outcome;
}

// Every figure of a subject over the first's, and whether chance alone would do that.
void add_ratios(const std::vector<Subject>& servers, const std::vector<ServePointOutcome>& outcomes,
                report::Report& report) {
  report::Table table = make_table(
      "Against " + servers.front().name,
      {{"server", ""}, {"metric", ""}, {"median_ratio", "1"}, {"p_value", "1"}, {"differs", ""}});
  const auto add = [&](std::size_t i, const char* name,
                       std::vector<double> client::LoadFigures::*samples) {
    const stats::Comparison comparison =
        stats::compare(outcomes.front().figures.*samples, outcomes[i].figures.*samples);
    table.rows.push_back({servers[i].name, std::string(name),
                          optional_cell(comparison.median_ratio), optional_cell(comparison.p_value),
                          comparison.enough_samples && comparison.p_value
                              ? report::Cell(*comparison.p_value < 0.01)
                              : report::Cell()});
  };
  for (std::size_t i = 1; i < servers.size(); ++i) {
    add(i, "ttft_s", &client::LoadFigures::ttft_s);
    add(i, "tpot_s", &client::LoadFigures::tpot_s);
    add(i, "e2el_s", &client::LoadFigures::e2e_s);
  }
  report.tables["ratios"] = std::move(table);
}

std::string words_of(const AnswerDifference& difference) {
  return fmt::format(
      "request {}{}: after {} equal {} {} in one, {} in the other", difference.conversation,
      difference.turn > 0 ? fmt::format(", turn {}", difference.turn) : "", difference.position,
      difference.is_by_ids ? "tokens" : "bytes of text", difference.expected, difference.found);
}

void add_answer_findings(const AnswerComparison& answers, const std::string& reference,
                         const std::string& name, ReportSession& session) {
  if (answers.num_compared() == 0) {
    session.add_finding(
        "compare.answers_not_compared", report::Severity::kWarning,
        fmt::format("{} and {}: no answer has token ids or text on both sides", reference, name),
        "Text needs the checkpoint's tokenizer.json");
    return;
  }
  if (!answers.first) {
    session.add_finding(
        "compare.answers_equal", report::Severity::kInfo,
        fmt::format("{} and {}: all {} answers are equal, {} by token ids and {} by text",
                    reference, name, answers.num_compared(), answers.num_by_ids,
                    answers.num_by_text),
        "");
    return;
  }
  const AnswerDifference& first = *answers.first;
  json::Json evidence;
  evidence["request"] = first.conversation;
  evidence["turn"] = first.turn;
  evidence["position"] = first.position;
  evidence["compared_by"] = first.is_by_ids ? "token ids" : "text";
  evidence[reference] = first.expected;
  evidence[name] = first.found;
  session.add_finding(
      "compare.answers_differ", report::Severity::kWarning,
      fmt::format("{} and {}: {} of {} greedy answers differ, first {}", reference, name,
                  answers.num_compared() - answers.num_equal, answers.num_compared(),
                  words_of(first)),
      "Equal weights in float32 part only where two tokens are all but equally likely; early or "
      "frequent differences are another model, another data type or a fault",
      std::move(evidence));
}

// Greedy answers of every subject against the first's.
void add_answers(const std::vector<Subject>& subjects,
                 const std::vector<ServePointOutcome>& outcomes, ReportSession& session) {
  report::Report& report = session.report();
  report::Table table = make_table("Greedy answers against " + subjects.front().name,
                                   {{"server", ""},
                                    {"compared_by_ids_count", "1"},
                                    {"compared_by_text_count", "1"},
                                    {"equal_count", "1"},
                                    {"not_comparable_count", "1"},
                                    {"first_difference", ""}});
  for (std::size_t i = 1; i < subjects.size(); ++i) {
    const AnswerComparison answers =
        compare_answers(outcomes.front().result.records, outcomes[i].result.records);
    const std::string& name = subjects[i].name;
    table.rows.push_back({name, count_cell(answers.num_by_ids), count_cell(answers.num_by_text),
                          count_cell(answers.num_equal), count_cell(answers.num_missing),
                          answers.first ? report::Cell(words_of(*answers.first)) : report::Cell()});
    const char* how =
        "greedy answers that equal the first subject's, by token ids or text, of those compared";
    report.metrics["answers_equal_ratio." + name] =
        answers.num_compared() > 0
            ? value_metric(report::MetricKind::kMeasured, "1",
                           static_cast<double>(answers.num_equal) /
                               static_cast<double>(answers.num_compared()),
                           how)
            : absent_metric(report::MetricKind::kMeasured, "1", "nothing could be compared", how);
    add_answer_findings(answers, subjects.front().name, name, session);
  }
  report.tables["answers"] = std::move(table);
}

json::Json subject_of(const Subject& subject) {
  return subject.here ? subject.here->describe() : serve_subject(subject.target);
}

void add_in_process_finding(const Subject& subject, ReportSession& session) {
  session.add_finding(
      "compare.in_process", report::Severity::kInfo,
      fmt::format("{} runs in this process: its requests start together as a batch and the next "
                  "batch waits for the last of them; there is no HTTP, no queue and no scheduler, "
                  "so its figures are of the engine alone",
                  subject.name),
      "ttft_s is the prefill of the whole batch; a server may start requests one by one");
}

}  // namespace

void fill_compare_report(const CompareArgs& args, const ServeArgs& serve, const ServeInputs& inputs,
                         const ServePoint& point, std::vector<Subject>& subjects,
                         ReportSession& session) {
  report::Report& report = session.report();
  report.subject = subject_of(subjects.front());
  std::string names;
  json::Json places = json::Json::object();
  report::Table table = make_table("Servers", load_columns());
  table.columns.front().name = "server";
  std::vector<ServePointOutcome> outcomes;
  std::optional<RequestsFile> requests;
  if (!serve.requests_jsonl.empty()) requests.emplace(serve.requests_jsonl);
  report.settings["command"] = "compare";
  report.settings["rounds"] = args.rounds;
  report.settings["load"] = point.label;
  fill_serve_settings({&serve, &inputs, &subjects.front().target}, report.settings);
  for (Subject& subject : subjects) {
    outcomes.push_back(outcome_of(subject, point, serve.load));
    const ServePointOutcome& outcome = outcomes.back();
    const ServeFacts facts{&serve, &inputs, &subject.target};
    add_load_metrics(outcome, "." + subject.name, report);
    add_point_findings(outcome, facts, subject.name, session);
    if (subject.here) {
      add_in_process_finding(subject, session);
      report.settings["in_process"] = subject.here->settings();
    }
    std::vector<report::Cell> row = load_row(outcome);
    row.front() = subject.name;
    table.rows.push_back(std::move(row));
    names += (names.empty() ? "" : ", ") + subject.name;
    places[subject.name] = subject_of(subject);
    report.highlights.push_back("ttft_s." + subject.name);
    report.highlights.push_back("output_tokens_per_s." + subject.name);
    if (requests) requests->add(outcome.result, subject.name);
  }
  if (requests) requests->commit();
  report.subject["name"] = names;
  report.subject["servers"] = places;
  report.tables["servers"] = std::move(table);
  add_ratios(subjects, outcomes, report);
  if (serve.keeps_texts) add_answers(subjects, outcomes, session);
  for (const char* metric : {"output_tokens_per_s", "ttft_p50_s", "e2el_p50_s"}) {
    report.charts.push_back({metric, report::ChartKind::kBar, "servers", "server", {metric}, ""});
  }
}

}  // namespace moe::app
