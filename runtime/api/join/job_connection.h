// One rank's connection to the job: the key, the store and the channel to the launcher. If another launcher started the
// ranks, rank 0 keeps the store, and the channel goes to rank 0. Does nothing in a job of one rank. After open(), the
// methods may be called from any thread.
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
  // Finds this rank's identity in the environment and sets `world`. `deadline` is for questions to another launcher.
  Status find_world(const Environment& environment, net::World& world, TimePoint deadline);
  // Takes the result of process_key(). If another launcher started the ranks, open() gets the key instead.
  Status take_key(const Result<net::JobKey>& key);
  // Collective over the job. `world` is complete after it. A job of one rank has nothing to open.
  Status open(net::World& world, TimePoint deadline, const Log& log);

  // These three are null in a job of one rank.
  [[nodiscard]] const net::JobKey* key() const { return key_.get(); }
  [[nodiscard]] net::StoreClient* channel() const { return channel_.get(); }
  // Its waits end when another rank's init() fails.
  [[nodiscard]] net::Store* store() const { return watched_.get(); }

  // A MAC of `data` that only this job's ranks can make. It differs for each purpose. Zeros in a job of one rank.
  [[nodiscard]] net::Mac mac(const std::string& purpose, std::span<const std::byte> data) const;

  // init() failed on this rank; tells the other ranks. If rank 0 keeps the store, all ranks stay until each of them
  // knows.
  void refused(const Status& why, const net::World& world);
  // Call this when all ranks have drained.
  Status leave(bool first_rank);
  // This rank ends because of this failure. Returns an error if the launcher could not be reached.
  Status report_failure(const net::RankFailure& failure);

 private:
  Status connect(net::World& world, TimePoint deadline, const Log& log);

  std::optional<net::OtherLauncher> spawner_;  // the launcher of the ranks, if it is not distrun
  std::unique_ptr<net::JobKey> key_;
  std::unique_ptr<net::StoreClient> channel_;
  net::StoreHost* store_host_ = nullptr;  // on rank 0 of a job that distrun did not start; process-wide
  std::string reached_;                   // the address of such a job's rank 0 that worked
  std::unique_ptr<net::Store> store_;     // `channel_` with this init's prefix
  std::unique_ptr<net::WatchedStore> watched_;
};

}  // namespace distrun::api
