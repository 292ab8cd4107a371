// The loop's part in stopping all ranks at the same call of should_stop().
#include <string>

#include "runtime/base/log.h"
#include "runtime/engine/loop.h"

namespace distrun::engine {

void EngineLoop::ask_to_stop(const std::string& cause) {
  if (!failed_.ok() || log_ended_) return;
  if (leader_) return hear_stop(0, message::StopAsked{.cause = cause});
  if (!stopping_since_ && !shared_.stop.known()) stopping_since_ = Clock::now();
  say(0, message::StopAsked{.cause = cause});
}

// At the leader.
void EngineLoop::hear_stop(int rank, const message::StopAsked& asked) {
  if (!stopping_.asked(asked.cause)) return;
  stopping_since_ = Clock::now();
  if (options_.log != nullptr) options_.log->info("rank " + std::to_string(rank) + " asks all ranks to stop");
  say(-1, message::StopHold{});
  stopping_.counted(0, shared_.stop.hold());
  decide_stop();
}

void EngineLoop::decide_stop() {
  const auto first = stopping_.take();
  if (!first) return;
  say(-1, message::StopAt{.call = *first});
  stop_at(*first);
  if (options_.job_channel == nullptr) return;
  const Status told = options_.job_channel->report_stop(stopping_.cause());
  if (!told.ok() && options_.log != nullptr) options_.log->debug("the launcher could not be told: " + told.message());
}

void EngineLoop::stop_at(std::uint64_t call) {
  shared_.stop.decide(call);
  stopping_since_.reset();
  shared_.token.news().change_and_wake();
}

}  // namespace distrun::engine
