#include "lib/client/load_loop.hpp"

#include <algorithm>
#include <ctime>
#include <utility>

#include <fmt/format.h>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/client/loop_thread.hpp"
#include "lib/client/receive_time.hpp"

namespace moe::client {
namespace {

// Open loop: a request is made and its connection opened this long before it leaves.
constexpr double kAhead_s = 0.2;
// So many connections at most stand ready without a request.
constexpr std::int64_t kMaxAhead = 64;
// And so many are opened in one pass, since what is due waits for them.
constexpr std::int64_t kMaxConnects = 2;
// Closed loop: so many requests wait ready for a client that becomes free.
constexpr std::size_t kMaxStash = 64;
// The body must end so soon after [DONE], or the connection is closed without it.
constexpr double kDoneGrace_s = 0.05;
// Closed loop: so many clients begin at once, and the next after a pause. All of them in one go are
// sent faster than a server takes them in, and what they wait for that is not its time to a token.
constexpr std::int64_t kStartsAtOnce = 4;
constexpr double kStartPause_s = 0.5e-3;
// A client whose connection was refused comes back no sooner.
constexpr double kRefusedPause_s = 0.1;
constexpr double kLongestWait_s = 0.05;
constexpr std::int64_t kMaxReserved = 1 << 17;  // records
constexpr double kConnectPatience_s = 5.0;
// Every so many reads tell how long their bytes had waited.
constexpr std::int64_t kDelayStride = 16;

}  // namespace

struct LoadLoop::Client {
  std::int64_t conversation = 0;
  std::vector<std::string> answers;
};

struct LoadLoop::Request final : ExchangeListener {
  Request(LoadLoop& owner, std::size_t own_slot, bool keeps_text)
      : loop(&owner), slot(own_slot), reader(keeps_text) {}

  void on_sent(double time_s) override {
    record.sent_s = time_s - loop->start_s_;
    ++record.num_sends;
  }
  void on_status(int status, double time_s) override {
    reader.set_status(status);
    record.headers_s = time_s - loop->start_s_;
  }
  bool on_bytes(std::string_view bytes, double time_s) override {
    const bool was_done = reader.is_done();
    const std::int64_t num_before = reader.num_outputs();
    const double before_s = reader.last_output_s();
    const double at_s = time_s - loop->start_s_;
    reader.feed(bytes, at_s, loop->events_);
    const std::int64_t num_new = reader.num_outputs() - num_before;
    if (num_new > 0 && num_before + num_new > 1) {
      loop->read_window_.note(num_new > 1 ? 0.0 : at_s - before_s, at_s);
    }
    if (reader.is_done() && !was_done) {
      loop->done_.emplace_back(loop->now_s() + kDoneGrace_s, this);
    }
    return !reader.is_overflown();
  }
  void on_end(const ExchangeEnd& end, double time_s) override {
    if (end.connect_s > 0.0) record.connect_s = end.connect_s;
    finish({end.failure, end.error, time_s - loop->start_s_});
  }
  void finish(const BodyEnd& end) {
    record.end_s = end.time_s;
    reader.finish(end, loop->events_, loop->tools_->count_tokens, record);
    exchange = nullptr;
    loop->on_ended(*this);
  }

