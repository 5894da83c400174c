#include "lib/planner/step_constants.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/base/text.hpp"
#include "lib/json/read.hpp"
#include "lib/json/write.hpp"
#include "lib/planner/measured_json.hpp"

namespace moe::planner {
namespace {

constexpr std::array<std::string_view, kNumTerms> kTermNames = {"layer_s",
                                                                "sequence_s",
                                                                "host_s",
                                                                "dense_factor",
                                                                "expert_factor",
                                                                "expert_floor_factor",
                                                                "attention_factor",
                                                                "all_reduce_factor",
                                                                "all_to_all_factor",
                                                                "indexer_s",
                                                                "state_layer_s",
                                                                "data_parallel_factor",
                                                                "prefill_fixed_s",
                                                                "prefill_factor",
                                                                "prefill_attention_factor",
                                                                "interference_share",
                                                                "queue_busy_factor",
                                                                "queue_burst_share",
                                                                "first_token_steps",
                                                                "first_token_fixed_s",
                                                                "handover_s",
                                                                "accepted_tokens",
                                                                "age_decode_per_month",
                                                                "age_prefill_per_month"};

constexpr std::array<std::string_view, kNumTermLevels> kLevelNames = {
    "engine", "gpu_engine_precision", "gpu_engine_mixer", "engine_mixer"};

TermFactors parse_factors(const json::Json& entry, const std::string& where) {
  TermFactors result;
  result.log_sigma = number_at(entry, "log_sigma", 1e-6, 10.0, where);
  if (!entry.contains("factors")) return result;
  const json::Json& factors = object_at(entry, "factors", where);
  for (const auto& [key, value] : factors.items()) {
    result.factors[key] = number_at(factors, key.c_str(), 1e-6, 1e6, where);
  }
  return result;
}

TermConstant parse_term(const json::Json& entry, const std::string& where) {
  TermConstant term;
  term.prior = number_at(entry, "prior", 1e-12, 1e6, where);
  term.log_sigma = number_at(entry, "log_sigma", 1e-6, 10.0, where);
  term.value = number_or(entry, "value", term.prior, 1e-12, 1e6, where);
  if (!entry.contains("levels")) return term;
  const json::Json& levels = object_at(entry, "levels", where);
  for (const auto& [name, level] : levels.items()) {
    const auto it = std::find(kLevelNames.begin(), kLevelNames.end(), name);
    if (it == kLevelNames.end()) {
      throw Error(ErrorCode::kInput,
                  fmt::format("{}: unknown level \"{}\"", where, printable(name)));
    }
    term.levels[static_cast<std::size_t>(it - kLevelNames.begin())] =
        parse_factors(level, where + " level " + name);
  }
  return term;
}

// Six digits are more than a fit supports and keep the file readable.
double rounded(double value) {
  return std::stod(fmt::format("{:.6g}", value));
}

}  // namespace

std::string_view term_name(Term term) {
  return kTermNames[static_cast<std::size_t>(term)];
}

std::string_view term_level_name(TermLevel level) {
  return kLevelNames[static_cast<std::size_t>(level)];
}

TermKeys make_term_keys(std::string_view gpu, std::string_view engine, std::string_view precision,
                        std::string_view mixer) {
  TermKeys keys;
  keys.keys[static_cast<std::size_t>(TermLevel::kEngine)] = engine;
  keys.keys[static_cast<std::size_t>(TermLevel::kGroup)] =
      fmt::format("{} {} {}", gpu, engine, precision);
  keys.keys[static_cast<std::size_t>(TermLevel::kAttention)] =
      fmt::format("{} {} {}", gpu, engine, mixer);
  keys.keys[static_cast<std::size_t>(TermLevel::kEngineMixer)] =
      fmt::format("{} {}", engine, mixer);
  return keys;
}

TermValues StepConstants::resolve(const TermKeys& keys) const {
  TermValues result;
  for (std::size_t t = 0; t < kNumTerms; ++t) {
    double value = terms[t].value;
    for (std::size_t l = 0; l < kNumTermLevels; ++l) {
      const TermFactors& level = terms[t].levels[l];
      const auto it = level.factors.find(keys.keys[l]);
      if (it != level.factors.end()) value *= it->second;
    }
    result.values[t] = value;
  }
  return result;
}

bool StepConstants::knows_group(const TermKeys& keys) const {
  const auto group = static_cast<std::size_t>(TermLevel::kGroup);
  return std::any_of(terms.begin(), terms.end(), [&](const TermConstant& term) {
    return term.levels[group].factors.contains(keys.keys[group]);
  });
}

bool StepConstants::knows_engine(std::string_view engine) const {
  const auto level = static_cast<std::size_t>(TermLevel::kEngine);
  return std::any_of(terms.begin(), terms.end(), [&](const TermConstant& term) {
    return term.levels[level].factors.contains(std::string(engine));
  });
}

StepConstants parse_step_constants(std::string_view json_text, const std::string& where) {
  const json::Json document = json::parse(json_text, where);
  StepConstants constants;
  constants.source = text_or(document, "source", "", where);
  constants.reference_date = text_or(document, "reference_date", "", where);
  const json::Json& terms = object_at(document, "terms", where);
  for (const auto& [name, entry] : terms.items()) {
    if (std::find(kTermNames.begin(), kTermNames.end(), name) == kTermNames.end()) {
      throw Error(ErrorCode::kInput,
                  fmt::format("{}: unknown term \"{}\"", where, printable(name)));
    }
  }
  for (std::size_t t = 0; t < kNumTerms; ++t) {
    const std::string name(kTermNames[t]);
    constants.terms[t] =
        parse_term(object_at(terms, name.c_str(), where), where + ": term " + name);
  }
  if (document.contains("held_out")) {
    const json::Json& held_out = object_at(document, "held_out", where);
    for (const auto& [key, entry] : held_out.items()) {
      const std::string here = where + ": held_out " + printable(key);
      GroupError& error = constants.held_out[key];
      error.num_rows = static_cast<std::int64_t>(number_at(entry, "num_rows", 0, 1e9, here));
      error.tpot_median = number_at(entry, "tpot_median", 0.0, 1e6, here);
      error.ttft_median = number_at(entry, "ttft_median", 0.0, 1e6, here);
      error.tpot_p90 = number_at(entry, "tpot_p90", 0.0, 1e6, here);
      error.ttft_p90 = number_at(entry, "ttft_p90", 0.0, 1e6, here);
    }
  }
  return constants;
}

std::string step_constants_json(const StepConstants& constants) {
  json::Json document;
  document["schema_version"] = 1;
  document["source"] = constants.source;
  document["reference_date"] = constants.reference_date;
  for (std::size_t t = 0; t < kNumTerms; ++t) {
    const TermConstant& term = constants.terms[t];
    json::Json entry;
    entry["prior"] = rounded(term.prior);
    entry["log_sigma"] = rounded(term.log_sigma);
    entry["value"] = rounded(term.value);
    for (std::size_t l = 0; l < kNumTermLevels; ++l) {
      const TermFactors& level = term.levels[l];
      if (level.log_sigma <= 0.0) continue;
      json::Json& out = entry["levels"][std::string(kLevelNames[l])];
      out["log_sigma"] = rounded(level.log_sigma);
      out["factors"] = json::Json::object();
      for (const auto& [key, factor] : level.factors) out["factors"][key] = rounded(factor);
    }
    document["terms"][std::string(kTermNames[t])] = std::move(entry);
  }
  document["held_out"] = json::Json::object();
  for (const auto& [key, error] : constants.held_out) {
    document["held_out"][key] = {{"num_rows", error.num_rows},
                                 {"tpot_median", rounded(error.tpot_median)},
                                 {"ttft_median", rounded(error.ttft_median)},
                                 {"tpot_p90", rounded(error.tpot_p90)},
                                 {"ttft_p90", rounded(error.ttft_p90)}};
  }
  return json::dump(document, "step constants") + "\n";
}

}  // namespace moe::planner
