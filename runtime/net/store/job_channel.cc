#include "runtime/net/store/job_channel.h"

#include "runtime/net/store/store_protocol.h"

namespace distrun::net {

ErrorInfo loss_of(int rank, const std::string& host, const std::string& cause, bool left) {
  ErrorInfo error{.code = left ? Errc::kRankLeft : Errc::kRankLost, .ranks = {rank}, .host = host, .usable = false};
  error.cause = cause.substr(0, kMaxCause);
  // Without distrun's launcher, the host of a rank that ends in init() is unknown.
  error.message = "rank " + std::to_string(rank) + (host.empty() ? "" : " on " + host) +
                  (left ? " left the job while others still needed it: " : " was lost: ") + error.cause +
                  ". The job ends; see the output of that rank";
  return error;
}

ErrorInfo hosts_failed(int rank, const std::string& host, const std::string& cause) {
  ErrorInfo error{.code = Errc::kRankLost, .ranks = {rank}, .host = host, .usable = false};
  error.cause = cause.substr(0, kMaxCause);
  error.message = error.cause + ". The job ends";
  return error;
}

Status end_of_job(const JobEvent& event) {
  switch (event.kind) {
    case JobEvent::Kind::kStopAsked:
    case JobEvent::Kind::kStacksAsked:
      break;
    case JobEvent::Kind::kRankFailed:
      return Status(loss_of(event.rank, event.host, event.cause, false));
    case JobEvent::Kind::kHostsFailed:
      return Status(hosts_failed(event.rank, event.host, event.cause));
    case JobEvent::Kind::kRankLeft:
      return Status(loss_of(event.rank, event.host, event.cause.empty() ? "exited with code 0" : event.cause, true));
  }
  return {};
}

}  // namespace distrun::net
