#include "lib/routing/open_input.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/base/text.hpp"
#include "lib/json/read.hpp"
#include "lib/routing/array_file.hpp"
#include "lib/routing/content_hash.hpp"
#include "lib/routing/id_cleaner.hpp"
#include "lib/routing/readers.hpp"
#include "lib/routing/skip_profiling.hpp"
#include "lib/routing/text_lines.hpp"
#include "lib/routing/torch_file.hpp"
#include "lib/routing/trace.hpp"
#include "lib/routing/zip_file.hpp"

namespace moe::routing {
namespace {

// Layers x experts that one window of counts may hold: 2^24 counts are 128 MiB.
constexpr std::int64_t kMaxCells = std::int64_t{1} << 24;
constexpr std::int64_t kMaxExperts = 65536;
constexpr std::size_t kMaxFiles = 65536;

std::string_view text_of(const SharedMap& map) {
  return {reinterpret_cast<const char*>(map->bytes().data()), map->bytes().size()};
}

bool is_safetensors(std::string_view text) {
  std::uint64_t header_bytes = 0;
  if (text.size() < 10) return false;
  std::memcpy(&header_bytes, text.data(), sizeof(header_bytes));
  return text[8] == '{' && header_bytes <= text.size() - 8;
}

bool is_tensorrt(const ArrayFile& file) {
  if (file.arrays.empty()) return false;
  const std::string& name = file.arrays.front().name;
  const std::size_t bar = name.find('_');
  return bar != std::string::npos && bar > 0 &&
         name.find_first_not_of("0123456789_") == std::string::npos;
}

// The first line is a whole JSON object, and either more follows or it is a routing row.
bool is_json_lines(const SharedMap& map) {
  try {
    TextLines lines(map);
    const auto first = lines.next();
    if (!first.has_value()) return false;
    const json::Json object = json::parse(*first, "");
    if (!object.is_object()) return false;
    return lines.next().has_value() || object.contains("topk_ids") ||
           object.contains("topk_experts");
  } catch (const Error&) {
    return false;
  }
}

// Numbers, tabs, an empty column.
bool is_esft(std::string_view text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  return line.find("\t\t") != std::string_view::npos && !line.empty() && line[0] >= '0' &&
         line[0] <= '9';
}

bool is_text(std::string_view text) {
  const std::string_view head = text.substr(0, 4096);
  return std::none_of(head.begin(), head.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 32 && c != '\n' && c != '\r' && c != '\t';
  });
}

RoutingInput open_by_content(const ReaderRequest& request) {
  const SharedMap& map = request.maps.front();
  const std::string_view text = text_of(map);
  if (text.empty()) throw Error(ErrorCode::kInput, request.where() + ": the file is empty");
  if (text.starts_with("PK\x03\x04")) {
    for (const ZipMember& member : read_zip(map->bytes(), request.where())) {
      if (member.name.ends_with("data.pkl")) return open_torch_dump(request);
    }
    return open_arrays(request, open_npz(map));
  }
  if (text.starts_with("\x93NUMPY")) return open_arrays(request, open_npy(map));
  if (is_safetensors(text)) {
    const ArrayFile file = open_safetensors(map);
    if (file.metadata_text("format") == kTraceFormat) return open_moekit_trace(request);
    if (is_tensorrt(file)) return open_tensorrt(request);
    return open_arrays(request, file);
  }
  if (text.starts_with("\x80")) {
    throw Error(ErrorCode::kInput,
                request.where() +
                    ": a bare pickle stream, which is not read; torch.save in its "
                    "zip form, .npy or JSON are");
  }
  if (is_text(text)) {
    if (is_json_lines(map)) return open_json_lines(request);
    const std::string_view start = trim(text.substr(0, 4096));
    const std::size_t begin = start.find_first_not_of("\n ");
    if (begin != std::string_view::npos && (start[begin] == '{' || start[begin] == '[')) {
      return open_json(request);
    }
    if (is_esft(text)) return open_esft(request);
    if (start.find_first_of(",;\t\n") != std::string_view::npos) return open_csv(request);
  }
  throw Error(ErrorCode::kInput,
              request.where() +
                  ": not recognised; known are moekit traces, SGLang dumps (.pt, "
                  ".json), TensorRT-LLM statistics, vLLM routed experts, arrays in "
                  ".npy, .npz and safetensors, JSON, JSON lines, CSV and ESFT text");
}

bool takes_several(Format format) {
  return format == Format::kSglangPerPass || format == Format::kSglangPerToken ||
         format == Format::kTensorRtStatistic || format == Format::kTensorRtRaw ||
         format == Format::kEsftText;
}

// The dump files of a folder; notes and side files are not among them.
std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string extension = entry.path().extension().string();
    const bool is_dump = extension == ".pt" || extension == ".safetensors" || extension == ".txt";
    if (entry.is_regular_file() && is_dump) files.push_back(entry.path());
    if (files.size() > kMaxFiles) break;
  }
  std::sort(files.begin(), files.end());
  if (files.empty() || files.size() > kMaxFiles) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: a folder with {} dump files (.pt, .safetensors, .txt), expected "
                            "the ranks or layers of one run",
                            folder.string(), files.empty() ? "no" : "too many"));
  }
  return files;
}

