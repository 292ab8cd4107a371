// The launcher's side of the rendezvous, with one authenticated connection per rank. It serves the store, pushes
// JobEvents, and reports ranks that join, leave and fail. Event-driven, without a thread: the owner watches fd() and
// calls progress() when it is readable. Only one thread at a time may use it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
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
  double host_timeout = 30;  // seconds, from the setting
  const Log* log = nullptr;  // logs strangers; must outlive the server
};

// An event on a rank's connection. Notices are in order.
struct StoreNotice {
  enum class Kind {
    kJoined,        // `pid` is set
    kLeft,          // the rank leaves in good order
    kFailed,        // the rank has failed; `failure` is its report
    kLeftEarly,     // another rank reports that `rank` left while it was still needed; `failure` names the operation
    kStalled,       // the rank reports that others wait too long for the ranks in `missed`; `failure` says how
    kFollows,       // the session of the rank has ended because it misses `missed`; `failure` says how
    kNoProgress,    // an operation of the rank makes no progress; `failure` says which
    kStopping,      // the ranks have agreed to stop; `text` says why
    kWaits,         // `waits`: ranks that have waited for a long time; empty: the waits are over
    kState,         // `state` is the state of its program; the answer to kStacksAsked
    kDisconnected,  // its connection ended; `text` says how. Also sent after kLeft and kFailed
    kRefused,       // a second process `pid` claimed the rank; `text` is the reason it got
  };
  Kind kind = Kind::kJoined;
  int rank = -1;
  int pid = 0;
  LinkEnd end = LinkEnd::kUnknown;  // kDisconnected
  std::string text;
  RankFailure failure;
  MissedPeers missed;
  std::vector<RankWait> waits;
  ProgramState state;
};

class StoreServer {
 public:
  virtual ~StoreServer() = default;
  static Result<std::unique_ptr<StoreServer>> create(const JobKey& key, const StoreServerOptions& options);

  [[nodiscard]] virtual const std::string& address() const = 0;  // the value of DISTRUN_STORE
  // The same descriptor during the whole life of the server. It is readable whenever progress() has work to do.
  [[nodiscard]] virtual int fd() const = 0;
  // Makes room for the connections of ranks, as SecureListener::reserve().
  virtual void reserve(std::vector<Fd> places) = 0;
  virtual void progress(TimePoint now) = 0;
  // Sends the event to all connected ranks. A rank that connects later gets it before anything else.
  virtual void publish(const JobEvent& event) = 0;
  // Sends the event to one rank. False if that rank is not connected.
  virtual bool send_event(int rank, const JobEvent& event) = 0;
  virtual std::vector<StoreNotice> take_notices() = 0;
};

}  // namespace distrun::net
