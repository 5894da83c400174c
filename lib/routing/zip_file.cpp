#include "lib/routing/zip_file.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/base/text.hpp"

namespace moe::routing {
namespace {

// Record layouts: PKWARE APPNOTE 6.3.
constexpr std::uint32_t kLocalHeader = 0x04034b50;
constexpr std::uint32_t kCentralHeader = 0x02014b50;
constexpr std::uint32_t kEndOfDirectory = 0x06054b50;
constexpr std::uint32_t kEndOfDirectory64 = 0x06064b50;
constexpr std::uint32_t kLocator64 = 0x07064b50;
constexpr std::size_t kEndBytes = 22;
constexpr std::size_t kLocatorBytes = 20;
constexpr std::size_t kCentralBytes = 46;
constexpr std::size_t kLocalBytes = 30;
constexpr std::size_t kMaxCommentBytes = 65535;
constexpr std::uint32_t kIn64 = 0xffffffff;
constexpr std::uint16_t kZip64Extra = 1;

class Archive {
 public:
  Archive(std::span<const std::byte> file, const std::string& where) : file_(file), where_(where) {}

  std::vector<ZipMember> members() {
    find_directory();
    std::vector<ZipMember> members;
    std::size_t at = directory_begin_;
    for (std::uint64_t i = 0; i < num_members_; ++i) members.push_back(member(at));
    return members;
  }

 private:
  [[noreturn]] void fail(const std::string& message) const {
    throw Error(ErrorCode::kInput, fmt::format("{}: {}", where_, message));
  }

  template <typename Number>
  Number number(std::size_t offset) const {
    if (offset > file_.size() || file_.size() - offset < sizeof(Number)) {
      fail(fmt::format("the zip archive ends at byte {}, inside a record; is the file whole?",
                       file_.size()));
    }
    Number value{};
    std::memcpy(&value, file_.data() + offset, sizeof(Number));
    return value;
  }

  void find_directory() {
    if (file_.size() < kEndBytes) fail("too short for a zip archive");
    const std::size_t last = file_.size() - kEndBytes;
    const std::size_t first = last > kMaxCommentBytes ? last - kMaxCommentBytes : 0;
    std::optional<std::size_t> end;
    for (std::size_t at = last + 1; at-- > first;) {
      if (number<std::uint32_t>(at) == kEndOfDirectory) {
        end = at;
        break;
      }
    }
    if (!end.has_value()) fail("a zip archive without its directory; is the file whole?");
    num_members_ = number<std::uint16_t>(*end + 10);
    std::uint64_t begin = number<std::uint32_t>(*end + 16);
    if (*end >= kLocatorBytes && number<std::uint32_t>(*end - kLocatorBytes) == kLocator64) {
      const auto at = number<std::uint64_t>(*end - kLocatorBytes + 8);
      if (at > file_.size() || number<std::uint32_t>(at) != kEndOfDirectory64) {
        fail("the zip64 directory is not where the archive says");
      }
      num_members_ = number<std::uint64_t>(at + 32);
      begin = number<std::uint64_t>(at + 48);
    }
    if (begin > file_.size() || num_members_ > (file_.size() - begin) / kCentralBytes) {
      fail(fmt::format("a zip directory of {} members at byte {} does not fit the file",
                       num_members_, begin));
    }
    directory_begin_ = begin;
  }

  // Replaces the sizes that the 64-bit extra field holds.
  void read_zip64(std::size_t at, std::size_t bytes, std::uint64_t& size, std::uint64_t& packed,
                  std::uint64_t& local) const {
    const std::size_t end = at + bytes;
    while (at + 4 <= end) {
      const auto id = number<std::uint16_t>(at);
      const std::size_t length = number<std::uint16_t>(at + 2);
      at += 4;
      if (length > end - at) return;
      if (id == kZip64Extra) {
        std::size_t field = at;
        for (std::uint64_t* value : {&size, &packed, &local}) {
          if (*value != kIn64) continue;
          if (field + 8 > at + length) fail("a zip64 record is too short");
          *value = number<std::uint64_t>(field);
          field += 8;
        }
        return;
      }
      at += length;
    }
  }

  ZipMember member(std::size_t& at) const {
    if (number<std::uint32_t>(at) != kCentralHeader) fail("the zip directory is damaged");
    const auto flags = number<std::uint16_t>(at + 8);
    const auto method = number<std::uint16_t>(at + 10);
    std::uint64_t packed = number<std::uint32_t>(at + 20);
    std::uint64_t size = number<std::uint32_t>(at + 24);
    const std::size_t name_bytes = number<std::uint16_t>(at + 28);
    const std::size_t extra_bytes = number<std::uint16_t>(at + 30);
    const std::size_t comment_bytes = number<std::uint16_t>(at + 32);
    std::uint64_t local = number<std::uint32_t>(at + 42);
    const std::size_t variable = name_bytes + extra_bytes + comment_bytes;
    if (file_.size() - at - kCentralBytes < variable) fail("the zip directory is cut off");
    ZipMember result;
    const auto* name = reinterpret_cast<const char*>(file_.data() + at + kCentralBytes);
    result.name.assign(name, name_bytes);
    read_zip64(at + kCentralBytes + name_bytes, extra_bytes, size, packed, local);
    const std::string shown = printable(result.name);
    if (method != 0) {
      fail(
          fmt::format("member {} is compressed (method {}); write the file without compression "
                      "(numpy.savez, torch.save)",
                      shown, method));
    }
    if ((flags & 1) != 0) fail(fmt::format("member {} is encrypted", shown));
    if (size != packed) fail(fmt::format("member {}: two different sizes", shown));
    if (local > file_.size() || number<std::uint32_t>(local) != kLocalHeader) {
      fail(fmt::format("member {} is not where the directory says", shown));
    }
    const std::uint64_t data =
        local + kLocalBytes + number<std::uint16_t>(local + 26) + number<std::uint16_t>(local + 28);
    if (data > file_.size() || size > file_.size() - data) {
      fail(fmt::format("member {} of {} bytes does not fit the file; is the file whole?", shown,
                       size));
    }
    result.bytes = file_.subspan(data, size);
    at += kCentralBytes + variable;
    return result;
  }

  std::span<const std::byte> file_;
  const std::string& where_;
  std::uint64_t num_members_ = 0;
  std::size_t directory_begin_ = 0;
};

}  // namespace

std::vector<ZipMember> read_zip(std::span<const std::byte> file, const std::string& where) {
  return Archive(file, where).members();
}

}  // namespace moe::routing
