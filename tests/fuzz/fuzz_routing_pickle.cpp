// A pickle stream from arbitrary bytes: refused with an Error or read as plain data.

#include <cstddef>
#include <cstdint>
#include <span>

#include "lib/base/error.hpp"
#include "lib/routing/pickle.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const moe::routing::PickleDocument document =
        moe::routing::read_pickle(std::as_bytes(std::span(data, size)), "fuzz");
    (void)document.find(document.root, "records");
  } catch (const moe::Error&) {
  }
  return 0;
}