  LoadLoop* loop;
  std::size_t slot;
  AnswerReader reader;
  RequestRecord record;
  Client client;
  Transport::Exchange* exchange = nullptr;
  bool is_started = false;
  bool starts_client = false;  // the first of a client of a closed loop
};

LoadLoop::LoadLoop(const Endpoint& endpoint, const LoadPlan& plan, const LoadTools& tools,
                   std::int32_t loop, SharedLoad& shared)
    : plan_(&plan),
      tools_(&tools),
      loop_(loop),
      shared_(&shared),
      transport_(endpoint, plan.transport) {
  next_arrival_ = loop;
}

LoadLoop::~LoadLoop() = default;

double LoadLoop::now_s() const {
  return monotonic_s() - start_s_;
}

void LoadLoop::run() {
  self.has_short_slice = make_punctual();
  try {
    prepare_first();
    connect_first();
    wait_for_start();
    transport_.begin_measuring([this, count = std::int64_t{0}](double delay_s) mutable {
      if (count++ % kDelayStride == 0) self.receive_delay_s.push_back(delay_s);
    });
    loop();
  } catch (const std::exception& error) {
    const std::lock_guard lock(shared_->mutex);
    shared_->failure = error.what();
    shared_->stop_s = -1.0;
  }
  self.cpu_s = thread_cpu_s() - cpu_begin_s_;
  self.num_reads = transport_.stats().num_reads;
  self.num_bytes = transport_.stats().num_bytes;
  self.longest_pass_s = transport_.stats().longest_pass_s;
  self.read_window_s = transport_.stats().read_window_s;
  self.has_kernel_times = transport_.stats().has_kernel_times;
  ++shared_->num_finished;
}

bool LoadLoop::make_request(Client& client, double intended_s) {
  std::optional<RequestSpec> spec = tools_->source->make(client.conversation, client.answers);
  if (!spec) return false;
  std::size_t slot = requests_.size();
  if (free_slots_.empty()) {
    requests_.emplace_back();
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
  }
  const bool keeps_text =
      plan_->keeps_texts || tools_->count_tokens || tools_->source->needs_answers();
  requests_[slot] = std::make_unique<Request>(*this, slot, keeps_text);
  Request& request = *requests_[slot];
  request.record.index = shared_->next_index.fetch_add(1);
  request.record.request_id = fmt::format("{}-{}", shared_->run_name, request.record.index);
  request.record.conversation = client.conversation;
  request.record.turn = static_cast<std::int32_t>(client.answers.size());
  request.record.phase = plan_->phase;
  request.record.intended_s = intended_s;
  request.record.requested_prompt_tokens = spec->prompt_tokens;
  request.record.requested_output_tokens = spec->output_tokens;
  request.client = std::move(client);
  request.exchange =
      transport_.prepare(spec->path, spec->body, request.record.request_id, &request);
  ++num_unsent_;
  if (intended_s >= 0.0) {
    due_.push({intended_s, &request});
  } else {
    stash_.push_back(&request);
  }
  return true;
}

bool LoadLoop::start_conversation(double intended_s, std::int64_t number) {
  Client client;
  client.conversation = plan_->first_conversation + number;
  return make_request(client, intended_s);
}

// The next conversation of a closed loop, made before a client is free for it.
bool LoadLoop::stash_conversation() {
  if (is_source_empty_) return false;
  const std::int64_t number = shared_->next_conversation.fetch_add(1);
  if (plan_->num_conversations > 0 && number >= plan_->num_conversations) {
    is_source_empty_ = true;
    return false;
  }
  if (start_conversation(-1.0, number)) return true;
  is_source_empty_ = true;
  return false;
}

void LoadLoop::prepare_first() {
  // Growing by moving thousands of records would make a send late.
  const std::int64_t expected = plan_->is_open()
                                    ? static_cast<std::int64_t>(plan_->arrivals_s.size())
                                    : plan_->num_conversations;
  records.reserve(
      static_cast<std::size_t>(std::min(expected, kMaxReserved) / plan_->num_loops + 1));
  if (plan_->is_open()) {
    prepare_ahead(0.0);
    return;
  }
  const std::int64_t mine = plan_->concurrency / plan_->num_loops +
                            (loop_ < plan_->concurrency % plan_->num_loops ? 1 : 0);
  for (std::int64_t i = 0; i < mine && stash_conversation(); ++i) {
    stash_.front()->starts_client = true;
    const std::int64_t place = (i * plan_->num_loops + loop_) / kStartsAtOnce;
    next_in_closed_loop(static_cast<double>(place) * kStartPause_s);
  }
}

void LoadLoop::connect_first() {
  transport_.connect_ahead(num_unsent_, num_unsent_);
  const double give_up_s = monotonic_s() + kConnectPatience_s;
  while (transport_.num_connecting() > 0 && monotonic_s() < give_up_s) {
    transport_.run_pass(monotonic_s() + 0.01);
  }
}

void LoadLoop::wait_for_start() {
  ++shared_->num_ready;
  while (shared_->start_s.load() == 0.0) {
    const timespec pause{0, 200'000};
    (void)nanosleep(&pause, nullptr);
  }
  start_s_ = shared_->start_s.load();
  cpu_begin_s_ = thread_cpu_s();
}

void LoadLoop::loop() {
  for (;;) {
    const double now = now_s();
    launch_due(now);
    end_done(now);
    prepare_ahead(now);
    if (now >= shared_->give_up_s.load()) {
      give_up();
      return;
    }
    if (is_finished(now)) return;
    transport_.run_pass(start_s_ + next_time_s(), read_window_.window_s(now_s()));
  }
}

bool LoadLoop::is_finished(double now_s) const {
  if (num_running_ > 0) return false;
  if (now_s >= shared_->stop_s.load()) return true;
  if (num_unsent_ > 0) return false;
  return !plan_->is_open() || next_arrival_ >= static_cast<std::int64_t>(plan_->arrivals_s.size());
}

double LoadLoop::next_time_s() const {
  double time_s = now_s() + kLongestWait_s;
  if (!due_.empty()) time_s = std::min(time_s, due_.top().time_s);
  if (!done_.empty()) time_s = std::min(time_s, done_.front().first);
  if (plan_->is_open() && next_arrival_ < static_cast<std::int64_t>(plan_->arrivals_s.size())) {
    const double arrival_s = plan_->arrivals_s[static_cast<std::size_t>(next_arrival_)];
    time_s = std::min(time_s, arrival_s - kAhead_s / 2.0);
  }
  return time_s;
}

void LoadLoop::launch_due(double now_s) {
  if (now_s >= shared_->stop_s.load()) return;
  while (!due_.empty() && due_.top().time_s <= now_s) {
    Request& request = *due_.top().request;
    due_.pop();
    --num_unsent_;
    ++num_running_;
    request.is_started = true;
    const std::int64_t in_flight = shared_->in_flight.fetch_add(1) + 1;
    std::int64_t peak = shared_->peak_in_flight.load();
    while (peak < in_flight && !shared_->peak_in_flight.compare_exchange_weak(peak, in_flight)) {
    }
    transport_.start(request.exchange);
  }
}

void LoadLoop::prepare_ahead(double now_s) {
  if (now_s >= shared_->stop_s.load()) return;
  if (!plan_->is_open()) {
    // One a pass: making a long prompt takes longer than an answer may wait.
    if (start_s_ > 0.0 && stash_.size() < kMaxStash && num_running_ > 0) {
      (void)stash_conversation();
    }
    return;
  }
  const auto count = static_cast<std::int64_t>(plan_->arrivals_s.size());
  while (next_arrival_ < count) {
    const double intended_s = plan_->arrivals_s[static_cast<std::size_t>(next_arrival_)];
    const bool is_urgent = intended_s <= now_s + kAhead_s / 2.0;
    if (intended_s > now_s + kAhead_s) break;
    if (!start_conversation(intended_s, next_arrival_)) {
      next_arrival_ = count;
      break;
    }
    next_arrival_ += plan_->num_loops;
    if (start_s_ > 0.0 && !is_urgent) break;
  }
  // Kept connections that are free serve too.
  if (start_s_ > 0.0) {
    transport_.connect_ahead(std::min(num_unsent_ - transport_.num_idle(), kMaxAhead),
                             kMaxConnects);
  }
}

void LoadLoop::next_in_closed_loop(double time_s) {
  if (stash_.empty() && !stash_conversation()) return;
  Request* request = stash_.front();
  stash_.pop_front();
  request->record.intended_s = time_s;
  due_.push({time_s, request});
}

void LoadLoop::end_done(double now_s) {
  while (!done_.empty() && done_.front().first <= now_s) {
    Request* request = done_.front().second;
    done_.pop_front();
    if (request->exchange == nullptr) continue;
    transport_.drop(request->exchange);
    request->finish({Failure::kNone, "", now_s});
  }
}

void LoadLoop::give_up() {
  for (std::size_t slot = 0; slot < requests_.size(); ++slot) {
    Request* request = requests_[slot].get();
    if (request == nullptr || !request->is_started || request->exchange == nullptr) continue;
    transport_.drop(request->exchange);
    request->finish({Failure::kCancelled, "the run ended before the answer", now_s()});
  }
}

void LoadLoop::note_end(const RequestRecord& record) {
  shared_->in_flight.fetch_sub(1);
  shared_->num_ended.fetch_add(1);
  if (record.is_success()) {
    const std::optional<double> first_s =
        record.first_token_s ? record.first_token_s : record.end_s;
    if (first_s && record.sent_s) {
      const std::lock_guard lock(shared_->mutex);
      shared_->ttft.push_back({*record.end_s, *first_s - *record.sent_s});
    }
  }
  if (record.failure == Failure::kRefused) {
    shared_->refused_in_a_row.fetch_add(1);
  } else {
    shared_->refused_in_a_row.store(0);
  }
}

void LoadLoop::on_ended(Request& request) {
  --num_running_;
  std::erase_if(done_, [&](const auto& entry) { return entry.second == &request; });
  RequestRecord& record = request.record;
  // The first requests of a closed loop leave together on purpose, one behind the other.
  const bool has_lag = plan_->is_open() || !request.starts_client;
  if (record.sent_s && has_lag) {
    const double lag_s = *record.sent_s - record.intended_s - record.connect_s.value_or(0.0);
    self.send_lag_s.push_back(std::max(0.0, lag_s));
  }
  note_end(record);
  const bool goes_on = record.failure != Failure::kCancelled && now_s() < shared_->stop_s.load();
  const double pause_s = record.failure == Failure::kRefused ? kRefusedPause_s : 0.0;
  const double next_s = *record.end_s + std::max(plan_->think_time_s, pause_s);
  Client client = std::move(request.client);
  const bool is_success = record.is_success();
  if (is_success) client.answers.push_back(record.text);
  if (!plan_->keeps_texts) {
    record.text.clear();
    record.token_ids.clear();
  }
  records.push_back(std::move(record));
  free_slots_.push_back(request.slot);
  const std::size_t slot = request.slot;
  // The listener is still on the stack of its own last call: it is kept until its slot is used.
  const std::unique_ptr<Request> keeps_alive = std::move(requests_[slot]);
  if (!goes_on) return;
  const bool has_next_turn =
      is_success && tools_->source->needs_answers() && make_request(client, next_s);
  if (!has_next_turn && !plan_->is_open()) next_in_closed_loop(next_s);
  if (!due_.empty() && due_.top().time_s <= now_s()) transport_.cut_pass();
}

}  // namespace moe::client
