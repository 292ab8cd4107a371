// The store of a job without distrun's launcher. Rank 0 keeps it in a separate thread while the process lives. It
// serves the store and tells the ranks when one of them ends. Methods are safe from any thread.
#pragma once

#include <condition_variable>
#include <memory>
#include <string>
#include <thread>

#include "runtime/base/annotations.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/base/system/fork_guard.h"
#include "runtime/net/store/store_judge.h"
#include "runtime/net/store/store_server.h"

namespace distrun::net {

class StoreHost {
 public:
  // Listens on all addresses of this host, because it is not known yet which of them the others reach. `log` is
  // optional and must outlive this; it logs strangers.
  static Result<std::unique_ptr<StoreHost>> start(const JobKey& key, const std::string& job_id, int size,
                                                  double host_timeout, const Log* log = nullptr);
  ~StoreHost();
  StoreHost(const StoreHost&) = delete;
  StoreHost& operator=(const StoreHost&) = delete;

  [[nodiscard]] std::uint16_t port() const { return port_; }
  // Waits until no rank is in a session any more. Only then may this process end.
  void wait_until_empty(TimePoint deadline);
  // Waits until a failure has been sent to the connected ranks.
  void wait_until_published(TimePoint deadline);

 private:
  StoreHost(std::unique_ptr<StoreServer> server, std::uint16_t port);
  void serve();
  void progress();

  const std::uint16_t port_;
  const GuardedFd stop_;
  std::unique_ptr<StoreServer> server_;  // only the thread uses it
  Mutex mutex_;
  std::condition_variable_any changed_;
  StoreJudge judge_ DISTRUN_GUARDED_BY(mutex_);
  bool published_ DISTRUN_GUARDED_BY(mutex_) = false;
  std::jthread thread_;
};

}  // namespace distrun::net
