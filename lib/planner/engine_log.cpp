#include "lib/planner/engine_log.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/base/text.hpp"
#include "lib/base/units.hpp"

namespace moe::planner {
namespace {

constexpr double kLargest = 1e15;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Text of the line behind a marker; nullopt when the marker is not there.
std::optional<std::string_view> behind(std::string_view line, std::string_view marker) {
  const std::size_t at = line.find(marker);
  if (at == std::string_view::npos) return std::nullopt;
  return line.substr(at + marker.size());
}

// The first number of a text ("1,048,576", "8.23"), with the slack of its last digit.
std::optional<Printed> number_in(std::string_view text) {
  std::size_t begin = 0;
  while (begin < text.size() && !is_digit(text[begin])) ++begin;
  std::string digits;
  std::size_t decimals = 0;
  bool has_point = false;
  for (std::size_t at = begin; at < text.size(); ++at) {
    const char c = text[at];
    if (is_digit(c)) {
      digits += c;
      if (has_point) ++decimals;
    } else if (c == '.' && !has_point && at + 1 < text.size() && is_digit(text[at + 1])) {
      digits += c;
      has_point = true;
    } else if (c == ',' && at + 1 < text.size() && is_digit(text[at + 1]) && !has_point) {
      continue;
    } else {
      break;
    }
    if (digits.size() > 24) return std::nullopt;
  }
  if (digits.empty()) return std::nullopt;
  Printed printed;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), printed.value);
  if (error != std::errc{} || end != digits.data() + digits.size() || printed.value > kLargest) {
    return std::nullopt;
  }
  printed.slack = has_point ? 0.5 * std::pow(10.0, -static_cast<double>(decimals)) : 0.0;
  return printed;
}

std::optional<Printed> number_behind(std::string_view line, std::string_view marker) {
  const auto text = behind(line, marker);
  return text ? number_in(text->substr(0, 64)) : std::nullopt;
}

std::optional<Printed> bytes_behind(std::string_view line, std::string_view marker, double unit) {
  auto printed = number_behind(line, marker);
  if (!printed) return std::nullopt;
  printed->value *= unit;
  printed->slack *= unit;
  if (!(printed->value < 1e18)) return std::nullopt;
  return printed;
}

void keep(std::optional<Printed>& target, const std::optional<Printed>& value) {
  if (!target && value) target = value;
}

std::optional<std::int64_t> whole(const std::optional<Printed>& printed) {
  if (!printed || printed->value != std::floor(printed->value)) return std::nullopt;
  return static_cast<std::int64_t>(printed->value);
}

// Value of NAME in "NAME=value" or "'NAME': value" of a printed configuration, up to a comma or a
// bracket.
std::optional<std::string_view> setting(std::string_view line, std::string_view name) {
  for (const std::string& marker :
       {fmt::format("'{}': ", name), fmt::format(" {}=", name), fmt::format("({}=", name)}) {
    auto text = behind(line, marker);
    if (!text) continue;
    std::size_t end = text->find_first_of(",)}");
    if (end == std::string_view::npos) end = text->size();
    std::string_view value = text->substr(0, end);
    while (!value.empty() && (value.front() == '\'' || value.front() == '"')) {
      value.remove_prefix(1);
    }
    while (!value.empty() && (value.back() == '\'' || value.back() == '"')) value.remove_suffix(1);
    return value;
  }
  return std::nullopt;
}

std::optional<std::int64_t> whole_setting(std::string_view line, std::string_view name) {
  const auto value = setting(line, name);
  if (!value || value->empty() || !is_digit(value->front())) return std::nullopt;
  return whole(number_in(*value));
}

void set_size(std::string_view line, std::string_view name, std::int32_t& target) {
  if (const auto value = whole_setting(line, name); value && *value >= 1 && *value <= 65536) {
    target = static_cast<std::int32_t>(*value);
  }
}

void set_count(std::string_view line, std::string_view name, std::optional<std::int64_t>& target) {
  if (const auto value = whole_setting(line, name); value && *value >= 1 && *value < 1LL << 40) {
    target = value;
  }
}

void set_text(std::string_view line, std::string_view name, std::string& target) {
  const auto value = setting(line, name);
  if (value && *value != "None") target = printable(value->substr(0, 64));
}

// ---- vLLM ----

