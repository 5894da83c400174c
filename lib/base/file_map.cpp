#include "lib/base/file_map.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/error.hpp"

namespace moe {
namespace {

std::int64_t modified_ns(const struct stat& info) {
  return static_cast<std::int64_t>(info.st_mtim.tv_sec) * 1'000'000'000 + info.st_mtim.tv_nsec;
}

[[noreturn]] void fail_to_map(const std::filesystem::path& path, const char* what) {
  throw Error(ErrorCode::kInput, fmt::format("{}: {}", path.string(), what));
}

}  // namespace

FileMap::FileMap(const std::filesystem::path& path) : path_(path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) fail_to_map(path, std::strerror(errno));
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    fail_to_map(path, "expected a regular file");
  }
  size_ = static_cast<std::size_t>(info.st_size);
  modified_ns_ = modified_ns(info);
  if (size_ > 0) {
    void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
    if (mapped == MAP_FAILED) {
      const int error = errno;
      ::close(fd);
      fail_to_map(path, std::strerror(error));
    }
    data_ = static_cast<const std::byte*>(mapped);
  }
  ::close(fd);
}

FileMap::FileMap(FileMap&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      modified_ns_(other.modified_ns_) {}

FileMap& FileMap::operator=(FileMap&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(modified_ns_, other.modified_ns_);
  return *this;
}

FileMap::~FileMap() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

bool FileMap::changed_on_disk() const {
  struct stat info {};
  if (::stat(path_.c_str(), &info) != 0) return true;
  return static_cast<std::size_t>(info.st_size) != size_ || modified_ns(info) != modified_ns_;
}

void FileMap::advise_read_ahead(bool is_on) const noexcept {
  if (data_ == nullptr) return;
  ::madvise(const_cast<std::byte*>(data_), size_, is_on ? MADV_NORMAL : MADV_RANDOM);
}

void FileMap::advise_done(std::size_t offset, std::size_t length) const noexcept {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t begin = (offset + page - 1) / page * page;
  const std::size_t end = (offset + length) / page * page;
  if (data_ == nullptr || end <= begin || end > size_) return;
  ::madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
}

}  // namespace moe
