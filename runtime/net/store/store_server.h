// The launcher's side of the rendezvous: one authenticated connection per rank, over which it serves the store, pushes
// JobEvents and hears of ranks that join, leave and fail. Event-driven and without a thread: the owner watches fd() and
// calls progress() when it is readable. One thread at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/link_end.h"
#include "runtime/base/status.h"
#include "runtime/net/identity/world.h"
#include "runtime/net/secure/secure_socket.h"
#include "runtime/net/store/job_channel.h"
#include "runtime/net/store/store_table.h"

namespace distrun::net {

struct StoreServerOptions {
  std::string bind_address = "127.0.0.1:0";  // as for listen_secure
  std::string job_id;
  int size = 1;  // ranks 0 to size - 1 may join
  std::size_t max_bytes = StoreTable::kDefaultMaxBytes;
  double host_timeout = 30;  // seconds, the setting
  const Log* log = nullptr;  // told about strangers; outlives the server
};

// Something that happened to a rank's connection, in order.
struct StoreNotice {
  enum class Kind {
    kJoined,        // `pid` is set
    kLeft,          // said that it leaves in good order
    kFailed,        // `failure` is what it reported
    kLeftEarly,     // another rank says so: it left while it was still needed; `failure` says for what
    kStalled,       // another rank says so: it holds the others up; `failure` says how
    kFollows,       // its session has ended because of that of rank `other`
    kStopping,      // the ranks have agreed to stop; `text` says why
    kDisconnected,  // its connection ended; `text` says how. Follows kLeft and kFailed as well
    kRefused,       // a second process `pid` claimed the rank; `text` is what it was told
  };
  Kind kind = Kind::kJoined;
  int rank = -1;
  int other = -1;  // kFollows
  int pid = 0;
  LinkEnd end = LinkEnd::kUnknown;  // kDisconnected
  std::string text;
  RankFailure failure;
};

class StoreServer {
 public:
  virtual ~StoreServer() = default;
  static Result<std::unique_ptr<StoreServer>> create(const JobKey& key, const StoreServerOptions& options);

  [[nodiscard]] virtual const std::string& address() const = 0;  // for DISTRUN_STORE
  // The same for the server's whole life; readable whenever progress() has something to do.
  [[nodiscard]] virtual int fd() const = 0;
  virtual void progress(TimePoint now) = 0;
  // To every rank that is connected, and to those that connect later before anything else.
  virtual void publish(const JobEvent& event) = 0;
  virtual std::vector<StoreNotice> take_notices() = 0;
};

}  // namespace distrun::net