void read_vllm_settings(std::string_view line, EngineLog& log) {
  set_size(line, "tensor_parallel_size", log.tp);
  set_size(line, "pipeline_parallel_size", log.pp);
  set_size(line, "data_parallel_size", log.dp);
  set_count(line, "block_size", log.block_tokens);
  set_count(line, "max_model_len", log.max_model_len);
  set_count(line, "max_seq_len", log.max_model_len);
  set_count(line, "max_num_batched_tokens", log.max_batched_tokens);
  set_count(line, "max_num_seqs", log.max_sequences);
  set_text(line, "kv_cache_dtype", log.kv_dtype);
  const auto ratio = setting(line, "gpu_memory_utilization");
  if (ratio && !ratio->empty() && is_digit(ratio->front())) {
    if (const auto number = number_in(*ratio)) log.utilization = number->value;
  }
  if (setting(line, "enable_expert_parallel") == "True") log.ep = 0;  // resolved at the end
  if (line.find("device_config=cpu") != std::string_view::npos) log.is_cpu = true;
  if (const auto version = behind(line, "LLM engine (v")) {
    log.version = printable(version->substr(0, std::min<std::size_t>(version->find(')'), 32)));
  }
}

void read_vllm_memory(std::string_view line, EngineLog& log) {
  keep(log.weights_bytes, bytes_behind(line, "Model loading took ", kGib));
  keep(log.weights_bytes, bytes_behind(line, "model weights take ", kGib));
  keep(log.non_torch_bytes, bytes_behind(line, "non_torch_memory takes ", kGib));
  keep(log.activation_bytes, bytes_behind(line, "PyTorch activation peak memory takes ", kGib));
  keep(log.kv_pool_bytes, bytes_behind(line, "reserved for KV Cache is ", kGib));
  keep(log.kv_pool_bytes, bytes_behind(line, "Available KV cache memory: ", kGib));
  keep(log.kv_pool_bytes, bytes_behind(line, "Explicitly set (", kGib));
  keep(log.file_bytes, bytes_behind(line, "Checkpoint size: ", kGib));
  if (line.find("Graph capturing finished") != std::string_view::npos) {
    keep(log.graph_bytes, bytes_behind(line, "took ", kGib));
  }
  keep(log.graph_bytes, bytes_behind(line, "Estimated CUDA graph memory: ", kGib));
  keep(log.kv_blocks, number_behind(line, "# GPU blocks: "));
  if (const auto tokens = number_behind(line, "KV cache size: ")) {
    keep(log.kv_tokens, tokens);
    if (line.find("CPU KV cache size") != std::string_view::npos) log.is_cpu = true;
  }
  if (const auto request = number_behind(line, "Maximum concurrency for ")) {
    if (!log.concurrency_tokens) log.concurrency_tokens = whole(request);
    if (const auto text = behind(line, "tokens per request: ")) {
      keep(log.max_concurrency, number_in(text->substr(0, 32)));
    }
  }
}

void read_vllm_error(std::string_view line, EngineLog& log) {
  for (const std::string_view marker :
       {"Value error, ", "ValueError: ", "RuntimeError: ", "OutOfMemoryError: "}) {
    if (const auto text = behind(line, marker); text && log.error.empty()) {
      log.error = printable(*text);
    }
  }
}

bool read_vllm(std::string_view line, EngineLog& log) {
  const bool is_settings = line.find("non-default args: ") != std::string_view::npos ||
                           line.find("LLM engine (v") != std::string_view::npos;
  if (is_settings) read_vllm_settings(line, log);
  read_vllm_memory(line, log);
  read_vllm_error(line, log);
  return is_settings;
}

// ---- SGLang: its "GB" are 2^30 bytes ----

bool read_sglang(std::string_view line, EngineLog& log) {
  bool is_known = false;
  if (line.find("server_args=ServerArgs(") != std::string_view::npos) {
    is_known = true;
    set_size(line, "tp_size", log.tp);
    set_size(line, "pp_size", log.pp);
    set_size(line, "dp_size", log.dp);
    set_size(line, "ep_size", log.ep);
    set_text(line, "kv_cache_dtype", log.kv_dtype);
    set_count(line, "chunked_prefill_size", log.max_batched_tokens);
    set_count(line, "context_length", log.max_model_len);
    set_count(line, "page_size", log.block_tokens);
    const auto ratio = setting(line, "mem_fraction_static");
    if (ratio && !ratio->empty() && is_digit(ratio->front())) {
      if (const auto number = number_in(*ratio)) log.utilization = number->value;
    }
  }
  if (line.find("Load weight end") != std::string_view::npos) {
    is_known = true;
    keep(log.weights_bytes, bytes_behind(line, "mem usage=", kGib));
  }
  if (line.find("KV Cache is allocated") != std::string_view::npos) {
    is_known = true;
    keep(log.kv_tokens, number_behind(line, "#tokens: "));
    keep(log.key_bytes, bytes_behind(line, "K size: ", kGib));
    keep(log.value_bytes, bytes_behind(line, "V size: ", kGib));
    if (!log.key_bytes) keep(log.kv_pool_bytes, bytes_behind(line, "KV size: ", kGib));
  }
  if (line.find("max_total_num_tokens=") != std::string_view::npos) {
    is_known = true;
    keep(log.kv_tokens, number_behind(line, "max_total_num_tokens="));
    set_count(line, "context_len", log.max_model_len);
    set_count(line, "max_running_requests", log.max_sequences);
  }
  return is_known;
}

