#include "lib/comm/nccl_job.hpp"

#include <atomic>
#include <charconv>

#include <fmt/format.h>

#include "lib/comm/nccl_communicator.hpp"
#include "lib/comm/place.hpp"
#include "lib/comm/tcp_store.hpp"
#include "lib/sysinfo/build_info.hpp"

namespace moe::comm {
namespace {

// Over the communicator of another backend.
class CommunicatorSide final : public SideChannel {
 public:
  explicit CommunicatorSide(Communicator& communicator) : communicator_(communicator) {}
  std::vector<std::string> exchange_texts(const std::string& mine) override {
    return communicator_.exchange_texts(mine);
  }

 private:
  Communicator& communicator_;
};

class StoreSide final : public SideChannel {
 public:
  explicit StoreSide(TcpStore& store) : store_(store) {}
  std::vector<std::string> exchange_texts(const std::string& mine) override {
    return store_.exchange_texts(mine);
  }

 private:
  TcpStore& store_;
};

// Lower ranks on the same host: the local rank of a launcher that does not say it.
int count_before(const std::vector<std::string>& hosts, int rank) {
  int count = 0;
  for (int r = 0; r < rank; ++r) {
    count += hosts[static_cast<std::size_t>(r)] == hosts[static_cast<std::size_t>(rank)] ? 1 : 0;
  }
  return count;
}

class NcclJob final : public Job {
 public:
  NcclJob(NcclLibraries libraries, const BackendOptions& options)
      : libraries_(std::move(libraries)), options_(options) {
    const LauncherFacts& launcher = options_.launcher;
    if (launcher.name.empty()) {
      if (options_.num_ranks == 0) options_.num_ranks = libraries_.num_devices;
      over_ = "threads of one process";
      side_job_ = open_threads_job(options_);
      return;
    }
    const bool is_mpi = launcher.name == "Open MPI" || launcher.name == "MPICH";
    if (is_mpi && launcher.store_host.empty()) {
      over_ = "MPI";
      side_job_ = open_mpi_job(options_);
      return;
    }
    open_store();
  }

  [[nodiscard]] int num_ranks() const override {
    return side_job_ ? side_job_->num_ranks() : *options_.launcher.num_ranks;
  }
  [[nodiscard]] bool has_rank_0() const override {
    return side_job_ ? side_job_->has_rank_0() : *options_.launcher.rank == 0;
  }

  [[nodiscard]] std::vector<std::pair<std::string, std::string>> facts() const override {
    const bool is_own = options_.uses_own_all_to_all && libraries_.nccl.all_to_all != nullptr;
    return {{"nccl_version", libraries_.nccl_version},
            {"cuda_runtime_version", libraries_.cuda_runtime_version},
            {"cuda_driver_version", libraries_.cuda_driver_version},
            {"gpus_of_process", std::to_string(libraries_.num_devices)},
            {"ranks_meet_over", over_},
            {"all_to_all", is_own ? "ncclAlltoAll where uniform, else grouped send and receive"
                                  : "grouped send and receive"},
            {"buffers", registration_text(libraries_.nccl, options_)},
            {"backend_tested_on", "a stand-in for the libraries; not on GPUs by its developers"}};
  }

  void run(const std::function<void(Communicator&)>& body) override {
    if (side_job_) {
      has_failed_ = false;
      side_job_->run([&](Communicator& communicator) {
        CommunicatorSide side(communicator);
        run_rank(body, communicator.rank(), side);
      });
      return;
    }
    StoreSide side(*store_);
    try {
      run_rank(body, *options_.launcher.rank, side);
    } catch (const std::exception& error) {
      store_->give_up(error.what());
      throw;
    }
  }

  [[nodiscard]] int agree_exit_code(int mine) noexcept override {
    if (side_job_) return side_job_->agree_exit_code(mine);
    try {
      const std::string text = store_->exchange_texts(std::to_string(mine)).front();
      int agreed = mine;
      (void)std::from_chars(text.data(), text.data() + text.size(), agreed);
      return agreed;
    } catch (const std::exception&) {
      return mine;
    }
  }

 private:
  void open_store() {
    const LauncherFacts& launcher = options_.launcher;
    if (!launcher.rank || !launcher.num_ranks) {
      throw Error(ErrorCode::kUsage, launcher.name +
                                         " does not say which rank this is, and of how "
                                         "many");
    }
    if (launcher.store_host.empty() || launcher.store_port == 0) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("{} does not say where the ranks meet: set MASTER_ADDR and "
                              "MASTER_PORT to rank 0's host and a free port of it",
                              launcher.name));
    }
    over_ = fmt::format("TCP, {}:{}", launcher.store_host, launcher.store_port);
    const RankPlace place = find_place();
    StoreOptions store;
    store.host = launcher.store_host;
    store.port = launcher.store_port;
    store.rank = *launcher.rank;
    store.num_ranks = *launcher.num_ranks;
    store.who = fmt::format("{}, process {}", place.host, place.process);
    store.must_agree = "NCCL " + libraries_.nccl_version;
    store.time_limit_s = options_.time_limit_s;
    store.interrupt = options_.interrupt;
    store_ = std::make_unique<TcpStore>(std::move(store));
  }

  void run_rank(const std::function<void(Communicator&)>& body, int rank, SideChannel& side) {
    try {
      NcclRank mine;
      mine.rank = rank;
      mine.num_ranks = num_ranks();
      mine.place = find_place();
      mine.has_failed = &has_failed_;
      const std::vector<std::string> hosts = side.exchange_texts(mine.place.host);
      const int local = options_.launcher.local_rank.value_or(count_before(hosts, rank));
      // A launcher may show each rank one GPU only: then that is number 0 for all of them.
      mine.device = local % libraries_.num_devices;
      NcclCommunicator communicator(libraries_, options_, std::move(mine), side);
      body(communicator);
      communicator.close();
    } catch (...) {
      // Ranks of this process stop waiting for this one.
      has_failed_ = true;
      throw;
    }
  }

  NcclLibraries libraries_;
  BackendOptions options_;
  std::string over_;
  std::unique_ptr<Job> side_job_;    // null: the store is the side channel
  std::unique_ptr<TcpStore> store_;  // null: the job is
  std::atomic<bool> has_failed_{false};
};

}  // namespace

std::unique_ptr<Job> open_nccl_job_over(NcclLibraries libraries, const BackendOptions& options) {
  return std::make_unique<NcclJob>(std::move(libraries), options);
}

std::unique_ptr<Job> open_nccl_job(const BackendOptions& options) {
  for (const sysinfo::Backend& backend : sysinfo::list_backends()) {
    if (backend.name == "nccl" && !backend.is_compiled_in) {
      throw Error(ErrorCode::kUnavailable, "--backend nccl: " + backend.reason);
    }
  }
  return open_nccl_job_over(load_nccl(), options);
}

}  // namespace moe::comm
