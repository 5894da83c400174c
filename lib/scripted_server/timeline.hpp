#pragma once

// A reply as bytes with times: everything is laid out before the first byte leaves, so that sending
// is copying.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/scripted_server/generation_request.hpp"
#include "lib/scripted_server/script.hpp"

namespace moe::scripted_server {

enum class PieceKind : std::uint8_t {
  kHeaders,
  kComment,
  kOpening,
  kTokens,
  kFinish,
  kUsage,
  kError,
  kDone,
  kEnd,
  kPart,  // the first parts of an event that leaves in several
};
[[nodiscard]] const char* piece_name(PieceKind kind);

// Bytes up to `end` are due at at_s after the start of the reply. Times and ends never decrease.
struct Piece {
  double at_s = 0.0;
  std::uint32_t end = 0;
  std::int32_t tokens = 0;  // generated tokens that are out once this piece is
  PieceKind kind = PieceKind::kHeaders;
};

// What follows when all bytes are out.
enum class Ending : std::uint8_t { kKeepAlive, kClose, kReset, kHang };

struct Timeline {
  std::string bytes;
  std::vector<Piece> pieces;
  Ending ending = Ending::kKeepAlive;
  double ends_at_s = 0.0;          // the ending, not before the last piece
  bool is_complete = false;        // a reply that a client must count as a success
  std::int64_t tokens = 0;         // generated in all
  const char* finish_reason = "";  // "stop", "length", "tool_calls"; "error" for a failure
};

// The reply to a request. `client_keeps_alive` and `is_http_10` are the connection's side of it.
[[nodiscard]] Timeline make_timeline(const Script& script, const Reply& reply,
                                     const GenerationRequest& request, bool client_keeps_alive,
                                     bool is_http_10);

// A whole reply at once: models, health, metrics, refusals.
[[nodiscard]] Timeline make_plain(int status, std::string_view content_type, std::string_view body,
                                  bool keeps_alive, bool is_head);

[[nodiscard]] std::string_view status_text(int status);

}  // namespace moe::scripted_server
