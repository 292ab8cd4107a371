// The engine takes submissions from any thread and agrees on them with the other ranks. It runs them on the process
// set's backends and completes their handles. It knows no types of a framework and opens no sockets.
//
// Threads: submit, wait, poll, abort and the queries may be called from any thread. Everything else in engine/ and
// backend/ is for the holder of the progress token (docs/internals/threads.md). The holder is the engine's own thread,
// or a caller that blocks in wait().
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/backend/backend.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/engine/monitoring/program_probe.h"
#include "runtime/engine/run/submission.h"
#include "runtime/net/bytes/wait_set.h"
#include "runtime/net/control/control_plane.h"
#include "runtime/net/identity/world.h"
#include "runtime/net/store/job_channel.h"

namespace distrun {
class Log;
}

namespace distrun::engine {

// Makes the backends of process sets, and keeps the resources that belong to them. The session has one provider. The
// engine calls it with the token held.
class BackendProvider {
 public:
  virtual ~BackendProvider() = default;
  // Called when the decision log says that a set is made. Collective over the members. The result is indexed by
  // DeviceType. An entry is null if no member has such a device.
  virtual Result<std::vector<std::unique_ptr<backend::Backend>>> make(int process_set,
                                                                      const std::vector<int>& members) = 0;
  // Called on the set's first rank when all members have reported whether they could make the set.
  virtual void set_decided(int /*process_set*/) {}
  // Called when the set's backends have been destroyed.
  virtual void gone(int /*process_set*/) {}
};

// The settings that the engine needs, with the defaults of runtime/base/settings.def.
struct EngineSettings {
  std::uint64_t fusion_threshold = 128ULL << 20;
  std::uint64_t cache_capacity = 1024;
  double stall_warning_time = 10.0;
  double stall_shutdown_time = 0.0;
  double deadlock_time = 600.0;
  bool huge_pages = true;
  std::uint64_t timeline_max_size = 1ULL << 30;
};

struct EngineOptions {
  net::World world;
  EngineSettings settings;
  std::vector<std::string> hosts;              // hosts[r]: host name of world rank r, for error texts
  net::WaitSet* wait_set = nullptr;            // not owned, as all pointers below; outlives the engine
  net::ControlPlane* control_plane = nullptr;  // for the whole job; null in a job of one rank
  net::JobChannel* job_channel = nullptr;      // null in a job of one rank
  Log* log = nullptr;                          // null: no warnings are printed
  // The number that the leader gives to its next process set. Not owned. If it is null, numbers start at 1. One counter
  // for the whole process gives each set its own number, across sessions. A program that was compiled in an earlier
  // session then finds no set under its old number, instead of a wrong one.
  std::atomic<int>* next_process_set = nullptr;
  BackendProvider* backends = nullptr;  // not owned
  bool spin = false;                    // there are more cores than runnable ranks: spin before blocking
  bool background_thread = true;        // false: only waiting callers make progress (simulation)
};

class Engine {
 public:
  // Makes the global process set's backends and starts the background thread.
  static Result<std::unique_ptr<Engine>> create(EngineOptions options);
  // Joins the background thread and finishes the timeline. Handles in flight complete with kAborted.
  virtual ~Engine() = default;

  // Submits all or none. A refusal is returned here: a bad argument, a duplicate name, an unknown set, a rank that has
  // shut down, or a job that has failed.
  virtual Result<std::vector<HandlePtr>> submit(std::span<const Submission> submissions) = 0;

  // Returns kOk when at least one handle (wait_any) or every handle (wait_all) is done, whatever its status is.
  // Otherwise kTimeout, or kInterrupted if a signal arrived.
  virtual Status wait_all(std::span<const HandlePtr> handles, TimePoint deadline) = 0;
  virtual Status wait_any(std::span<const HandlePtr> handles, TimePoint deadline) = 0;
  // The same for a condition of the caller: kOk once `satisfied` returns true. The calling thread evaluates it again
  // whenever an operation is done, and after check_again(). Call check_again() from any thread when other data has
  // changed that `satisfied` reads.
  virtual Status wait_for(const std::function<bool()>& satisfied, TimePoint deadline) = 0;
  virtual void check_again() = 0;

  // Leaves the job. Returns when all ranks have left and the operations in flight are done. At the deadline a warning
  // names the ranks that have not left. A member then leaves alone, and the leader stays until all have left. kTimeout:
  // an operation or a call of this rank is still in flight at the deadline.
  virtual Status shutdown(TimePoint deadline) = 0;
  // Ends the job and tells the other ranks. Every handle completes with `why` once no thread uses its tensor any more.
  virtual void abort(const Status& why) = 0;

  // Asks all ranks to stop at the same call of should_stop(). Any rank may call this, at any time and repeatedly.
  // `cause` is a text for people.
  virtual void request_stop(const std::string& cause) = 0;
  // Every rank calls this once per step. From one call on, the same on all ranks, it returns true. It does not wait for
  // the other ranks, except for one round trip right after a request to stop. With `request` the call is such a request
  // itself, and always waits. kInterrupted: a signal arrived, and the call is not counted.
  virtual Result<bool> should_stop(bool request) = 0;

  // Collective over all ranks. With `members_only` it is collective over the set's members. Other ranks then never know
  // of the set, and it may have the same ranks as another set. Blocks until the set is made or removed everywhere.
  // Ranks must make the calls that they share in the same order.
  virtual Result<int> add_process_set(const std::vector<int>& ranks, bool members_only, TimePoint deadline) = 0;
  virtual Status remove_process_set(int id, TimePoint deadline) = 0;
  // Makes a members-only set. The call has no order relative to this rank's other calls, so none waits for another.
  // Each member's calls for the same ranks are matched in order: its first one with the first one of the others. After
  // kTimeout the call stays pending, and the next call for the same ranks continues it.
  virtual Result<int> add_process_set_apart(const std::vector<int>& ranks, TimePoint deadline) = 0;
  // Use this instead of remove_process_set. This rank submits nothing more to the set. The set is removed when all
  // ranks that take part in its removal have made this call. Does not wait.
  virtual Status drop_process_set(int id) = 0;
  [[nodiscard]] virtual Result<std::vector<int>> process_set_ranks(int id) const = 0;

  // Collective over all ranks. If rank 0 cannot open the file, every rank gets an error. If rank 0 can no longer write
  // it, a warning is printed and the timeline ends. Only rank 0's call waits for the disk. On rank 0, stop and shutdown
  // return when the file is complete, or with a warning if the disk is stuck.
  virtual Status start_timeline(const std::string& path) = 0;
  virtual Status stop_timeline() = 0;

  // Sets the function that asks the program where its threads are; see ProgramProbe. Any thread. An empty function: the
  // program cannot tell.
  virtual void describe_by(ProgramProbe::Describe describe) = 0;
};

}  // namespace distrun::engine
