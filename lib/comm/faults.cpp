#include "lib/comm/faults.hpp"

#include <chrono>
#include <csignal>
#include <thread>

#include <fmt/format.h>

#include "lib/base/parse_number.hpp"
#include "lib/base/units.hpp"

namespace moe::comm {
namespace {

[[noreturn]] void refuse(std::string_view text, const std::string& option) {
  throw Error(ErrorCode::kUsage,
              fmt::format("{}: expected corrupt:RANK, hang:RANK, kill:RANK (with @N: after N "
                          "exchanges) or slow:RANK:DURATION, found \"{}\"",
                          option, text));
}

std::int64_t parse_count(std::string_view text, std::string_view whole, const std::string& option) {
  const auto value = parse_number<std::int64_t>(text);
  if (!value || *value < 0 || *value > 1'000'000'000) refuse(whole, option);
  return *value;
}

class FaultyCommunicator final : public Communicator {
 public:
  FaultyCommunicator(Communicator& inner, const Fault& fault) : inner_(inner), fault_(fault) {}

  [[nodiscard]] int rank() const override { return inner_.rank(); }
  [[nodiscard]] int num_ranks() const override { return inner_.num_ranks(); }
  [[nodiscard]] const RankPlace& place() const override { return inner_.place(); }
  [[nodiscard]] bool moves_data() const override { return inner_.moves_data(); }
  [[nodiscard]] Buffer allocate(std::int64_t size_bytes) override {
    return inner_.allocate(size_bytes);
  }
  void copy_in(std::byte* buffer, const std::byte* host, std::int64_t size_bytes) override {
    inner_.copy_in(buffer, host, size_bytes);
  }
  void copy_out(std::byte* host, const std::byte* buffer, std::int64_t size_bytes) override {
    inner_.copy_out(host, buffer, size_bytes);
  }

  void begin_all_to_all(const Exchange& exchange) override {
    exchange_ = exchange;
    const bool is_due = fault_.rank == rank() && num_exchanges_++ >= fault_.after_exchanges;
    is_corrupting_ = is_due && fault_.kind == FaultKind::kCorrupt;
    if (is_due && fault_.kind == FaultKind::kKill) std::raise(SIGKILL);
    const bool is_late = fault_.kind == FaultKind::kSlow || fault_.kind == FaultKind::kHang;
    if (is_due && is_late) {
      std::this_thread::sleep_for(std::chrono::duration<double>(fault_.delay_s));
    }
    inner_.begin_all_to_all(exchange);
  }
  [[nodiscard]] bool progress_all_to_all() override { return inner_.progress_all_to_all(); }
  void end_all_to_all() override {
    inner_.end_all_to_all();
    if (is_corrupting_) flip_one_bit();
  }

  void all_gather(const std::byte* send, std::byte* recv, std::int64_t size_bytes) override {
    inner_.all_gather(send, recv, size_bytes);
  }
  void reduce_scatter_sum(const float* send, float* recv, std::int64_t count) override {
    inner_.reduce_scatter_sum(send, recv, count);
  }
  void barrier() override { inner_.barrier(); }
  [[nodiscard]] std::vector<std::string> exchange_texts(const std::string& mine) override {
    return inner_.exchange_texts(mine);
  }

 private:
  // In the middle of the first part that holds anything.
  void flip_one_bit() {
    for (std::size_t p = 0; p < exchange_.recv_bytes.size(); ++p) {
      if (exchange_.recv_bytes[p] == 0) continue;
      std::byte* place = exchange_.recv + exchange_.recv_offsets[p] + exchange_.recv_bytes[p] / 2;
      std::byte value{};
      inner_.copy_out(&value, place, 1);
      value ^= std::byte{0x10};
      inner_.copy_in(place, &value, 1);
      return;
    }
  }

  Communicator& inner_;
  Fault fault_;
  Exchange exchange_;
  std::int64_t num_exchanges_ = 0;
  bool is_corrupting_ = false;
};

}  // namespace

Fault parse_fault(std::string_view text, const std::string& option) {
  Fault fault;
  if (text.empty()) return fault;
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) refuse(text, option);
  const std::string_view kind = text.substr(0, colon);
  std::string_view rest = text.substr(colon + 1);
  if (kind == "slow") {
    const std::size_t second = rest.find(':');
    if (second == std::string_view::npos) refuse(text, option);
    fault.kind = FaultKind::kSlow;
    fault.delay_s = parse_duration_s(rest.substr(second + 1));
    rest = rest.substr(0, second);
  } else {
    fault.kind = kind == "corrupt" ? FaultKind::kCorrupt
                 : kind == "hang"  ? FaultKind::kHang
                 : kind == "kill"  ? FaultKind::kKill
                                   : FaultKind::kNone;
    if (fault.kind == FaultKind::kNone) refuse(text, option);
    const std::size_t at = rest.find('@');
    if (at != std::string_view::npos) {
      fault.after_exchanges = parse_count(rest.substr(at + 1), text, option);
      rest = rest.substr(0, at);
    }
  }
  fault.rank = static_cast<int>(parse_count(rest, text, option));
  return fault;
}

std::unique_ptr<Communicator> make_faulty(Communicator& inner, const Fault& fault) {
  return std::make_unique<FaultyCommunicator>(inner, fault);
}

}  // namespace moe::comm
