#include "lib/base/atomic_file.hpp"

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "lib/base/error.hpp"

namespace moe {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const char* action) {
  throw Error(ErrorCode::kRuntime,
              fmt::format("could not {} {}: {}", action, path.string(), std::strerror(errno)));
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path target) : target_(std::move(target)) {
  temporary_ = target_;
  temporary_ += fmt::format(".tmp-{}", ::getpid());
  file_ = std::fopen(temporary_.c_str(), "wbe");
  if (file_ == nullptr) fail(target_, "create");
}

AtomicFile::~AtomicFile() {
  if (file_ != nullptr) std::fclose(file_);
  std::error_code ignored;
  if (!temporary_.empty()) std::filesystem::remove(temporary_, ignored);
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) fail(target_, "write");
}

void AtomicFile::write(std::string_view text) {
  write(std::as_bytes(std::span(text)));
}

void AtomicFile::commit() {
  const bool closed = std::fflush(file_) == 0 && std::fclose(std::exchange(file_, nullptr)) == 0;
  if (!closed) fail(target_, "write");
  std::error_code error;
  std::filesystem::rename(temporary_, target_, error);
  if (error) {
    throw Error(ErrorCode::kRuntime,
                fmt::format("could not rename to {}: {}", target_.string(), error.message()));
  }
  temporary_.clear();
}

void write_file_atomically(const std::filesystem::path& target, std::string_view text) {
  AtomicFile file(target);
  file.write(text);
  file.commit();
}

}  // namespace moe
