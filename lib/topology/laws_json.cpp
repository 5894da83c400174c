// The constants as JSON.

#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/json/read.hpp"
#include "lib/topology/time_laws.hpp"

namespace moe::topology {
namespace {

constexpr const char* kLawsSchema = "moekit-time-laws";
constexpr int kVersion = 1;

// Six digits say more than the measurements do.
double rounded(double value) {
  if (value == 0.0) return 0.0;
  const double scale = std::pow(10.0, 5.0 - std::floor(std::log10(std::abs(value))));
  return std::round(value * scale) / scale;
}

Json to_json(const SizeLaw& law) {
  Json out = Json::object();
  out["alpha_s"] = rounded(law.alpha_s);
  out["s_per_byte"] = rounded(law.s_per_byte);
  out["s_per_sqrt_byte"] = rounded(law.s_per_sqrt_byte);
  return out;
}

Json to_json(const ErrorSummary& error) {
  Json out = Json::object();
  out["points"] = error.count;
  out["p50"] = rounded(error.p50);
  out["p90"] = rounded(error.p90);
  out["max"] = rounded(error.max);
  return out;
}

// Typed access with the place in the message.
class LawsReader {
 public:
  LawsReader(const Json& value, std::string where) : value_(value), where_(std::move(where)) {
    if (!value.is_object()) fail("expected an object");
  }
  [[nodiscard]] std::string text(const char* key) const {
    if (!at(key).is_string()) fail(fmt::format("\"{}\": expected a text", key));
    return at(key).get<std::string>();
  }
  [[nodiscard]] std::int64_t count(const char* key) const {
    const bool is_ok = at(key).is_number_integer() && at(key).get<std::int64_t>() >= 0;
    if (!is_ok) fail(fmt::format("\"{}\": expected a count", key));
    return at(key).get<std::int64_t>();
  }
  [[nodiscard]] double number(const char* key) const {
    const bool is_ok = at(key).is_number() && at(key).get<double>() >= 0.0;
    if (!is_ok) fail(fmt::format("\"{}\": expected a number of 0 or more", key));
    return at(key).get<double>();
  }
  [[nodiscard]] LawsReader object(const char* key) const {
    return LawsReader(at(key), where_ + "/" + key);
  }
  [[nodiscard]] const Json& at(const char* key) const {
    if (!value_.contains(key)) fail(fmt::format("missing \"{}\"", key));
    return value_.at(key);
  }
  [[nodiscard]] const Json& value() const { return value_; }
  [[noreturn]] void fail(const std::string& message) const {
    throw Error(ErrorCode::kInput, fmt::format("{}: {}", where_, message));
  }

