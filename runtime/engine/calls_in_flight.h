// Collective calls (process sets, timeline) that this rank has made and that have not ended. Only the token holder may
// use this.
#pragma once

#include <deque>
#include <memory>
#include <optional>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/engine/callers/requests.h"
#include "runtime/engine/protocol/decision_log.h"
#include "runtime/engine/protocol/messages.h"

namespace distrun::engine {

struct CallInFlight {
  Call call;
  std::shared_ptr<CallTicket> ticket;
  TimelineWriterPtr timeline;  // kStartTimeline, on the leader: the file
  TimePoint since;
  bool running = false;  // all ranks agree and the set is being made; an unordered call then has its number (call.set)
};

class CallsInFlight {
 public:
  void add(Request request, TimePoint now);
  // The log says that a set is made. kProtocol: this rank never asked for it.
  Status start(const entry::MakeSet& make);
  // Removes and returns the call that this entry ends. Empty: this rank never made it.
  std::optional<CallInFlight> take(const entry::EndCall& end);
  void fail(const Status& why);

  // The call that has waited longest. Null: there is none.
  [[nodiscard]] const CallInFlight* oldest() const;
  // The file of the call that starts the timeline now.
  [[nodiscard]] TimelineWriterPtr timeline() const { return ordered_.empty() ? nullptr : ordered_.front().timeline; }

 private:
  std::deque<CallInFlight> ordered_;    // in the order of the calls
  std::deque<CallInFlight> unordered_;  // calls with Call::unordered
};

}  // namespace distrun::engine
