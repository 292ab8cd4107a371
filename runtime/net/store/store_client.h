// A rank's side of the rendezvous: Store and JobChannel over the one authenticated connection to the launcher. Safe to
// call from any thread, except receive(), which only the holder of the progress token calls. The client has no thread.
// A thread that waits reads for all: it passes replies to the waiting threads and keeps events for receive().
#pragma once

#include <memory>
#include <string>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/net/identity/world.h"
#include "runtime/net/store/job_channel.h"
#include "runtime/net/store/store.h"

namespace distrun::net {

class StoreClient : public Store, public JobChannel {
 public:
  // Connects to world.store as world.rank. `store_rank` is the rank that has the store, -1 the launcher. When the
  // connection ends, the error names it as lost.
  static Result<std::unique_ptr<StoreClient>> connect(const World& world, const JobKey& key, TimePoint deadline,
                                                      int store_rank = -1);
  // This host's address as the launcher sees it ("10.0.0.7"). Listen on it, so that other hosts can connect.
  [[nodiscard]] virtual std::string local_host() const = 0;
};

}  // namespace distrun::net
