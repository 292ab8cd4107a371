// A job whose ranks mpirun, mpiexec or srun started: rank 0 keeps the store, and the others hear of it through the
// launcher's own exchange. That works once in a process, so what came of it is kept for a second init, process-wide
// like the exchange itself. Safe from any thread.
#pragma once

#include <memory>
#include <string>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/net/identity/world.h"
#include "runtime/net/launchers/meeting.h"
#include "runtime/net/launchers/other_launcher.h"
#include "runtime/net/store/store_client.h"
#include "runtime/net/store/store_host.h"

namespace distrun::api {

// The number of ranks, asked of the launcher where its variables do not tell it.
Result<int> spawned_size(const net::OtherLauncher& launcher, TimePoint deadline);

struct SpawnedJob {
  net::JobKey key;
  std::unique_ptr<net::StoreClient> channel;
  net::StoreHost* keeper = nullptr;  // on rank 0: lives as long as the process
  std::string reached;               // the address at which rank 0's host was reached
};

// `world` has rank and size; sets its job_id and store. `log`, if given, is told when rank 0 does not answer at once.
Result<SpawnedJob> join_spawned_job(net::World& world, const net::OtherLauncher& launcher, TimePoint deadline,
                                    const Log* log = nullptr);

// Its part behind the exchange: tries rank 0's addresses in turn, and where one is silent (a dead route, or a store
// with thousands of ranks before it) all of them again until the deadline. `keeper` is left out.
Result<SpawnedJob> reach_store(net::World& world, const net::Meeting& meeting, TimePoint deadline, const Log* log);

}  // namespace distrun::api
