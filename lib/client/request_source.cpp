#include "lib/client/request_source.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "lib/base/check.hpp"
#include "lib/workload/trace.hpp"

namespace moe::client {
namespace {

// Streams of random numbers that must not meet.
constexpr std::uint64_t kPromptStream = 0x70726f6d70740000ULL;
constexpr std::uint64_t kPrefixStream = 0x7072656669780000ULL;
constexpr std::uint64_t kLengthStream = 0x6c656e6774680000ULL;
constexpr std::uint64_t kBlockStream = 0x626c6f636b000000ULL;

std::int32_t random_id(Rng& rng, const RandomIdsOptions& options) {
  const auto span = static_cast<std::uint64_t>(options.end_id - options.first_id);
  return options.first_id + static_cast<std::int32_t>(rng.next_below(span));
}

void append_ids(Rng rng, std::int64_t end, const RandomIdsOptions& options,
                std::vector<std::int32_t>& ids) {
  while (static_cast<std::int64_t>(ids.size()) < end) ids.push_back(random_id(rng, options));
}

RequestSpec ids_request(const BodyOptions& body, const std::vector<std::int32_t>& ids,
                        std::int64_t output_tokens) {
  return {path_of(Api::kCompletions), ids_body(body, ids, output_tokens),
          static_cast<std::int64_t>(ids.size()), output_tokens};
}

}  // namespace

RandomIdsSource::RandomIdsSource(RandomIdsOptions options, BodyOptions body)
    : options_(std::move(options)), body_(std::move(body)) {
  MOE_CHECK(options_.first_id >= 0 && options_.end_id > options_.first_id);
  MOE_CHECK(options_.num_prefixes >= 1 && options_.prefix_tokens >= 0);
}

std::optional<RequestSpec> RandomIdsSource::make(std::int64_t conversation,
                                                 const std::vector<std::string>& answers) const {
  if (!answers.empty()) return std::nullopt;
  const auto number = static_cast<std::uint64_t>(conversation);
  Rng lengths(options_.seed, kLengthStream + number);
  const std::int64_t prompt_tokens = options_.prompt_tokens.sample(lengths);
  const std::int64_t output_tokens = options_.output_tokens.sample(lengths);
  std::vector<std::int32_t> ids;
  ids.reserve(static_cast<std::size_t>(prompt_tokens));
  const std::uint64_t group = lengths.next_below(static_cast<std::uint64_t>(options_.num_prefixes));
  append_ids(Rng(options_.seed, kPrefixStream + group),
             std::min(options_.prefix_tokens, prompt_tokens), options_, ids);
  append_ids(Rng(options_.seed, kPromptStream + number), prompt_tokens, options_, ids);
  return ids_request(body_, ids, output_tokens);
}

TraceSource::TraceSource(std::vector<TraceRequest> requests, RandomIdsOptions ids, BodyOptions body)
    : requests_(std::move(requests)), options_(std::move(ids)), body_(std::move(body)) {}

std::optional<RequestSpec> TraceSource::make(std::int64_t conversation,
                                             const std::vector<std::string>& answers) const {
  if (!answers.empty() || requests_.empty()) return std::nullopt;
  const auto number = static_cast<std::uint64_t>(conversation);
  const TraceRequest& request = requests_[number % requests_.size()];
  const std::int64_t prompt_tokens = std::max<std::int64_t>(1, request.prompt_tokens);
  std::vector<std::int32_t> ids;
  ids.reserve(static_cast<std::size_t>(prompt_tokens));
  // A block's ids follow from its name: requests that share blocks share the beginning.
  for (const std::uint64_t block : request.blocks) {
    const auto end = static_cast<std::int64_t>(ids.size()) + workload::kMooncakeBlockTokens;
    append_ids(Rng(options_.seed, kBlockStream ^ block), std::min(end, prompt_tokens), options_,
               ids);
  }
  append_ids(Rng(options_.seed, kPromptStream + number), prompt_tokens, options_, ids);
  return ids_request(body_, ids, std::max<std::int64_t>(1, request.output_tokens));
}

TextSource::TextSource(std::vector<TextConversation> conversations, Api api, BodyOptions body,
                       std::int64_t output_tokens, std::uint64_t seed)
    : conversations_(std::move(conversations)),
      order_(conversations_.size()),
      api_(api),
      body_(std::move(body)),
      output_tokens_(output_tokens) {
  MOE_CHECK(!conversations_.empty());
  std::iota(order_.begin(), order_.end(), 0);
  Rng rng(seed, kPromptStream);
  for (std::size_t i = order_.size() - 1; i > 0; --i) {
    std::swap(order_[i], order_[rng.next_below(i + 1)]);
  }
  has_turns_ = std::any_of(conversations_.begin(), conversations_.end(),
                           [](const TextConversation& one) { return one.turns.size() > 1; });
}

std::optional<RequestSpec> TextSource::make(std::int64_t conversation,
                                            const std::vector<std::string>& answers) const {
  const auto count = static_cast<std::int64_t>(conversations_.size());
  const TextConversation& from = conversations_[static_cast<std::size_t>(
      order_[static_cast<std::size_t>(conversation % count)])];
  const std::size_t turn = answers.size();
  if (turn >= from.turns.size()) return std::nullopt;
  const std::int64_t round = conversation / count;
  const std::string first_line = round > 0 ? fmt::format("[{}]\n", round) : "";
  RequestSpec spec;
  spec.output_tokens = from.output_tokens[turn] > 0 ? from.output_tokens[turn] : output_tokens_;
  spec.path = path_of(api_);
  if (api_ == Api::kChat) {
    std::vector<ChatMessage> messages;
    if (!from.system.empty()) messages.push_back({"system", from.system});
    for (std::size_t i = 0; i <= turn; ++i) {
      messages.push_back({"user", (i == 0 ? first_line : "") + from.turns[i]});
      if (i < turn) messages.push_back({"assistant", answers[i]});
    }
    spec.body = chat_body(body_, messages, spec.output_tokens);
    return spec;
  }
  std::string prompt = first_line;
  if (!from.system.empty()) prompt += from.system + "\n";
  for (std::size_t i = 0; i <= turn; ++i) {
    prompt += from.turns[i];
    if (i < turn) prompt += "\n" + answers[i] + "\n";
  }
  spec.body = text_body(body_, prompt, spec.output_tokens);
  return spec;
}

}  // namespace moe::client
