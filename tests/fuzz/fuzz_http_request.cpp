// Any bytes as requests to the scripted server: the same in one piece and in many, and what is
// whole is laid out as a reply.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "lib/scripted_server/generation_request.hpp"
#include "lib/scripted_server/http_request.hpp"
#include "lib/scripted_server/routes.hpp"

namespace {

using moe::scripted_server::HttpRequest;
using moe::scripted_server::ReadState;
using moe::scripted_server::RequestReader;
using moe::scripted_server::Route;

struct Outcome {
  std::vector<HttpRequest> requests;
  int status = 0;
};

void drain(RequestReader& reader, Outcome& outcome) {
  HttpRequest request;
  while (outcome.status == 0) {
    const ReadState state = reader.next(request);
    if (state == ReadState::kNeedsMore) return;
    if (state == ReadState::kComplete) outcome.requests.push_back(request);
    if (state == ReadState::kBad) outcome.status = reader.status();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0 || size > 100000) return 0;
  const std::size_t piece = data[0] % 17 + 1;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  Outcome whole;
  RequestReader whole_reader;
  whole_reader.append(bytes);
  drain(whole_reader, whole);
  Outcome pieces;
  RequestReader piece_reader;
  HttpRequest request;
  for (std::size_t at = 0; at < bytes.size() && pieces.status == 0; at += piece) {
    piece_reader.append(bytes.substr(at, piece));
    while (pieces.status == 0) {
      const ReadState state = piece_reader.next(request);
      if (state == ReadState::kNeedsMore) break;
      if (state == ReadState::kComplete) pieces.requests.push_back(request);
      if (state == ReadState::kBad) pieces.status = piece_reader.status();
    }
  }
  if (whole.status != pieces.status || whole.requests.size() != pieces.requests.size()) {
    std::abort();
  }
  moe::scripted_server::GenerationRequestReader reader;
  moe::scripted_server::GenerationRequest asked;
  for (std::size_t i = 0; i < whole.requests.size(); ++i) {
    const HttpRequest& one = whole.requests[i];
    if (one.body != pieces.requests[i].body || one.path != pieces.requests[i].path) std::abort();
    (void)reader.read(one.body, moe::scripted_server::route_of(one) == Route::kChat, asked);
  }
  return 0;
}
