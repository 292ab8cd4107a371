// One rank's way to the job: the key, the store and the channel to the launcher, or to rank 0 where another launcher
// started the ranks and rank 0 keeps the store. Does nothing in a world of one. Methods after open() are for any
// thread.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "runtime/base/environment.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/net/identity/mac_key.h"
#include "runtime/net/identity/world.h"
#include "runtime/net/launchers/other_launcher.h"
#include "runtime/net/store/store_client.h"
#include "runtime/net/store/store_host.h"
#include "runtime/net/store/watched_store.h"

namespace distrun::api {

class JobConnection {
 public:
  // Who this rank is, from the environment; sets `world`. `deadline` is for what another launcher has to be asked.
  Status find_world(const Environment& environment, net::World& world, TimePoint deadline);
  // What process_key() has found. Where another launcher started the ranks, the key comes with open().
  Status take_key(const Result<net::JobKey>& key);
  // Collective over the job; `world` is complete after it. A world of one has nothing to open.
  Status open(net::World& world, TimePoint deadline, const Log& log);

  // Null in a world of one, as all these.
  [[nodiscard]] const net::JobKey* key() const { return key_.get(); }
  [[nodiscard]] net::StoreClient* channel() const { return channel_.get(); }
  // Its waits end when another rank's init() fails.
  [[nodiscard]] net::Store* store() const { return watched_.get(); }

  // Of `data`, as only this job's ranks can make it; another one for each purpose. Zeros in a world of one.
  [[nodiscard]] net::Mac mac(const std::string& purpose, std::span<const std::byte> data) const;

  // init() failed on this rank, and the others hear that. Where rank 0 keeps the store, all ranks stay until each has
  // heard it.
  void refused(const Status& why, const net::World& world);
  // All have drained.
  Status leave(bool first_rank);
  // This rank ends because of it. An error where the launcher could not be told.
  Status report_failure(const net::RankFailure& failure);

 private:
  Status connect(net::World& world, TimePoint deadline, const Log& log);

  std::optional<net::OtherLauncher> spawner_;  // who started the ranks, if it was not distrun
  std::unique_ptr<net::JobKey> key_;
  std::unique_ptr<net::StoreClient> channel_;
  net::StoreHost* keeper_ = nullptr;   // on rank 0 of a job that distrun did not start; process-wide
  std::string reached_;                // the address at which such a job's rank 0 was reached
  std::unique_ptr<net::Store> store_;  // `channel_` under this init's prefix
  std::unique_ptr<net::WatchedStore> watched_;
};

}  // namespace distrun::api
