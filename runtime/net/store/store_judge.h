// Decides for the rank that has the store what the notices about its ranks mean, if no launcher watches the processes:
// which rank has failed, and what the other ranks get to know. Pure.
#pragma once

#include <optional>
#include <set>

#include "runtime/net/store/job_channel.h"
#include "runtime/net/store/store_server.h"

namespace distrun::net {

class StoreJudge {
 public:
  // Returns the event to publish, if any. After the first failure it returns no more events.
  std::optional<JobEvent> decide(const StoreNotice& notice);
  // The number of ranks that have joined and have neither left nor disconnected.
  [[nodiscard]] std::size_t in_session() const { return in_session_.size(); }
  [[nodiscard]] bool failed() const { return failed_; }

 private:
  std::optional<JobEvent> fail(JobEvent event);

  std::set<int> in_session_;
  bool failed_ = false;
};

}  // namespace distrun::net
