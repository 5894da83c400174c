#include "lib/comm/mpi_session.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <set>
#include <sstream>
#include <thread>

#include <fmt/format.h>

#include "lib/comm/patience.hpp"
#include "lib/comm/place.hpp"

namespace moe::comm {
namespace {

constexpr int kLengthTag = 2;
constexpr int kTextTag = 3;
constexpr int kExitTag = 4;
constexpr int kTroubleTag = 5;
// How long rank 0 listens for what the others saw, after its own wait is over.
constexpr double kListenS = 1.5;
// How often rank 0 looks whether the run was asked to stop, and how long after that its work may
// stay in one call of the library, which takes microseconds: the report is written before a
// launcher kills (Open MPI: after 1 s).
constexpr auto kWatchStep = std::chrono::milliseconds(50);
constexpr double kComeBackS = 0.5;
constexpr std::size_t kTroubleBytes = std::size_t{64} << 10;
constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30;

// "rank waited interrupted sender receiver ... | operation"; only between processes of one build.
std::string pack(const StuckReport& report) {
  std::string text = fmt::format("{} {} {} {}", report.rank, report.waited_s,
                                 report.was_interrupted ? 1 : 0, report.pairs.size());
  for (const StuckPair& pair : report.pairs) {
    text += fmt::format(" {} {}", pair.sender, pair.receiver);
  }
  return text + " " + report.operation;
}

StuckReport unpack(const std::string& text) {
  std::istringstream fields(text);
  StuckReport report;
  int was_interrupted = 0;
  std::size_t num_pairs = 0;
  fields >> report.rank >> report.waited_s >> was_interrupted >> num_pairs;
  report.was_interrupted = was_interrupted != 0;
  for (std::size_t i = 0; i < num_pairs && fields; ++i) {
    StuckPair pair;
    fields >> pair.sender >> pair.receiver;
    report.pairs.push_back(pair);
  }
  fields >> std::ws;
  std::getline(fields, report.operation);
  return report;
}

// Lengths, then the texts one after the other.
std::string join(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) {
    const auto length = static_cast<std::int64_t>(text.size());
    char bytes[sizeof(length)];
    std::memcpy(bytes, &length, sizeof(length));
    all.append(bytes, sizeof(bytes));
  }
  for (const std::string& text : texts) all += text;
  return all;
}

std::vector<std::string> split(const std::string& all, std::size_t count) {
  std::vector<std::string> texts(count);
  std::size_t begin = count * sizeof(std::int64_t);
  for (std::size_t i = 0; i < count; ++i) {
    std::int64_t length = 0;
    std::memcpy(&length, all.data() + i * sizeof(length), sizeof(length));
    texts[i] = all.substr(begin, static_cast<std::size_t>(length));
    begin += static_cast<std::size_t>(length);
  }
  return texts;
}

// Ranks of which nothing was heard and for which somebody waits. While a launcher takes a job down
// others fall silent too: only where nobody waits for any of them do they all count.
std::vector<int> silent_ranks(const std::vector<bool>& is_heard,
                              const std::vector<StuckReport>& reports) {
  std::set<int> waited_for;
  for (const StuckReport& report : reports) {
    for (const StuckPair& pair : report.pairs) waited_for.insert({pair.sender, pair.receiver});
  }
  std::vector<int> all;
  std::vector<int> suspected;
  for (int r = 0; r < static_cast<int>(is_heard.size()); ++r) {
    if (is_heard[static_cast<std::size_t>(r)]) continue;
    all.push_back(r);
    if (waited_for.count(r) > 0) suspected.push_back(r);
  }
  return suspected.empty() ? all : suspected;
}

}  // namespace

MpiSession::MpiSession(const BackendOptions& options) : options_(options) {
  int provided = 0;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS) {
    throw Error(ErrorCode::kUnavailable, "--backend mpi: MPI did not start");
  }
  may_change_thread_ = provided >= MPI_THREAD_SERIALIZED;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &num_ranks_);
  MPI_Comm_dup(MPI_COMM_WORLD, &data_comm_);
  MPI_Comm_dup(MPI_COMM_WORLD, &text_comm_);
  MPI_Comm_dup(MPI_COMM_WORLD, &trouble_comm_);
  for (MPI_Comm comm : {data_comm_, text_comm_, trouble_comm_}) {
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  }
  const int local = options_.launcher.num_local_ranks.value_or(num_ranks_);
  num_spins_ = local <= find_place().num_cpus ? kOwnCoreSpins : 0;
}

MpiSession::~MpiSession() {
  // After a failure MPI_Finalize would wait for the lost rank.
  if (has_failed_) return;
  MPI_Comm_free(&trouble_comm_);
  MPI_Comm_free(&text_comm_);
  MPI_Comm_free(&data_comm_);
  MPI_Finalize();
}

