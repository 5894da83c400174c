#include "lib/scripted_server/token_events.hpp"

#include <algorithm>

namespace moe::scripted_server {
namespace {

bool ends_early(const Fault& fault) {
  switch (fault.kind) {
    case FaultKind::kCut:
    case FaultKind::kCleanCut:
    case FaultKind::kReset:
    case FaultKind::kHang:
    case FaultKind::kErrorEvent:
      return true;
    case FaultKind::kNone:
    case FaultKind::kBadJson:
    case FaultKind::kHttpError:
      return false;
  }
  return false;
}

bool is_every(std::int64_t every, std::int64_t index) {
  return every > 0 && (index + 1) % every == 0;
}

class Planner {
 public:
  Planner(const Reply& reply, const GenerationRequest& request)
      : reply_(reply), request_(request), tokens_(reply.tokens) {
    const bool is_limited = tokens_.limit < request.max_tokens;
    plan_.tokens = std::min(tokens_.limit, request.max_tokens);
    plan_.finish_reason = !is_limited ? "length" : tokens_.tool > 0 ? "tool_calls" : "stop";
    first_tool_ = plan_.tokens - std::min(tokens_.tool, plan_.tokens);
    plan_.has_token_ids = reply.events.token_ids == Extra::kAlways ||
                          (reply.events.token_ids == Extra::kAsAsked && request.return_token_ids);
    fails_ = ends_early(reply.fault);
    if (fails_) plan_.tokens = std::min(plan_.tokens, reply.fault.after_tokens);
    ends_by_eos_ = reply.events.finish == Finish::kEos && is_limited && !fails_ && plan_.tokens > 0;
  }

  TokenPlan make() {
    const std::int64_t end = plan_.tokens - (ends_by_eos_ ? 1 : 0);
    std::int64_t begin = 0;
    while (begin < end) {
      const std::int64_t size = event_size();
      begin = add_event(begin, std::min(begin + size, end), end);
    }
    plan_.last_s =
        plan_.tokens > 0 ? token_due_s(reply_, plan_.tokens - 1) : reply_.timing.first_token_s;
    plan_.elapsed_s = plan_.last_s - token_due_s(reply_, 0);
    hold_back_writes();
    if (!fails_) add_finish(end);
    return std::move(plan_);
  }

 private:
  [[nodiscard]] std::int64_t event_size() const {
    const bool is_first = plan_.events.empty();
    return is_first && tokens_.first_event > 0 ? tokens_.first_event : tokens_.per_event;
  }

  // Without max_tokens or a limit, no token of a kind follows one of another in the same event.
  [[nodiscard]] TextKind kind_of(std::int64_t token) const {
    if (request_.is_chat && token < tokens_.reasoning) return TextKind::kReasoning;
    if (request_.is_chat && token >= first_tool_) return TextKind::kTool;
    return TextKind::kContent;
  }

  // The event of tokens [begin, end), cut where the kind changes. Withheld tokens ahead of it are
  // in it; returns where the next one begins.
  std::int64_t add_event(std::int64_t begin, std::int64_t end, std::int64_t last) {
    std::int64_t shown = begin;
    while (shown < last && is_every(tokens_.withheld_every, shown)) ++shown;
    if (shown == last) {
      withheld_from_ = begin;  // nothing shows them but the finish event
      return last;
    }
    end = std::max(end, shown + 1);
    const TextKind kind = kind_of(shown);
    EventParts parts;
    parts.kind = kind;
    parts.first_token = begin;
    std::int64_t token = begin;
    for (; token < end && (token <= shown || kind_of(token) == kind); ++token) {
      if (is_every(tokens_.empty_every, token)) continue;
      const auto texts = static_cast<std::int64_t>(tokens_.texts.size());
      parts.text += escape_json(tokens_.texts[static_cast<std::size_t>(token % texts)]);
    }
    parts.end_token = token;
    parts.is_first_of_kind = plan_.events.empty() || plan_.events.back().parts.kind != kind;
    dress(parts);
    plan_.events.push_back({token_due_s(reply_, shown), std::move(parts)});
    return token;
  }

  void dress(EventParts& parts) const {
    const Events& events = reply_.events;
    parts.has_token_ids = plan_.has_token_ids;
    parts.has_usage = events.usage == UsageMode::kEveryEvent ||
                      (events.usage == UsageMode::kAsAsked && request_.include_usage &&
                       request_.continuous_usage);
    parts.has_timings = events.timings == Extra::kAlways ||
                        (events.timings == Extra::kAsAsked && request_.timings_per_token);
    parts.elapsed_s = token_due_s(reply_, std::max<std::int64_t>(parts.end_token - 1, 0)) -
                      token_due_s(reply_, 0);
  }

  // Groups of events that leave together, when the last of them is due.
  void hold_back_writes() {
    const auto group = static_cast<std::size_t>(tokens_.events_per_write);
    std::vector<TokenEvent>& events = plan_.events;
    for (std::size_t begin = 0; group > 1 && begin < events.size(); begin += group) {
      const std::size_t end = std::min(begin + group, events.size());
      for (std::size_t i = begin; i < end; ++i) events[i].at_s = events[end - 1].at_s;
    }
  }

  void add_finish(std::int64_t shown_end) {
    const Finish finish = reply_.events.finish;
    const bool has_own_event = finish == Finish::kSeparate || ends_by_eos_ ||
                               (withheld_from_ && finish != Finish::kMissing) ||
                               (plan_.events.empty() && finish != Finish::kMissing);
    EventParts* last = plan_.events.empty() ? nullptr : &plan_.events.back().parts;
    if (has_own_event) {
      EventParts parts;
      parts.first_token = withheld_from_.value_or(shown_end);
      parts.end_token = plan_.tokens;
      dress(parts);
      plan_.finish_event = parts;
      last = &*plan_.finish_event;
    }
    if (last == nullptr) return;
    if (finish != Finish::kMissing) last->finish_reason = plan_.finish_reason;
    if (reply_.events.usage == UsageMode::kLastChoice) last->has_usage = true;
    if (reply_.events.timings == Extra::kAlways) last->has_timings = true;
  }

  const Reply& reply_;
  const GenerationRequest& request_;
  const Tokens& tokens_;
  TokenPlan plan_;
  std::int64_t first_tool_ = 0;
  bool fails_ = false;
  bool ends_by_eos_ = false;
  std::optional<std::int64_t> withheld_from_;
};

}  // namespace

double token_due_s(const Reply& reply, std::int64_t index) {
  const Timing& timing = reply.timing;
  double due_s = timing.first_token_s + static_cast<double>(index) * timing.token_interval_s;
  for (const Stall& stall : timing.stalls) {
    if (stall.before_token <= index + 1) due_s += stall.for_s;
  }
  return due_s;
}

TokenPlan plan_tokens(const Reply& reply, const GenerationRequest& request) {
  return Planner(reply, request).make();
}

}  // namespace moe::scripted_server
