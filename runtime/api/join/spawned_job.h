// A job whose ranks were started by mpirun, mpiexec or srun. Rank 0 keeps the store, and the others get its address
// through that launcher's own exchange. The exchange works once per process, so its result is kept for a second init,
// process-wide. Safe from any thread.
#pragma once

#include <memory>
#include <string>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/net/identity/world.h"
#include "runtime/net/launchers/other_launcher.h"
#include "runtime/net/launchers/store_contact.h"
#include "runtime/net/store/store_client.h"
#include "runtime/net/store/store_host.h"

namespace distrun::api {

// The number of ranks. Asks the launcher if its variables do not have it.
Result<int> spawned_size(const net::OtherLauncher& launcher, TimePoint deadline);

struct SpawnedJob {
  net::JobKey key;
  std::unique_ptr<net::StoreClient> channel;
  net::StoreHost* store_host = nullptr;  // on rank 0; exists as long as the process
  std::string reached;                   // the address of rank 0's host that worked
};

// `world` has rank and size; this sets its job_id and store. If `log` is given, it gets a warning when rank 0 does not
// answer at once.
Result<SpawnedJob> join_spawned_job(net::World& world, const net::OtherLauncher& launcher, TimePoint deadline,
                                    const Log* log = nullptr);

// The part of join_spawned_job() after the exchange. Tries rank 0's addresses in turn. If one is silent (a dead route,
// or a store that is busy with thousands of ranks), tries all of them again until the deadline. `store_host` is not
// set.
Result<SpawnedJob> reach_store(net::World& world, const net::StoreContact& contact, TimePoint deadline, const Log* log);

}  // namespace distrun::api
