// Feeds every file of the given directories to the fuzz target that is linked in, one after the
// other, so that the seed corpus and every input that once failed stay unit tests with any
// compiler. A directory that does not exist counts as empty; no file at all is a failure, since a
// test that examined nothing must not pass.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

namespace fs = std::filesystem;

// In the order of their names, so that a failure is the same on every machine.
std::vector<fs::path> list_files(const fs::path& directory) {
  std::vector<fs::path> files;
  if (!fs::is_directory(directory)) return files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

bool replay(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "could not read %s\n", path.c_str());
    return false;
  }
  std::ostringstream stream;
  stream << file.rdbuf();
  const std::string text = stream.str();
  // Printed before the call: when the target aborts, the last line names the input.
  std::fprintf(stderr, "replay %s (%zu bytes)\n", path.c_str(), text.size());
  // An exact copy on the heap lets AddressSanitizer see a read past the end.
  const std::vector<std::uint8_t> bytes(text.begin(), text.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t num_files = 0;
  for (int arg_idx = 1; arg_idx < argc; ++arg_idx) {
    for (const fs::path& path : list_files(argv[arg_idx])) {
      if (!replay(path)) return 1;
      ++num_files;
    }
  }
  if (num_files == 0) {
    std::fprintf(stderr, "no input files in the given directories: nothing was tested\n");
    return 1;
  }
  std::fprintf(stderr, "%zu inputs replayed\n", num_files);
  return 0;
}
