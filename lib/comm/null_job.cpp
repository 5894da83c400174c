// One rank that pretends to be several and moves nothing: what is then measured is the tool itself.

#include "lib/comm/backend.hpp"
#include "lib/comm/place.hpp"

namespace moe::comm {
namespace {

class NullCommunicator final : public Communicator {
 public:
  NullCommunicator(int num_ranks, RankPlace place)
      : num_ranks_(num_ranks), place_(std::move(place)) {}

  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int num_ranks() const override { return num_ranks_; }
  [[nodiscard]] const RankPlace& place() const override { return place_; }
  [[nodiscard]] bool moves_data() const override { return false; }
  // Nothing is ever read or written.
  [[nodiscard]] Buffer allocate(std::int64_t size_bytes) override {
    return {nullptr, size_bytes, nullptr};
  }
  void copy_in(std::byte*, const std::byte*, std::int64_t) override {}
  void copy_out(std::byte*, const std::byte*, std::int64_t) override {}
  void begin_all_to_all(const Exchange&) override {}
  [[nodiscard]] bool progress_all_to_all() override { return true; }
  void end_all_to_all() override {}
  void all_gather(const std::byte*, std::byte*, std::int64_t) override {}
  void reduce_scatter_sum(const float*, float*, std::int64_t) override {}
  void barrier() override {}
  [[nodiscard]] std::vector<std::string> exchange_texts(const std::string& mine) override {
    return std::vector<std::string>(static_cast<std::size_t>(num_ranks_), mine);
  }

 private:
  int num_ranks_;
  RankPlace place_;
};

class NullJob final : public Job {
 public:
  explicit NullJob(int num_ranks) : num_ranks_(num_ranks) {}

  [[nodiscard]] int num_ranks() const override { return num_ranks_; }
  [[nodiscard]] bool has_rank_0() const override { return true; }
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> facts() const override {
    return {{"transport", "none: nothing is moved"}};
  }
  void run(const std::function<void(Communicator&)>& body) override {
    NullCommunicator communicator(num_ranks_, find_place());
    body(communicator);
  }
  [[nodiscard]] int agree_exit_code(int mine) noexcept override { return mine; }

 private:
  int num_ranks_;
};

}  // namespace

std::unique_ptr<Job> open_null_job(const BackendOptions& options) {
  return std::make_unique<NullJob>(options.num_ranks > 0 ? options.num_ranks : 2);
}

}  // namespace moe::comm
