#include "lib/base/atomic_file.hpp"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"

namespace moe {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const char* action) {
  throw Error(ErrorCode::kRuntime,
              fmt::format("could not {} {}: {}", action, path.string(), std::strerror(errno)));
}

// Two writers of one target must not share a temporary file, in one process or in two.
std::string unique_suffix() {
  static std::atomic<unsigned> num_files{0};
  return fmt::format(".tmp-{}-{}", ::getpid(), num_files.fetch_add(1));
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path target) : target_(std::move(target)) {
  std::error_code ignored;
  if (std::filesystem::is_symlink(target_, ignored)) {
    const std::filesystem::path real = std::filesystem::weakly_canonical(target_, ignored);
    if (!real.empty()) target_ = real;
  }
  if (std::filesystem::is_directory(target_, ignored)) {
    errno = EISDIR;
    fail(target_, "create");
  }
  const bool is_device = std::filesystem::exists(target_, ignored) &&
                         !std::filesystem::is_regular_file(target_, ignored);
  if (!is_device) {
    temporary_ = target_;
    temporary_ += unique_suffix();
  }
  file_ = std::fopen(is_device ? target_.c_str() : temporary_.c_str(), "wbe");
  if (file_ == nullptr) {
    temporary_.clear();
    fail(target_, "create");
  }
}

AtomicFile::~AtomicFile() {
  if (file_ != nullptr) std::fclose(file_);
  std::error_code ignored;
  if (!temporary_.empty()) std::filesystem::remove(temporary_, ignored);
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  MOE_CHECK(file_ != nullptr);
  if (bytes.empty()) return;
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) fail(target_, "write");
}

void AtomicFile::write(std::string_view text) {
  write(std::as_bytes(std::span(text)));
}

void AtomicFile::commit() {
  MOE_CHECK(file_ != nullptr);
  const bool closed = std::fflush(file_) == 0 && std::fclose(std::exchange(file_, nullptr)) == 0;
  if (!closed) fail(target_, "write");
  if (temporary_.empty()) return;
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