 private:
  const Json& value_;
  std::string where_;
};

SizeLaw read_law(const LawsReader& reader) {
  return {reader.number("alpha_s"), reader.number("s_per_byte"), reader.number("s_per_sqrt_byte")};
}

ErrorSummary read_error(const LawsReader& reader) {
  return {reader.count("points"), reader.number("p50"), reader.number("p90"), reader.number("max")};
}

CollectiveSeries read_collective(const LawsReader& reader) {
  CollectiveSeries series;
  series.gpu = reader.text("gpu");
  series.library = reader.text("library");
  series.version = reader.text("version");
  series.op = reader.text("op");
  series.num_ranks = reader.count("ranks");
  if (series.num_ranks < 2) reader.fail("expected two ranks or more");
  series.num_points = reader.count("points");
  series.plain = read_law(reader.object("alpha_beta"));
  series.law = read_law(reader.object("alpha_beta_sqrt"));
  const Json& knots = reader.at("knots");
  if (!knots.is_array()) reader.fail("\"knots\": expected a list");
  for (const Json& knot : knots) {
    const bool is_pair = knot.is_array() && knot.size() == 2 && knot[0].is_number() &&
                         knot[1].is_number() && knot[0].get<double>() > 0.0 &&
                         knot[1].get<double>() > 0.0;
    const bool ascends =
        is_pair && (series.knots.empty() || series.knots.back().bytes < knot[0].get<double>());
    if (!ascends) reader.fail("\"knots\": expected pairs of bytes, ascending, and a ratio");
    series.knots.push_back({knot[0].get<double>(), knot[1].get<double>()});
  }
  if (!series.knots.empty()) series.max_bytes = series.knots.back().bytes;
  series.plain_error = read_error(reader.object("held_out_alpha_beta"));
  series.law_error = read_error(reader.object("held_out_alpha_beta_sqrt"));
  series.error = read_error(reader.object("held_out"));
  return series;
}

MoeSeries read_moe(const LawsReader& reader) {
  MoeSeries series;
  series.gpu = reader.text("gpu");
  series.library = reader.text("library");
  series.version = reader.text("version");
  series.api = reader.text("api");
  series.phase = reader.text("phase");
  series.dtype = reader.text("dtype");
  series.num_ranks = reader.count("ranks");
  series.num_nodes = reader.count("nodes");
  if (series.num_ranks < 2) reader.fail("expected two ranks or more");
  series.num_points = reader.count("points");
  series.default_sms = reader.count("sms");
  const LawsReader terms = reader.object("terms_s");
  for (const auto& [name, value] : terms.value().items()) {
    series.terms.emplace_back(name, terms.number(name.c_str()));
    (void)moe_term(name, MoePoint{"", "", "", "", "", "", 2, 1, 1, 1, 2, 1, 1, 1.0});
  }
  series.error = read_error(reader.object("held_out"));
  return series;
}

}  // namespace

Json laws_to_json(const MeasuredLaws& laws) {
  Json document = Json::object();
  document["schema"] = kLawsSchema;
  document["schema_version"] = kVersion;
  document["source"] = laws.source;
  document["model"] =
      "time = (alpha_s + s_per_byte V + s_per_sqrt_byte sqrt(V)) x ratio at the size; V = bytes x "
      "(n-1)/n, bytes as nccl-tests counts them; dispatch and combine: sum of terms_s x term. "
      "held_out: errors on a quarter of the points, kept from that fit";
  Json collectives = Json::array();
  for (const CollectiveSeries& series : laws.collectives) {
    Json entry = Json::object();
    entry["gpu"] = series.gpu;
    entry["library"] = series.library;
    entry["version"] = series.version;
    entry["op"] = series.op;
    entry["ranks"] = series.num_ranks;
    entry["points"] = series.num_points;
    entry["alpha_beta"] = to_json(series.plain);
    entry["alpha_beta_sqrt"] = to_json(series.law);
    Json knots = Json::array();
    for (const Knot& knot : series.knots) {
      knots.push_back(Json::array({static_cast<std::int64_t>(knot.bytes), rounded(knot.ratio)}));
    }
    entry["knots"] = std::move(knots);
    entry["held_out_alpha_beta"] = to_json(series.plain_error);
    entry["held_out_alpha_beta_sqrt"] = to_json(series.law_error);
    entry["held_out"] = to_json(series.error);
    collectives.push_back(std::move(entry));
  }
  document["collectives"] = std::move(collectives);
  Json moe = Json::array();
  for (const MoeSeries& series : laws.moe) {
    Json entry = Json::object();
    entry["gpu"] = series.gpu;
    entry["library"] = series.library;
    entry["version"] = series.version;
    entry["api"] = series.api;
    entry["phase"] = series.phase;
    entry["dtype"] = series.dtype;
    entry["ranks"] = series.num_ranks;
    entry["nodes"] = series.num_nodes;
    entry["points"] = series.num_points;
    entry["sms"] = series.default_sms;
    Json terms = Json::object();
    for (const auto& [name, seconds] : series.terms) terms[name] = rounded(seconds);
    entry["terms_s"] = std::move(terms);
    entry["held_out"] = to_json(series.error);
    moe.push_back(std::move(entry));
  }
  document["moe"] = std::move(moe);
  return document;
}

MeasuredLaws laws_from_json(const Json& document, const std::string& where) {
  const LawsReader root(document, where);
  if (root.text("schema") != kLawsSchema || root.count("schema_version") != kVersion) {
    root.fail(fmt::format("expected schema {} of version {}", kLawsSchema, kVersion));
  }
  MeasuredLaws laws;
  laws.source = root.text("source");
  const auto each = [&](const char* key, auto&& read) {
    const Json& list = root.at(key);
    if (!list.is_array()) root.fail(fmt::format("\"{}\": expected a list", key));
    for (std::size_t i = 0; i < list.size(); ++i) {
      read(LawsReader(list.at(i), fmt::format("{}: /{}/{}", where, key, i)));
    }
  };
  each("collectives", [&](const LawsReader& r) { laws.collectives.push_back(read_collective(r)); });
  each("moe", [&](const LawsReader& r) { laws.moe.push_back(read_moe(r)); });
  return laws;
}

MeasuredLaws read_laws(const std::filesystem::path& path) {
  return laws_from_json(json::parse_file(path.string()), path.string());
}

}  // namespace moe::topology
