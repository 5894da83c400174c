#pragma once

// The heap of due times. An entry that was replaced stays in and is passed over by its ticket.

#include <algorithm>
#include <cstdint>
#include <vector>

namespace moe::scripted_server {

struct DueTime {
  double at_s = 0.0;
  std::uint32_t connection = 0;
  std::uint32_t ticket = 0;
};

class DueTimes {
 public:
  DueTimes() { heap_.reserve(4096); }

  void push(const DueTime& due) {
    heap_.push_back(due);
    std::push_heap(heap_.begin(), heap_.end(), is_later);
  }
  void pop() {
    std::pop_heap(heap_.begin(), heap_.end(), is_later);
    heap_.pop_back();
  }
  [[nodiscard]] bool empty() const { return heap_.empty(); }
  [[nodiscard]] const DueTime& top() const { return heap_.front(); }

 private:
  static bool is_later(const DueTime& a, const DueTime& b) { return a.at_s > b.at_s; }

  std::vector<DueTime> heap_;
};

}  // namespace moe::scripted_server