std::string display_name(const ReaderRequest& request, const std::vector<std::string>& paths) {
  if (!request.set_name.empty()) return request.set_name;
  std::filesystem::path path = paths.front();
  if (path.filename().empty()) path = path.parent_path();
  return path.stem().string();
}

}  // namespace

std::vector<std::int32_t> number_layers(std::int64_t count, std::int32_t first) {
  std::vector<std::int32_t> layers;
  for (std::int64_t l = 0; l < count; ++l) layers.push_back(first + static_cast<std::int32_t>(l));
  return layers;
}

void check_shape(const std::string& where, std::int64_t num_layers, std::int64_t num_experts) {
  const bool fits = num_layers >= 1 && num_layers <= kMaxExperts && num_experts >= 1 &&
                    num_experts <= kMaxExperts && num_layers * num_experts <= kMaxCells;
  if (fits) return;
  throw Error(ErrorCode::kInput,
              fmt::format("{}: {} layers of {} experts; expected 1 to {} of each and {} together",
                          where, num_layers, num_experts, kMaxExperts, kMaxCells));
}

RoutingInput open_input(std::span<const std::string> paths, const OpenOptions& options) {
  if (paths.empty()) throw Error(ErrorCode::kUsage, "no input file given");
  ReaderRequest request;
  request.options = options;
  std::vector<std::string> names(paths.begin(), paths.end());
  for (std::string& name : names) {
    const std::size_t hash = name.rfind('#');
    if (hash != std::string::npos && !std::filesystem::exists(name)) {
      request.set_name = name.substr(hash + 1);
      name.resize(hash);
    }
    if (std::filesystem::is_directory(name)) {
      for (const auto& file : files_in(name)) {
        request.maps.push_back(std::make_shared<const FileMap>(file));
      }
    } else {
      request.maps.push_back(std::make_shared<const FileMap>(name));
    }
  }
  RoutingInput input = open_by_content(request);
  if (request.maps.size() > 1 && !takes_several(input.info.format)) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: {} is one file; {} files are not the ranks or layers of one run",
                            request.where(), format_name(input.info.format), request.maps.size()));
  }
  input.info.name = display_name(request, names);
  for (const SharedMap& map : request.maps) input.info.files.push_back(map->path());
  input.info.content_hash = content_hash(request.maps);
  if (options.skip_profiling) skip_profiling(input);
  return input;
}

RoutingInput open_input(const std::string& path, const OpenOptions& options) {
  return open_input(std::span(&path, 1), options);
}

}  // namespace moe::routing