std::vector<std::pair<std::string, std::string>> MpiSession::facts() const {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  std::string version(text, static_cast<std::size_t>(length));
  version = version.substr(0, version.find(','));
  return {{"mpi_library", version},
          {"transport", "point-to-point messages of MPI, all peers at once"}};
}

void MpiSession::run(const std::function<void()>& work) {
  if (rank_ != 0 || !may_change_thread_ || options_.interrupt == nullptr) {
    work();
    return;
  }
  std::packaged_task<void()> task(work);
  std::future<void> end = task.get_future();
  std::thread worker(std::move(task));
  const SteadyClock clock;
  double since_s = clock.now_s();  // the run was asked to stop and the last call began
  std::int64_t num_calls = -1;
  while (end.wait_for(kWatchStep) != std::future_status::ready) {
    if (!options_.interrupt->requested()) continue;
    if (calls_.num_calls() != num_calls) {
      num_calls = calls_.num_calls();
      since_s = clock.now_s();
    }
    if (clock.now_s() - since_s < kComeBackS || !calls_.abandon()) continue;
    worker.detach();
    has_failed_ = true;
    StuckReport report;
    report.operation = "a call of the MPI library";
    report.waited_s = clock.now_s() - since_s;
    throw StuckError(
        "a call of the MPI library did not come back while the job was taken down, as after the "
        "loss of a rank; the launcher says which",
        std::move(report));
  }
  worker.join();
  end.get();
}

void MpiSession::require(int status, const char* call) const {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(status, text, &length);
  throw Error(ErrorCode::kRuntime,
              fmt::format("rank {}: {} failed: {}", rank_, call,
                          std::string(text, static_cast<std::size_t>(length))));
}

void MpiSession::give_up(const std::string& operation, const Patience& patience,
                         std::vector<StuckPair> pairs) {
  StuckReport report;
  report.rank = rank_;
  report.operation = operation;
  report.waited_s = patience.waited_s();
  report.was_interrupted = patience.was_interrupted();
  report.pairs = std::move(pairs);
  has_failed_ = true;
  throw StuckError(fmt::format("rank {}: {} did not end", rank_, operation), std::move(report));
}

void MpiSession::wait(MPI_Request& request, const std::string& operation,
                      const std::vector<StuckPair>& pairs) {
  Patience patience = make_patience();
  int is_done = 0;
  for (;;) {
    require(look([&] { return MPI_Test(&request, &is_done, MPI_STATUS_IGNORE); }), "MPI_Test");
    if (is_done != 0) return;
    if (is_over(patience)) give_up(operation, patience, pairs);
  }
}

void MpiSession::send_text(const std::string& text, int peer, MPI_Comm comm,
                           const std::string& operation) {
  if (text.size() > kMaxTextBytes) {
    throw Error(ErrorCode::kRuntime,
                fmt::format("{}: {} bytes are too many", operation, text.size()));
  }
  const auto length = static_cast<std::int64_t>(text.size());
  MPI_Request request = MPI_REQUEST_NULL;
  require(MPI_Isend(&length, 1, MPI_INT64_T, peer, kLengthTag, comm, &request), "MPI_Isend");
  wait(request, operation, {{rank_, peer}});
  require(
      MPI_Isend(text.data(), static_cast<int>(length), MPI_BYTE, peer, kTextTag, comm, &request),
      "MPI_Isend");
  wait(request, operation, {{rank_, peer}});
}

std::string MpiSession::receive_text(int peer, MPI_Comm comm, const std::string& operation) {
  std::int64_t length = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  require(MPI_Irecv(&length, 1, MPI_INT64_T, peer, kLengthTag, comm, &request), "MPI_Irecv");
  wait(request, operation, {{peer, rank_}});
  if (length < 0 || length > static_cast<std::int64_t>(kMaxTextBytes)) {
    throw Error(ErrorCode::kRuntime,
                fmt::format("{}: rank {} announces {} bytes", operation, peer, length));
  }
  std::string text(static_cast<std::size_t>(length), '\0');
  require(
      MPI_Irecv(text.data(), static_cast<int>(length), MPI_BYTE, peer, kTextTag, comm, &request),
      "MPI_Irecv");
  wait(request, operation, {{peer, rank_}});
  return text;
}

