// What the ranks of one host share: memory, doorbells and knowledge of each other's death.
// Two ranks are on one host when shared memory was handed over a unix socket and a nonce was read back, never because
// names agree. Memory is memfd (nothing to leave behind), reserved with fallocate at creation (a memory limit is an
// error here, never SIGBUS later), MADV_DONTFORK.
// The wait set given at the set-up watches the doorbell and the peers' ends and arms the doorbell before it blocks
// (wait_set.h tells how a loop sleeps). For the holder of the progress token, except where said.
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

// Memory that other ranks have too. It goes from this process with the last copy of `owner`; the others' mappings are
// their own and stay.
struct SharedBytes {
  std::span<std::byte> bytes;
  std::shared_ptr<const void> owner;
};

class HostLink {
 public:
  virtual ~HostLink() = default;
  // World ranks that share this host's memory, ascending, this rank included.
  [[nodiscard]] virtual const std::vector<int>& ranks() const = 0;
  // Memory of `bytes` shared by `members` (world ranks, each calls with the same arguments in the same order), zeroed.
  // Collective over `members`; page-aligned; may outlive the link. A name that has failed may not be given again for
  // the same members: packets of that share may still come.
  virtual Result<SharedBytes> share(const std::string& name, const std::vector<int>& members, std::size_t bytes,
                                    TimePoint deadline) = 0;
  // After a seq_cst store that `world_rank` may be waiting for: wakes it if it sleeps. One load when it does not.
  virtual void ring(int world_rank) = 0;
  virtual void ring_all(std::span<const int> world_ranks) = 0;
  // The first peer of this host whose socket reached end of file without the goodbye that a HostLink's destructor
  // says: it died. Updated by the wait set's callbacks; what it wrote before is still there.
  [[nodiscard]] virtual std::optional<int> lost() const = 0;
  // True once that peer's socket reached end of file, with or without goodbye.
  [[nodiscard]] virtual bool gone(int world_rank) const = 0;
  // True when more ranks are runnable here than this host has cores for: spin budgets are then 0.
  [[nodiscard]] virtual bool oversubscribed() const = 0;
};

struct HostLinkOptions {
  const World* world = nullptr;
  const JobKey* key = nullptr;
  Store* store = nullptr;
  WaitSet* wait_set = nullptr;
  TimePoint deadline;
  const Log* log = nullptr;  // told about strangers
};

// Collective over all ranks of the job. An error means that this rank has no link (memfd refused, memory limit, no
// unix socket); the text says why, and all ranks of the host get the same outcome.
Result<std::unique_ptr<HostLink>> connect_host(const HostLinkOptions& options);

}  // namespace distrun::net
