#pragma once

// The body of an HTTP/1.1 answer out of its chunks (RFC 9112, 7.1), from bytes that arrive in any
// pieces. Extensions and trailers are passed over; a line may end with LF alone, as other readers
// allow.

#include <cstdint>
#include <string_view>

namespace moe::client {

class ChunkDecoder {
 public:
  // Calls sink(std::string_view) for each piece of the body and returns how many bytes belong to
  // it: fewer than given when the body ended inside them, or what follows is no chunk.
  template <typename Sink>
  std::size_t feed(std::string_view bytes, Sink&& sink) {
    std::size_t at = 0;
    while (at < bytes.size() && !is_ended() && !is_malformed()) {
      if (state_ == State::kData) {
        const std::size_t left = bytes.size() - at;
        const std::size_t size = left_ < left ? static_cast<std::size_t>(left_) : left;
        sink(bytes.substr(at, size));
        at += size;
        left_ -= size;
        if (left_ == 0) state_ = State::kDataEnd;
      } else {
        take_framing(bytes[at++]);
      }
    }
    return at;
  }

  [[nodiscard]] bool is_ended() const { return state_ == State::kEnded; }
  [[nodiscard]] bool is_malformed() const { return state_ == State::kMalformed; }
  friend bool operator==(const ChunkDecoder&, const ChunkDecoder&) = default;

 private:
  enum class State : std::uint8_t {
    kSize,
    kExtension,  // the rest of the line of a size
    kSizeEnd,    // its LF
    kData,
    kDataEnd,
    kDataLf,
    kTrailerStart,
    kTrailer,
    kTrailerLf,  // of the empty line that ends the body
    kEnded,
    kMalformed,
  };

  void take_framing(char byte);
  void take_size(char byte);
  void end_size();

  State state_ = State::kSize;
  int num_digits_ = 0;
  std::uint64_t left_ = 0;  // of the chunk
};

}  // namespace moe::client
