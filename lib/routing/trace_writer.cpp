#include "lib/routing/trace_writer.hpp"

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "lib/base/atomic_file.hpp"
#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/base/int_math.hpp"
#include "lib/routing/trace_columns.hpp"

namespace moe::routing {
namespace {

static_assert(std::endian::native == std::endian::little, "columns are written as they lie");

[[noreturn]] void fail(const std::filesystem::path& target, const char* action) {
  throw Error(ErrorCode::kRuntime, fmt::format("routing trace {}: could not {}: {}",
                                               target.string(), action, std::strerror(errno)));
}

std::span<const std::byte> column_bytes(const Trace& trace, std::size_t column) {
  switch (column) {
    case kTime:
      return std::as_bytes(std::span(trace.time_s));
    case kIds:
      return std::as_bytes(std::span(trace.ids));
    case kWeights:
      return std::as_bytes(std::span(trace.weights));
    case kStep:
      return std::as_bytes(std::span(trace.step));
    case kLayer:
      return std::as_bytes(std::span(trace.layer));
    case kToken:
      return std::as_bytes(std::span(trace.token));
    case kRequest:
      return std::as_bytes(std::span(trace.request));
    case kPhase:
      return std::as_bytes(std::span(trace.phase));
  }
  MOE_CHECK(false);
  return {};
}

std::string header_of(const TraceInfo& info, std::int64_t num_rows) {
  nlohmann::ordered_json header;
  nlohmann::ordered_json& metadata = header["__metadata__"];
  metadata["format"] = kTraceFormat;
  metadata["schema_version"] = fmt::format("{}", kTraceSchemaVersion);
  metadata["model"] = info.model;
  metadata["num_layers"] = fmt::format("{}", info.num_layers);
  metadata["num_experts"] = fmt::format("{}", info.num_experts);
  metadata["top_k"] = fmt::format("{}", info.top_k);
  for (const auto& [key, value] : info.extra) metadata[key] = value;
  std::int64_t offset = 0;
  for (const TraceColumn& column : kTraceColumns) {
    const std::int64_t width = column.is_per_expert ? info.top_k : 1;
    const std::int64_t end = offset + num_rows * width * column.element_bytes;
    nlohmann::ordered_json& tensor = header[std::string(column.name)];
    tensor["dtype"] = column.dtype;
    tensor["shape"] = column.is_per_expert ? nlohmann::ordered_json{num_rows, width}
                                           : nlohmann::ordered_json::array({num_rows});
    tensor["data_offsets"] = {offset, end};
    offset = end;
  }
  std::string text = header.dump();
  text.append(
      static_cast<std::size_t>(align_up(static_cast<std::int64_t>(text.size()), 8)) - text.size(),
      ' ');
  return text;
}

}  // namespace

// A file without a name: it vanishes with the process, whatever ends it.
struct TraceWriter::ScratchFile {
  explicit ScratchFile(const std::filesystem::path& target) {
    std::string name = target.string() + ".tmp-XXXXXX";
    const int descriptor = ::mkstemp(name.data());
    if (descriptor < 0) fail(target, "create a scratch file beside it");
    ::unlink(name.c_str());
    file = ::fdopen(descriptor, "w+b");
    if (file == nullptr) {
      ::close(descriptor);
      fail(target, "open a scratch file");
    }
  }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  ~ScratchFile() {
    if (file != nullptr) std::fclose(file);
  }

  std::FILE* file = nullptr;
};

TraceWriter::TraceWriter(std::filesystem::path target, TraceInfo info)
    : target_(std::move(target)) {
  MOE_CHECK(info.top_k > 0 && info.num_experts >= info.top_k && info.num_layers > 0);
  pending_.info = std::move(info);
  for (std::size_t i = 0; i < kTraceColumns.size(); ++i) {
    scratch_.push_back(std::make_unique<ScratchFile>(target_));
  }
}

TraceWriter::~TraceWriter() = default;

void TraceWriter::reserve(std::int64_t num_rows) {
  const auto rows = static_cast<std::size_t>(num_rows);
  const std::size_t per_expert = rows * static_cast<std::size_t>(pending_.info.top_k);
  pending_.ids.reserve(pending_.ids.size() + per_expert);
  pending_.weights.reserve(pending_.weights.size() + per_expert);
  pending_.step.reserve(pending_.step.size() + rows);
  pending_.layer.reserve(pending_.layer.size() + rows);
  pending_.token.reserve(pending_.token.size() + rows);
  pending_.request.reserve(pending_.request.size() + rows);
  pending_.phase.reserve(pending_.phase.size() + rows);
  pending_.time_s.reserve(pending_.time_s.size() + rows);
}

void TraceWriter::append(const Rows& rows) {
  const auto n = static_cast<std::size_t>(rows.num_tokens);
  const std::size_t per_expert = n * static_cast<std::size_t>(pending_.info.top_k);
  pending_.ids.insert(pending_.ids.end(), rows.ids, rows.ids + per_expert);
  pending_.weights.insert(pending_.weights.end(), rows.weights, rows.weights + per_expert);
  pending_.request.insert(pending_.request.end(), rows.request, rows.request + n);
  for (std::size_t t = 0; t < n; ++t) {
    pending_.token.push_back(static_cast<std::int32_t>(rows.token[t]));
  }
  pending_.step.insert(pending_.step.end(), n, rows.step);
  pending_.layer.insert(pending_.layer.end(), n, rows.layer);
  pending_.phase.insert(pending_.phase.end(), n, rows.phase);
  pending_.time_s.insert(pending_.time_s.end(), n, rows.time_s);
}

void TraceWriter::flush() {
  for (std::size_t i = 0; i < scratch_.size(); ++i) {
    const std::span<const std::byte> bytes = column_bytes(pending_, i);
    if (bytes.empty()) continue;
    if (std::fwrite(bytes.data(), 1, bytes.size(), scratch_[i]->file) != bytes.size()) {
      fail(target_, "write a scratch file");
    }
  }
  num_flushed_ += pending_.num_rows();
  pending_.ids.clear();
  pending_.weights.clear();
  pending_.step.clear();
  pending_.layer.clear();
  pending_.token.clear();
  pending_.request.clear();
  pending_.phase.clear();
  pending_.time_s.clear();
}

void TraceWriter::commit() {
  flush();
  AtomicFile out(target_);
  const std::string header = header_of(pending_.info, num_flushed_);
  const auto header_bytes = static_cast<std::uint64_t>(header.size());
  out.write(std::as_bytes(std::span(&header_bytes, 1)));
  out.write(header);
  std::vector<std::byte> buffer(1 << 20);
  for (const std::unique_ptr<ScratchFile>& scratch : scratch_) {
    if (std::fflush(scratch->file) != 0) fail(target_, "write a scratch file");
    std::rewind(scratch->file);
    for (;;) {
      const std::size_t got = std::fread(buffer.data(), 1, buffer.size(), scratch->file);
      if (got == 0) break;
      out.write(std::span(buffer).first(got));
    }
    if (std::ferror(scratch->file) != 0) fail(target_, "read a scratch file");
  }
  out.commit();
}

}  // namespace moe::routing
