#include "runtime/net/store/job_channel.h"

#include "runtime/net/store/store_protocol.h"

namespace distrun::net {

namespace {

// Without distrun's launcher, the host of a rank that ends in init() is unknown.
std::string name_of(int rank, const std::string& host) {
  return "rank " + std::to_string(rank) + (host.empty() ? "" : " on " + host);
}

}  // namespace

ErrorInfo loss_of(const LostRank& lost) {
  ErrorInfo error{
      .code = lost.left ? Errc::kRankLeft : Errc::kRankLost, .ranks = {lost.rank}, .host = lost.host, .usable = false};
  error.cause = lost.cause.substr(0, kMaxCause);
  error.message = name_of(lost.rank, lost.host) +
                  (lost.left ? " left the job while others still needed it: " : " was lost: ") + error.cause +
                  ". The job ends" + (lost.explained_by_output ? "; see the output of that rank" : "");
  return error;
}

std::string raised_text(int rank, const std::string& host, const std::string& cause) {
  return name_of(rank, host) + " failed: " + cause.substr(0, kMaxCause) + ". The job ends";
}

ErrorInfo raised_by(int rank, const std::string& host, const std::string& cause) {
  return {.code = Errc::kRankLost,
          .message = raised_text(rank, host, cause),
          .ranks = {rank},
          .host = host,
          .cause = cause.substr(0, kMaxCause),
          .usable = false};
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
      return Status(loss_of({.rank = event.rank,
                             .host = event.host,
                             .cause = event.cause,
                             .explained_by_output = event.explained_by_output}));
    case JobEvent::Kind::kRankRaised:
      return Status(raised_by(event.rank, event.host, event.cause));
    case JobEvent::Kind::kHostsFailed:
      return Status(hosts_failed(event.rank, event.host, event.cause));
    case JobEvent::Kind::kRankLeft:
      return Status(loss_of({.rank = event.rank,
                             .host = event.host,
                             .cause = event.cause.empty() ? "exited with code 0" : event.cause,
                             .left = true,
                             .explained_by_output = event.explained_by_output}));
  }
  return {};
}

}  // namespace distrun::net
