#pragma once

// One event's data, or the body of a plain answer, into a StreamEvent.

#include <memory>
#include <string_view>

#include "lib/client/stream_event.hpp"

namespace moe::client {

// Keeps its buffers, so that an event costs no allocation. One thread at a time.
class EventReader {
 public:
  EventReader();
  EventReader(EventReader&&) noexcept;
  EventReader& operator=(EventReader&&) noexcept;
  EventReader(const EventReader&) = delete;
  EventReader& operator=(const EventReader&) = delete;
  ~EventReader();

  // Valid until the next call. Never throws for what the data hold.
  [[nodiscard]] const StreamEvent& read(std::string_view data);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moe::client
