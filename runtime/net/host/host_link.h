// Connects the ranks of one host: shared memory, doorbells, and detection of each other's death. Two ranks are on one
// host if shared memory was passed over a unix socket and a nonce was read back from it. Equal names are never enough.
// Memory is a memfd, so nothing is left behind. fallocate reserves it at creation, so a memory limit is an error here
// and never a SIGBUS later. It is MADV_DONTFORK. The wait set that is passed to the set-up watches the doorbell and the
// peers' sockets, and arms the doorbell before it blocks (see wait_set.h). Only the holder of the progress token uses
// this, unless a comment says otherwise.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/net/bytes/wait_set.h"
#include "runtime/net/identity/world.h"
#include "runtime/net/store/store.h"

namespace distrun::net {

// Memory that other ranks have too. This process unmaps it with the last copy of `owner`. The mappings of the other
// ranks are independent.
struct SharedBytes {
  std::span<std::byte> bytes;
  std::shared_ptr<const void> owner;
};

class HostLink {
 public:
  virtual ~HostLink() = default;
  // World ranks that share this host's memory, ascending, including this rank.
  [[nodiscard]] virtual const std::vector<int>& ranks() const = 0;
  // Creates zeroed, page-aligned memory of `bytes`, shared by `members` (world ranks). Collective over `members`: each
  // one calls it with the same arguments, in the same order. The memory may outlive the link. After a failure, do not
  // use the same name again for the same members, because packets of the failed share may still arrive.
  virtual Result<SharedBytes> share(const std::string& name, const std::vector<int>& members, std::size_t bytes,
                                    TimePoint deadline) = 0;
  // Wakes `world_rank` if it sleeps; one load if it is awake. Call it after a seq_cst store that the rank may wait for.
  virtual void ring(int world_rank) = 0;
  virtual void ring_all(std::span<const int> world_ranks) = 0;
  // The first peer of this host whose socket reached end of file without the goodbye of HostLink's destructor: that
  // peer died. The callbacks of the wait set update this. The memory that the peer wrote is still there.
  [[nodiscard]] virtual std::optional<int> lost() const = 0;
  // True once the socket of that peer has reached end of file, with or without a goodbye.
  [[nodiscard]] virtual bool gone(int world_rank) const = 0;
  // True if this host has fewer cores than runnable ranks. Callers then do not spin.
  [[nodiscard]] virtual bool oversubscribed() const = 0;
};

struct HostLinkOptions {
  const World* world = nullptr;
  const JobKey* key = nullptr;
  Store* store = nullptr;
  WaitSet* wait_set = nullptr;
  TimePoint deadline;
  const Log* log = nullptr;  // logs strangers
};

// Collective over all ranks of the job. An error means that this rank has no link (memfd refused, a memory limit, no
// unix socket). The text says why, and all ranks of the host get the same outcome.
Result<std::unique_ptr<HostLink>> connect_host(const HostLinkOptions& options);

}  // namespace distrun::net
