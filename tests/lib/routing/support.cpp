#include "tests/lib/routing/support.hpp"

#include <gtest/gtest.h>

#include "lib/base/error.hpp"
#include "lib/routing/open_input.hpp"
#include "lib/routing/windows.hpp"

namespace moe::routing::test {
namespace {

template <typename Number>
void append(std::string& bytes, Number value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

}  // namespace

std::string data_file(const std::string& name) {
  return std::string(MOE_SOURCE_DIR "/tests/data/routing/") + name;
}

std::string scenario_file(const std::string& name) {
  return std::string(MOE_SOURCE_DIR "/scenarios/") + name;
}

std::string npy_bytes(std::string_view descr, const std::string& shape, std::string_view numbers) {
  std::string header =
      "{'descr': '" + std::string(descr) + "', 'fortran_order': False, 'shape': " + shape + ", }";
  while ((10 + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  std::string bytes("\x93NUMPY\x01\x00", 8);
  append(bytes, static_cast<std::uint16_t>(header.size()));
  return bytes + header + std::string(numbers);
}

std::string zip_bytes(const std::vector<Member>& members) {
  std::string bytes;
  std::string directory;
  for (const Member& member : members) {
    const auto offset = static_cast<std::uint32_t>(bytes.size());
    const auto size = static_cast<std::uint32_t>(member.bytes.size());
    const auto name_size = static_cast<std::uint16_t>(member.name.size());
    std::string common;  // version to time stamps, crc, sizes, name length, extra length
    append(common, std::uint16_t{20});
    append(common, std::uint16_t{0});
    append(common, std::uint16_t{0});
    append(common, std::uint32_t{0});
    append(common, std::uint32_t{0});
    append(common, size);
    append(common, size);
    append(common, name_size);
    append(common, std::uint16_t{0});
    bytes += "PK\x03\x04" + common + member.name + member.bytes;
    directory += "PK\x01\x02";
    append(directory, std::uint16_t{20});
    directory += common;
    append(directory, std::uint16_t{0});
    append(directory, std::uint16_t{0});
    append(directory, std::uint16_t{0});
    append(directory, std::uint32_t{0});
    append(directory, offset);
    directory += member.name;
  }
  const auto begin = static_cast<std::uint32_t>(bytes.size());
  bytes += directory + "PK\x05\x06";
  append(bytes, std::uint32_t{0});
  append(bytes, static_cast<std::uint16_t>(members.size()));
  append(bytes, static_cast<std::uint16_t>(members.size()));
  append(bytes, static_cast<std::uint32_t>(directory.size()));
  append(bytes, begin);
  append(bytes, std::uint16_t{0});
  return bytes;
}

std::string safetensors_bytes(const std::string& header, std::string_view data) {
  std::string bytes;
  append(bytes, static_cast<std::uint64_t>(header.size()));
  return bytes + header + std::string(data);
}

std::string refusal_of(const std::string& path) {
  try {
    RoutingInput input = open_input(path);
    (void)check_input(input);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInput);
    return error.what();
  }
  return "";
}

std::vector<std::int64_t> totals_of(RoutingInput& input) {
  std::vector<std::int64_t> totals;
  for_each_window(input, {}, [&](const Window&, std::span<const std::int64_t> counts) {
    totals.assign(counts.begin(), counts.end());
  });
  return totals;
}

std::int64_t finding_count(const InputCheck& check, const std::string& code) {
  for (const SanityFinding& finding : check.findings) {
    if (finding.code == code) return finding.count;
  }
  return 0;
}

}  // namespace moe::routing::test
