// Calls that this rank has made together with others (process sets, timeline) and that have not ended. Token holder.
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
  TimelineWriterPtr timeline;  // at the leader, of one that starts it
  TimePoint since;
  bool running = false;  // agreed on: the set is being made; one in no order knows its number (call.set) by then
};

class CallsInFlight {
 public:
  void add(Request request, TimePoint now);
  // The log says that a set is made. kProtocol: this rank never asked for it.
  Status start(const entry::MakeSet& make);
  // The one that ends with this entry; none: this rank never made it.
  std::optional<CallInFlight> take(const entry::EndCall& end);
  void fail(const Status& why);

  // The one that has waited longest; null: none.
  [[nodiscard]] const CallInFlight* oldest() const;
  // Of the call that starts the timeline now.
  [[nodiscard]] TimelineWriterPtr timeline() const { return ordered_.empty() ? nullptr : ordered_.front().timeline; }

 private:
  std::deque<CallInFlight> ordered_;    // in the order in which they were made
  std::deque<CallInFlight> unordered_;  // Call::unordered
};

}  // namespace distrun::engine
