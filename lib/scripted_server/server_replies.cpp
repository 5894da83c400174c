#include <cerrno>

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "lib/scripted_server/routes.hpp"
#include "lib/scripted_server/server_loop.hpp"

namespace moe::scripted_server {
namespace {

constexpr std::size_t kMaxCached = 64;
constexpr double kLinger_s = 2.0;  // for the client to read what was sent before a close

}  // namespace

void ServerLoop::advance(std::uint32_t index) {
  Connection& connection = *connections_[index];
  while (connection.socket.is_open() && connection.state == ConnectionState::kReading) {
    switch (connection.reader.next(connection.request)) {
      case ReadState::kNeedsMore:
        set_interest(connection, EPOLLIN);
        return;
      case ReadState::kWantsContinue: {
        constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
        (void)!::send(connection.socket.get(), kContinue.data(), kContinue.size(), MSG_NOSIGNAL);
        break;
      }
      case ReadState::kBad: {
        ++log_.bad_requests;
        const int status = connection.reader.status();
        reply_plain(index, error_reply(status, "not a request that is understood", false));
        break;
      }
      case ReadState::kComplete:
        take_request(index);
        break;
    }
  }
}

void ServerLoop::take_request(std::uint32_t index) {
  const HttpRequest& request = connections_[index]->request;
  std::optional<Timeline> plain =
      plain_reply(script_, request, counters_, clock_.now_s() - begin_s_);
  if (plain) {
    if (!plain->is_complete) ++log_.bad_requests;
    reply_plain(index, std::move(*plain));
    return;
  }
  take_generation(index, route_of(request) == Route::kChat);
}

void ServerLoop::take_generation(std::uint32_t index, bool is_chat) {
  Connection& connection = *connections_[index];
  const HttpRequest& request = connection.request;
  const double now_s = clock_.now_s();
  GenerationRequest asked;
  const std::string wrong = generation_reader_.read(request.body, is_chat, asked);
  const bool is_other_model =
      script_.dialect != Dialect::kLlamaCpp && !asked.model.empty() && asked.model != script_.model;
  if (!wrong.empty() || is_other_model) {
    ++log_.bad_requests;
    reply_plain(index, wrong.empty() ? error_reply(404, "no such model", request.keeps_alive)
                                     : error_reply(400, wrong, request.keeps_alive));
    return;
  }
  RequestRecord record;
  record.index = num_requests_++;
  record.request_id = request.request_id;
  record.is_chat = is_chat;
  record.is_stream = asked.stream;
  record.prompt_tokens = asked.prompt_tokens;
  record.asked_tokens = asked.max_tokens;
  record.arrived_s = record.started_s = now_s;
  const std::size_t place = static_cast<std::size_t>(record.index) % reply_order_.size();
  connection.record = std::move(record);
  connection.timeline = timeline_for(reply_order_[place], request, asked);
  connection.is_generation = true;
  if (script_.slots > 0 && counters_.running >= script_.slots) {
    connection.state = ConnectionState::kQueued;
    waiting_.push_back({index, ++connection.ticket});
    ++counters_.waiting;
  } else {
    // From the arrival, not from when the reply was laid out.
    begin_reply(index, now_s);
  }
  count_arrival();
}

void ServerLoop::count_arrival() {
  if (script_.refuses_after_requests && num_requests_ >= *script_.refuses_after_requests) {
    listener_.close();
  }
  if (script_.dies_after_requests && num_requests_ >= *script_.dies_after_requests) die();
}

std::shared_ptr<const Timeline> ServerLoop::timeline_for(std::size_t reply,
                                                         const HttpRequest& request,
                                                         const GenerationRequest& asked) {
  for (const CachedTimeline& one : cache_) {
    if (one.reply == reply && one.keeps_alive == request.keeps_alive &&
        one.is_http_10 == request.is_http_10 && one.request == asked) {
      return one.timeline;
    }
  }
  auto timeline = std::make_shared<const Timeline>(make_timeline(
      script_, script_.replies[reply], asked, request.keeps_alive, request.is_http_10));
  CachedTimeline entry{reply, request.keeps_alive, request.is_http_10, asked, timeline};
  if (cache_.size() < kMaxCached) {
    cache_.push_back(std::move(entry));
  } else {
    cache_[next_cached_++ % kMaxCached] = std::move(entry);
  }
  return timeline;
}

void ServerLoop::reply_plain(std::uint32_t index, Timeline timeline) {
  Connection& connection = *connections_[index];
  connection.is_generation = false;
  connection.timeline = std::make_shared<const Timeline>(std::move(timeline));
  begin_reply(index, clock_.now_s());
}

void ServerLoop::begin_reply(std::uint32_t index, double start_s) {
  Connection& connection = *connections_[index];
  connection.state = ConnectionState::kReplying;
  connection.next_due = connection.next_out = connection.sent = 0;
  connection.started_s = start_s;
  if (connection.is_generation) {
    RequestRecord& record = connection.record;
    record.started_s = start_s;
    ++counters_.running;
    counters_.held_tokens += record.prompt_tokens + record.asked_tokens;
    counters_.prompt_tokens += record.prompt_tokens;
    counters_.queue.add(record.started_s - record.arrived_s);
    if (options_.keeps_sends) record.sends.reserve(connection.timeline->pieces.size());
  }
  pump(index);
}

void ServerLoop::write_due(Connection& connection, std::size_t end) {
  const std::string& bytes = connection.timeline->bytes;
  while (connection.sent < end) {
    const ssize_t size = ::send(connection.socket.get(), bytes.data() + connection.sent,
                                end - connection.sent, MSG_NOSIGNAL);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return;
    connection.sent += static_cast<std::size_t>(size);
  }
}

void ServerLoop::note_sends(Connection& connection, double now_s) {
  const std::vector<Piece>& pieces = connection.timeline->pieces;
  RequestRecord& record = connection.record;
  for (; connection.next_out < connection.next_due; ++connection.next_out) {
    const Piece& piece = pieces[connection.next_out];
    if (piece.end > connection.sent) return;
    if (!connection.is_generation) continue;
    const double left_s = now_s - connection.started_s;
    if (record.tokens == 0 && piece.tokens > 0) {
      counters_.ttft.add(connection.started_s - record.arrived_s + left_s);
    }
    counters_.generated_tokens += piece.tokens - record.tokens;
    record.tokens = piece.tokens;
    if (options_.keeps_sends) {
      record.sends.push_back({piece.at_s, left_s, piece.tokens, piece.kind});
    }
  }
}

void ServerLoop::pump(std::uint32_t index) {
  Connection& connection = *connections_[index];
  const Timeline& timeline = *connection.timeline;
  const double since_s = clock_.now_s() - connection.started_s;
  while (connection.next_due < timeline.pieces.size() &&
         timeline.pieces[connection.next_due].at_s <= since_s) {
    ++connection.next_due;
  }
  const std::size_t due_end =
      connection.next_due == 0 ? 0 : timeline.pieces[connection.next_due - 1].end;
  errno = 0;
  write_due(connection, due_end);
  const bool is_broken = connection.sent < due_end && errno != EAGAIN;
  note_sends(connection, clock_.now_s());
  if (is_broken) {
    client_left(index);
  } else if (connection.sent < due_end) {
    set_interest(connection, connection.interest | EPOLLOUT);
  } else {
    set_interest(connection, connection.interest & ~static_cast<std::uint32_t>(EPOLLOUT));
    if (connection.next_due < timeline.pieces.size()) {
      schedule(index, connection.started_s + timeline.pieces[connection.next_due].at_s);
    } else if (since_s < timeline.ends_at_s) {
      schedule(index, connection.started_s + timeline.ends_at_s);
    } else {
      finish_reply(index);
    }
  }
}

void ServerLoop::finish_reply(std::uint32_t index) {
  Connection& connection = *connections_[index];
  const Ending ending = connection.timeline->ending;
  if (ending == Ending::kHang) {
    connection.state = ConnectionState::kHanging;
    return;
  }
  if (connection.is_generation) {
    settle(connection, connection.timeline->is_complete ? ReplyEnd::kComplete : ReplyEnd::kFailed);
  }
  connection.timeline.reset();
  switch (ending) {
    case Ending::kKeepAlive:
      connection.state = ConnectionState::kReading;
      break;
    case Ending::kClose:
      // Closing with unread bytes would reset the connection and could destroy what was sent.
      ::shutdown(connection.socket.get(), SHUT_WR);
      connection.state = ConnectionState::kLingering;
      set_interest(connection, EPOLLIN);
      schedule(index, clock_.now_s() + kLinger_s);
      break;
    case Ending::kReset:
      make_close_a_reset(connection.socket.get());
      drop(index);
      break;
    case Ending::kHang:
      break;
  }
}

void ServerLoop::settle(Connection& connection, ReplyEnd end) {
  RequestRecord& record = connection.record;
  record.ended_s = clock_.now_s();
  record.end = end;
  const bool has_begun = connection.state != ConnectionState::kQueued;
  if (has_begun) {
    --counters_.running;
    counters_.held_tokens -= record.prompt_tokens + record.asked_tokens;
  } else if (counters_.waiting > 0) {
    --counters_.waiting;
  }
  if (end == ReplyEnd::kComplete) {
    counters_.end_to_end.add(record.ended_s - record.arrived_s);
    const bool is_length = std::string_view(connection.timeline->finish_reason) == "length";
    ++(is_length ? counters_.finished_length : counters_.finished_stop);
  } else {
    ++(end == ReplyEnd::kFailed ? counters_.finished_error : counters_.finished_abort);
  }
  connection.is_generation = false;
  has_free_slot_ = has_free_slot_ || has_begun;
  if (options_.sink) {
    unsaid_.push_back(std::move(record));
  } else {
    log_.requests.push_back(std::move(record));
  }
  record = RequestRecord{};
}

void ServerLoop::start_waiting() {
  has_free_slot_ = false;
  while (!waiting_.empty() && counters_.running < script_.slots) {
    const Waiting next = waiting_.front();
    waiting_.pop_front();
    Connection& connection = *connections_[next.connection];
    const bool still_waits = connection.ticket == next.ticket && connection.socket.is_open() &&
                             connection.state == ConnectionState::kQueued;
    if (!still_waits) continue;
    --counters_.waiting;
    begin_reply(next.connection, clock_.now_s());
    advance(next.connection);
  }
}

void ServerLoop::client_left(std::uint32_t index) {
  Connection& connection = *connections_[index];
  const bool has_request =
      connection.is_generation && connection.state != ConnectionState::kReading;
  if (has_request) settle(connection, ReplyEnd::kClientLeft);
  drop(index);
}

}  // namespace moe::scripted_server