// ---- llama.cpp ----

std::string dtype_in(std::string_view line, std::string_view marker) {
  const auto text = behind(line, marker);
  if (!text) return {};
  const std::size_t end = text->find(')');
  return end == std::string_view::npos ? std::string() : printable(text->substr(0, end));
}

void read_llama_cache(std::string_view line, EngineLog& log) {
  if (log.num_cells) return;  // a second cache holds the window layers
  log.num_cells = whole(number_behind(line, "("));
  if (const auto layers = behind(line, "layers, ")) {
    // "4/1 seqs": sequences and the streams they are kept in.
    log.num_sequences = whole(number_in(*layers));
    log.num_streams = log.num_sequences;
    const std::size_t slash = layers->find('/');
    if (slash != std::string_view::npos) log.num_streams = whole(number_in(layers->substr(slash)));
  }
  log.kv_dtype = dtype_in(line, "K (");
  log.value_dtype = dtype_in(line, "V (");
  keep(log.key_bytes, bytes_behind(line, fmt::format("K ({}): ", log.kv_dtype), kMib));
  keep(log.value_bytes, bytes_behind(line, fmt::format("V ({}): ", log.value_dtype), kMib));
}

bool read_llama(std::string_view line, EngineLog& log) {
  bool is_known = false;
  for (const std::string_view marker :
       {"llama_kv_cache", "llama_context", "print_info:", "load_tensors:", "llm_load_print_meta"}) {
    is_known = is_known || line.find(marker) != std::string_view::npos;
  }
  if (!is_known) return false;
  if (const auto ctx = number_behind(line, "n_ctx                 = ")) {
    log.context_tokens = whole(ctx);
  }
  if (const auto ctx = number_behind(line, "n_ctx_seq             = ")) {
    log.max_model_len = whole(ctx);
  }
  if (const auto sequences = number_behind(line, "n_seq_max             = ")) {
    log.num_sequences = whole(sequences);
  }
  if (const auto batch = number_behind(line, "n_ubatch              = ")) {
    log.max_batched_tokens = whole(batch);
  }
  if (line.find("kv_unified") != std::string_view::npos &&
      line.find("= true") != std::string_view::npos) {
    log.is_unified = true;
  }
  if (const auto type = behind(line, "file type   = ")) {
    log.weight_dtype = printable(type->substr(0, type->find(' ')));
  }
  const bool is_gib = line.find("GiB") != std::string_view::npos;
  keep(log.file_bytes, bytes_behind(line, "file size   = ", is_gib ? kGib : kMib));
  if (line.find("llama_kv_cache") != std::string_view::npos &&
      line.find(": size = ") != std::string_view::npos) {
    read_llama_cache(line, log);
  }
  return true;
}

void finish(EngineLog& log) {
  if (log.ep == 0) log.ep = log.tp * log.dp;
  log.has_started = log.kv_tokens.has_value() || log.kv_blocks.has_value() ||
                    (log.engine == Engine::kLlamaCpp && log.num_cells.has_value());
  if (log.has_started) log.error.clear();
}

}  // namespace

EngineLog parse_engine_log(std::string_view text, const std::string& where) {
  EngineLog vllm;
  EngineLog sglang;
  EngineLog llama;
  sglang.engine = Engine::kSglang;
  llama.engine = Engine::kLlamaCpp;
  bool is_vllm = false;
  bool is_sglang = false;
  bool is_llama = false;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    is_vllm = read_vllm(line, vllm) || is_vllm;
    is_sglang = read_sglang(line, sglang) || is_sglang;
    is_llama = read_llama(line, llama) || is_llama;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  const bool has_vllm_memory =
      vllm.weights_bytes || vllm.kv_tokens || vllm.kv_pool_bytes || vllm.kv_blocks;
  EngineLog log;
  if (is_sglang) {
    log = std::move(sglang);
  } else if (is_vllm || has_vllm_memory) {
    log = std::move(vllm);
  } else if (is_llama) {
    log = std::move(llama);
  } else {
    throw Error(
        ErrorCode::kInput,
        fmt::format("{}: no line of a start-up log of vLLM, SGLang or llama.cpp in it", where));
  }
  finish(log);
  return log;
}

}  // namespace moe::planner