std::vector<std::string> MpiSession::exchange_texts(const std::string& mine) {
  const std::string operation = "exchange of figures";
  std::vector<std::string> texts(static_cast<std::size_t>(num_ranks_));
  if (rank_ != 0) {
    send_text(mine, 0, text_comm_, operation);
    return split(receive_text(0, text_comm_, operation), texts.size());
  }
  texts[0] = mine;
  for (int r = 1; r < num_ranks_; ++r) {
    texts[static_cast<std::size_t>(r)] = receive_text(r, text_comm_, operation);
  }
  const std::string all = join(texts);
  for (int r = 1; r < num_ranks_; ++r) send_text(all, r, text_comm_, operation);
  return texts;
}

bool MpiSession::is_over(Patience& patience) {
  if (patience.is_over()) return true;
  if (rank_ != 0) return false;
  // Another rank has given up: waiting on is of no use.
  return find_trouble().has_value();
}

std::optional<MPI_Status> MpiSession::find_trouble() {
  int has_message = 0;
  MPI_Status status;
  look([&] {
    return MPI_Iprobe(MPI_ANY_SOURCE, kTroubleTag, trouble_comm_, &has_message, &status);
  });
  if (has_message == 0) return std::nullopt;
  return status;
}

void MpiSession::tell_trouble(const StuckReport& report) {
  Patience patience(kListenS, nullptr, 0);
  std::string text = pack(report);
  text.resize(std::min(text.size(), kTroubleBytes));
  MPI_Request request = MPI_REQUEST_NULL;
  int is_done = 0;
  MPI_Isend(text.data(), static_cast<int>(text.size()), MPI_BYTE, 0, kTroubleTag, trouble_comm_,
            &request);
  while (is_done == 0 && !patience.is_over()) MPI_Test(&request, &is_done, MPI_STATUS_IGNORE);
}

void MpiSession::report_failure(const std::string& message) {
  has_failed_ = true;
  if (rank_ == 0) return;
  StuckReport report;
  report.rank = rank_;
  report.operation = fmt::format("rank {} failed ({}), and its part", rank_, message);
  tell_trouble(report);
}

void MpiSession::explain(const StuckError& error) {
  has_failed_ = true;
  const StuckReport& own = error.reports().front();
  if (rank_ != 0) {
    tell_trouble(own);
    throw merge_stuck({own}, {});
  }
  const double listen_s =
      own.was_interrupted ? Patience::kAfterInterruptS : std::min(kListenS, options_.time_limit_s);
  Patience patience(listen_s, nullptr, 0);
  std::vector<StuckReport> reports{own};
  std::vector<bool> is_heard(static_cast<std::size_t>(num_ranks_), false);
  is_heard[0] = true;
  std::string text(kTroubleBytes, '\0');
  while (std::count(is_heard.begin(), is_heard.end(), false) > 0) {
    const std::optional<MPI_Status> found = find_trouble();
    if (!found) {
      if (patience.is_over()) break;
      continue;
    }
    int length = 0;
    MPI_Get_count(&*found, MPI_BYTE, &length);
    MPI_Recv(text.data(), static_cast<int>(text.size()), MPI_BYTE, found->MPI_SOURCE, kTroubleTag,
             trouble_comm_, MPI_STATUS_IGNORE);
    reports.push_back(unpack(text.substr(0, static_cast<std::size_t>(length))));
    is_heard[static_cast<std::size_t>(found->MPI_SOURCE)] = true;
  }
  throw merge_stuck(reports, silent_ranks(is_heard, reports));
}

void MpiSession::keep_forever(std::list<Buffer> buffers) {
  // Held by nobody on purpose: the process is about to end.
  static std::list<Buffer>* const kept = std::make_unique<std::list<Buffer>>().release();
  kept->splice(kept->end(), buffers);
}

int MpiSession::agree_exit_code(int mine) noexcept {
  try {
    if (has_failed_) {
      // A job that was told to stop is being taken down already.
      const bool is_stopping = options_.interrupt != nullptr && options_.interrupt->requested();
      if (rank_ == 0 && is_stopping) return mine;
      if (rank_ == 0) MPI_Abort(MPI_COMM_WORLD, mine);
      std::this_thread::sleep_for(std::chrono::duration<double>(2.0 * kListenS));
      return mine;
    }
    int code = mine;
    MPI_Request request = MPI_REQUEST_NULL;
    if (rank_ != 0) {
      require(MPI_Irecv(&code, 1, MPI_INT, 0, kExitTag, text_comm_, &request), "MPI_Irecv");
      wait(request, "exit code", {{0, rank_}});
      return code;
    }
    for (int r = 1; r < num_ranks_; ++r) {
      require(MPI_Isend(&code, 1, MPI_INT, r, kExitTag, text_comm_, &request), "MPI_Isend");
      wait(request, "exit code", {{0, r}});
    }
    return code;
  } catch (const std::exception&) {
    has_failed_ = true;
    return mine;
  }
}

}  // namespace moe::comm
