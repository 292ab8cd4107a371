// What the keeper of a store makes of the notices about its ranks, where no launcher watches the processes themselves:
// whose end is a failure, and what the others are told. Pure.
#pragma once

#include <optional>
#include <set>

#include "runtime/net/store/job_channel.h"
#include "runtime/net/store/store_server.h"

namespace distrun::net {

class StoreJudge {
 public:
  // The event to publish, if any. After the first failure there is nothing more to say.
  std::optional<JobEvent> hear(const StoreNotice& notice);
  // Ranks that have come and neither left nor gone.
  [[nodiscard]] std::size_t in_session() const { return in_session_.size(); }
  [[nodiscard]] bool failed() const { return failed_; }

 private:
  std::optional<JobEvent> fail(JobEvent event);

  std::set<int> in_session_;
  bool failed_ = false;
};

}  // namespace distrun::net
