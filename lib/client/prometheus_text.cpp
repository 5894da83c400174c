#include "lib/client/prometheus_text.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace moe::client {
namespace {

constexpr std::size_t kMaxLineBytes = 65536;
constexpr std::size_t kMaxLabels = 64;

bool is_name_char(char c, bool is_first) {
  const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ':';
  return is_letter || (!is_first && c >= '0' && c <= '9');
}

void skip_blanks(std::string_view& line) {
  while (!line.empty() && (line.front() == ' ' || line.front() == '\t')) line.remove_prefix(1);
}

bool take_name(std::string_view& line, std::string& name) {
  std::size_t size = 0;
  while (size < line.size() && is_name_char(line[size], size == 0)) ++size;
  name = line.substr(0, size);
  line.remove_prefix(size);
  return size > 0;
}

// A quoted value behind '='.
bool take_label_value(std::string_view& line, std::string& value) {
  if (line.empty() || line.front() != '"') return false;
  line.remove_prefix(1);
  while (!line.empty() && line.front() != '"') {
    char c = line.front();
    line.remove_prefix(1);
    if (c == '\\') {
      if (line.empty()) return false;
      c = line.front() == 'n' ? '\n' : line.front();
      line.remove_prefix(1);
    }
    value += c;
  }
  if (line.empty()) return false;
  line.remove_prefix(1);
  return true;
}

bool take_labels(std::string_view& line, MetricSample& sample) {
  if (line.empty() || line.front() != '{') return true;
  line.remove_prefix(1);
  while (true) {
    skip_blanks(line);
    if (!line.empty() && line.front() == '}') {
      line.remove_prefix(1);
      return true;
    }
    std::pair<std::string, std::string> label;
    if (sample.labels.size() == kMaxLabels || !take_name(line, label.first)) return false;
    skip_blanks(line);
    if (line.empty() || line.front() != '=') return false;
    line.remove_prefix(1);
    skip_blanks(line);
    if (!take_label_value(line, label.second)) return false;
    sample.labels.push_back(std::move(label));
    skip_blanks(line);
    if (!line.empty() && line.front() == ',') line.remove_prefix(1);
  }
}

bool parse_value(std::string_view text, double& value) {
  if (text == "+Inf" || text == "Inf" || text == "-Inf") {
    value = std::numeric_limits<double>::infinity() * (text.front() == '-' ? -1.0 : 1.0);
    return true;
  }
  if (text == "NaN") {
    value = std::numeric_limits<double>::quiet_NaN();
    return true;
  }
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  return !text.empty() && error == std::errc() && rest == end && std::isfinite(value);
}

// NAME{LABELS} VALUE [TIME] [# exemplar]
bool parse_sample(std::string_view line, MetricSample& sample) {
  if (line.size() > kMaxLineBytes || !take_name(line, sample.name)) return false;
  skip_blanks(line);
  if (!take_labels(line, sample)) return false;
  skip_blanks(line);
  return parse_value(line.substr(0, line.find_first_of(" \t")), sample.value);
}

bool is_series_of(const MetricSample& sample, std::string_view name, std::string_view suffix) {
  return sample.name.size() == name.size() + suffix.size() && sample.name.starts_with(name) &&
         sample.name.ends_with(suffix);
}

}  // namespace

std::string_view MetricSample::label(std::string_view key) const {
  for (const auto& one : labels) {
    if (one.first == key) return one.second;
  }
  return {};
}

bool MetricsPage::has_prefix(std::string_view prefix) const {
  return std::any_of(samples.begin(), samples.end(),
                     [&](const MetricSample& sample) { return sample.name.starts_with(prefix); });
}

std::optional<double> MetricsPage::sum(std::string_view name) const {
  std::optional<double> total;
  for (const MetricSample& sample : samples) {
    if (sample.name == name && std::isfinite(sample.value)) {
      total = total.value_or(0.0) + sample.value;
    }
  }
  return total && std::isfinite(*total) ? total : std::nullopt;
}

std::optional<double> MetricsPage::mean(std::string_view name) const {
  const std::optional<double> total = sum(name);
  if (!total) return std::nullopt;
  const auto count = std::count_if(samples.begin(), samples.end(), [&](const MetricSample& one) {
    return one.name == name && std::isfinite(one.value);
  });
  return *total / static_cast<double>(count);
}

MetricsPage parse_metrics_page(std::string_view text) {
  MetricsPage page;
  std::size_t num_lines = 0;
  while (!text.empty() && ++num_lines <= kMaxMetricLines) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    skip_blanks(line);
    if (line.empty() || line.front() == '#') continue;
    MetricSample sample;
    if (parse_sample(line, sample)) {
      page.samples.push_back(std::move(sample));
    } else {
      ++page.num_bad_lines;
    }
  }
  return page;
}

std::optional<double> MetricHistogram::mean() const {
  if (!(count > 0.0)) return std::nullopt;
  return sum / count;
}

std::optional<std::pair<double, double>> MetricHistogram::quantile_bucket(double p) const {
  if (!(count > 0.0) || buckets.empty()) return std::nullopt;
  const double rank = std::max(1.0, std::ceil(p * count));
  double begin = 0.0;
  for (const HistogramBucket& bucket : buckets) {
    if (bucket.count >= rank) return std::pair(begin, bucket.end);
    begin = bucket.end;
  }
  return std::nullopt;
}

std::optional<MetricHistogram> histogram_of(const MetricsPage& page, std::string_view name) {
  MetricHistogram histogram;
  bool is_there = false;
  for (const MetricSample& sample : page.samples) {
    if (!std::isfinite(sample.value)) continue;
    if (is_series_of(sample, name, "_count")) {
      histogram.count += sample.value;
      is_there = true;
    } else if (is_series_of(sample, name, "_sum")) {
      histogram.sum += sample.value;
    } else if (is_series_of(sample, name, "_bucket")) {
      double end = 0.0;
      if (!parse_value(sample.label("le"), end) || std::isnan(end)) continue;
      const auto place = std::lower_bound(
          histogram.buckets.begin(), histogram.buckets.end(), end,
          [](const HistogramBucket& bucket, double value) { return bucket.end < value; });
      if (place != histogram.buckets.end() && place->end == end) {
        place->count += sample.value;
      } else {
        histogram.buckets.insert(place, {end, sample.value});
      }
    }
  }
  const bool is_sound = std::isfinite(histogram.count) && std::isfinite(histogram.sum);
  return is_there && is_sound ? std::optional(histogram) : std::nullopt;
}

std::optional<MetricHistogram> added(const MetricHistogram& before, const MetricHistogram& after) {
  if (after.count < before.count) return std::nullopt;
  MetricHistogram more = after;
  more.count -= before.count;
  more.sum -= before.sum;
  for (HistogramBucket& bucket : more.buckets) {
    const auto same =
        std::find_if(before.buckets.begin(), before.buckets.end(),
                     [&](const HistogramBucket& one) { return one.end == bucket.end; });
    if (same == before.buckets.end()) continue;
    if (bucket.count < same->count) return std::nullopt;
    bucket.count -= same->count;
  }
  return more;
}

}  // namespace moe::client
