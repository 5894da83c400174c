#pragma once

// What is sent: conversations of one or more turns, each a pure function of its number, so that the
// same seed gives the same requests whatever the timing.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/rng.hpp"
#include "lib/client/request_body.hpp"
#include "lib/workload/length_distribution.hpp"

namespace moe::client {

struct RequestSpec {
  std::string path;
  std::string body;
  std::int64_t prompt_tokens = 0;  // 0: not known
  std::int64_t output_tokens = 0;  // 0: no limit given
};

class RequestSource {
 public:
  RequestSource() = default;
  RequestSource(const RequestSource&) = delete;
  RequestSource& operator=(const RequestSource&) = delete;
  virtual ~RequestSource() = default;

  // Turn `answers.size()` of a conversation, given the answers to the turns before; nullopt when it
  // has no such turn. From any thread.
  [[nodiscard]] virtual std::optional<RequestSpec> make(
      std::int64_t conversation, const std::vector<std::string>& answers) const = 0;
  // Whether answers matter: then texts must be kept.
  [[nodiscard]] virtual bool needs_answers() const { return false; }
};

// Random token ids of exact lengths. Each prompt begins with `prefix_tokens` ids that one of
// `num_prefixes` groups shares; the rest differs from request to request and, through the seed,
// from run to run.
struct RandomIdsOptions {
  workload::LengthDistribution prompt_tokens = workload::LengthDistribution::fixed(128);
  workload::LengthDistribution output_tokens = workload::LengthDistribution::fixed(64);
  std::int32_t first_id = 0;
  std::int32_t end_id = 1;  // ids are in [first_id, end_id)
  std::int64_t prefix_tokens = 0;
  std::int64_t num_prefixes = 1;
  std::uint64_t seed = 0;
};

class RandomIdsSource final : public RequestSource {
 public:
  RandomIdsSource(RandomIdsOptions options, BodyOptions body);
  [[nodiscard]] std::optional<RequestSpec> make(
      std::int64_t conversation, const std::vector<std::string>& answers) const override;

 private:
  RandomIdsOptions options_;
  BodyOptions body_;
};

// Lengths of a recorded trace, request by request, with random ids as the text.
struct TraceRequest {
  double arrival_s = 0.0;
  std::int64_t prompt_tokens = 0;
  std::int64_t output_tokens = 0;
  std::vector<std::uint64_t> blocks;  // names of shared prefix blocks, 512 tokens each
};

class TraceSource final : public RequestSource {
 public:
  TraceSource(std::vector<TraceRequest> requests, RandomIdsOptions ids, BodyOptions body);
  [[nodiscard]] std::optional<RequestSpec> make(
      std::int64_t conversation, const std::vector<std::string>& answers) const override;

 private:
  std::vector<TraceRequest> requests_;
  RandomIdsOptions options_;
  BodyOptions body_;
};

// Texts of a data set: conversations whose user turns are given; the answers between them are the
// server's own.
struct TextConversation {
  std::vector<std::string> turns;           // of the user
  std::vector<std::int64_t> output_tokens;  // one a turn; 0: the default
  std::string system;
};

class TextSource final : public RequestSource {
 public:
  // `output_tokens` where a turn names none. Conversation i is entry i modulo their number, in an
  // order shuffled by the seed; from the second round on a short line with the round's number
  // stands in front, since a server would answer an equal prompt from its cache.
  TextSource(std::vector<TextConversation> conversations, Api api, BodyOptions body,
             std::int64_t output_tokens, std::uint64_t seed);
  [[nodiscard]] std::optional<RequestSpec> make(
      std::int64_t conversation, const std::vector<std::string>& answers) const override;
  [[nodiscard]] bool needs_answers() const override { return has_turns_; }

 private:
  std::vector<TextConversation> conversations_;
  std::vector<std::int32_t> order_;
  Api api_;
  BodyOptions body_;
  std::int64_t output_tokens_;
  bool has_turns_ = false;
};

// ShareGPT (an array of {"conversations": [{"from", "value"}]}) or JSON lines with "prompt",
// "messages" or "turns" and optionally "output_tokens". At most `max_turns` of a conversation (0:
// all). Throws Error(kInput) with the line or entry.
[[nodiscard]] std::vector<TextConversation> read_conversations(const std::string& path,
                                                               std::int64_t max_turns);
// The same over text in memory; `where` names it in messages.
[[nodiscard]] std::vector<TextConversation> parse_conversations(std::string_view text,
                                                                const std::string& where,
                                                                std::int64_t max_turns);

}  // namespace moe::client
