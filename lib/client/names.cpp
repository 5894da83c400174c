#include "lib/client/load_result.hpp"
#include "lib/client/request_record.hpp"

namespace moe::client {

const char* name_of(Failure failure) {
  switch (failure) {
    case Failure::kNone:
      return "none";
    case Failure::kRefused:
      return "refused";
    case Failure::kReset:
      return "reset";
    case Failure::kTimeout:
      return "timeout";
    case Failure::kTls:
      return "tls";
    case Failure::kHttpStatus:
      return "http_status";
    case Failure::kTooLong:
      return "too_long";
    case Failure::kErrorEvent:
      return "error_event";
    case Failure::kTruncated:
      return "truncated";
    case Failure::kMalformed:
      return "malformed";
    case Failure::kCancelled:
      return "cancelled";
  }
  return "none";
}

const char* name_of(TokenSource source) {
  switch (source) {
    case TokenSource::kTokenIds:
      return "token_ids";
    case TokenSource::kContinuousUsage:
      return "continuous_usage";
    case TokenSource::kFinalUsage:
      return "final_usage";
    case TokenSource::kTokenizer:
      return "tokenizer";
    case TokenSource::kNone:
      return "none";
  }
  return "none";
}

const char* name_of(LoadEnd end) {
  switch (end) {
    case LoadEnd::kCount:
      return "count";
    case LoadEnd::kTime:
      return "time";
    case LoadEnd::kConverged:
      return "converged";
    case LoadEnd::kSaturated:
      return "saturated";
    case LoadEnd::kServerGone:
      return "server_gone";
    case LoadEnd::kInterrupted:
      return "interrupted";
  }
  return "count";
}

}  // namespace moe::client
