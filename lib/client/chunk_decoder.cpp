#include "lib/client/chunk_decoder.hpp"

namespace moe::client {
namespace {

// 2^60 bytes and more are no chunk.
constexpr int kMaxDigits = 15;

int hex_value(char byte) {
  if (byte >= '0' && byte <= '9') return byte - '0';
  if (byte >= 'a' && byte <= 'f') return byte - 'a' + 10;
  if (byte >= 'A' && byte <= 'F') return byte - 'A' + 10;
  return -1;
}

}  // namespace

void ChunkDecoder::end_size() {
  state_ = left_ == 0 ? State::kTrailerStart : State::kData;
  num_digits_ = 0;
}

void ChunkDecoder::take_size(char byte) {
  const int digit = hex_value(byte);
  if (digit >= 0) {
    left_ = left_ * 16 + static_cast<std::uint64_t>(digit);
    if (++num_digits_ > kMaxDigits) state_ = State::kMalformed;
    return;
  }
  if (num_digits_ == 0) {
    state_ = State::kMalformed;
  } else if (byte == '\r') {
    state_ = State::kSizeEnd;
  } else if (byte == '\n') {
    end_size();
  } else {
    const bool is_extension = byte == ';' || byte == ' ' || byte == '\t';
    state_ = is_extension ? State::kExtension : State::kMalformed;
  }
}

void ChunkDecoder::take_framing(char byte) {
  const bool is_lf = byte == '\n';
  switch (state_) {
    case State::kSize:
      take_size(byte);
      break;
    case State::kExtension:
      if (is_lf) end_size();
      break;
    case State::kSizeEnd:
      if (is_lf) {
        end_size();
      } else {
        state_ = State::kMalformed;
      }
      break;
    case State::kDataEnd:
      state_ = is_lf ? State::kSize : byte == '\r' ? State::kDataLf : State::kMalformed;
      break;
    case State::kDataLf:
      state_ = is_lf ? State::kSize : State::kMalformed;
      break;
    case State::kTrailerStart:
      state_ = is_lf ? State::kEnded : byte == '\r' ? State::kTrailerLf : State::kTrailer;
      break;
    case State::kTrailer:
      if (is_lf) state_ = State::kTrailerStart;
      break;
    case State::kTrailerLf:
      state_ = is_lf ? State::kEnded : State::kMalformed;
      break;
    case State::kData:
    case State::kEnded:
    case State::kMalformed:
      break;
  }
}

}  // namespace moe::client
