// When and in what order: takes submissions from any thread, agrees on them with the other ranks, runs them on the
// group's backends and completes their handles. Holds no framework types and opens no sockets of its own.
//
// Threads: submit, wait, poll, abort and the queries may be called from any thread. Everything else in engine/ and
// backend/ belongs to the holder of the progress token (docs/threads.md): the engine's own thread, or a caller that
// blocks in wait().
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

// Makes the backends of process sets and keeps what belongs to them. The session has one; the engine calls it with the
// token held.
class BackendProvider {
 public:
  virtual ~BackendProvider() = default;
  // When the decision log says that a set is made. Collective over the members. Index in the result: DeviceType; null
  // where no member has such a device.
  virtual Result<std::vector<std::unique_ptr<backend::Backend>>> make(int process_set,
                                                                      const std::vector<int>& members) = 0;
  // On the first rank of a set that was to be made, once all members have tried.
  virtual void settled(int /*process_set*/) {}
  // Once the set's backends are gone.
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
  std::vector<std::string> hosts;              // hosts[r]: name of world rank r's host, for error texts
  net::WaitSet* wait_set = nullptr;            // not owned, as all below; outlive the engine
  net::ControlPlane* control_plane = nullptr;  // over the whole job; null in a world of one
  net::JobChannel* job_channel = nullptr;      // null in a world of one
  Log* log = nullptr;                          // null: warnings go nowhere
  // What the leader's next process set gets; not owned, null: from 1 on. With one for the whole process a program that
  // was compiled in an earlier session finds no set by its number, instead of another one.
  std::atomic<int>* next_process_set = nullptr;
  BackendProvider* backends = nullptr;  // not owned
  bool spin = false;                    // more cores than runnable ranks: spin before blocking
  bool background_thread = true;        // false: only waiting callers make progress (simulation)
};

class Engine {
 public:
  // Makes the global process set's backends and starts the background thread.
  static Result<std::unique_ptr<Engine>> create(EngineOptions options);
  // Joins the background thread and finishes the timeline; handles in flight complete with kAborted.
  virtual ~Engine() = default;

  // All or none; a refusal (bad argument, duplicate name, unknown set, shut down, job failed) is returned here.
  virtual Result<std::vector<HandlePtr>> submit(std::span<const Submission> submissions) = 0;

  // kOk when at least one (any) or every one (all) of the handles is done - whatever their own status -, kTimeout,
  // or kInterrupted when a signal arrived.
  virtual Status wait_all(std::span<const HandlePtr> handles, TimePoint deadline) = 0;
  virtual Status wait_any(std::span<const HandlePtr> handles, TimePoint deadline) = 0;
  // The same for what only the caller can judge: kOk once `satisfied` is true. This thread asks it again whenever an
  // operation is done, and after look_again() (any thread), which is for everything else that it looks at.
  virtual Status wait_for(const std::function<bool()>& satisfied, TimePoint deadline) = 0;
  virtual void look_again() = 0;

  // Leaves: returns when all ranks have left and operations in flight are done. At the deadline a warning names the
  // ranks that have not left; then a member goes alone, and the leader stays until they have. kTimeout if something of
  // this rank's is still in flight by then.
  virtual Status shutdown(TimePoint deadline) = 0;
  // Ends the job: every handle completes with `why` once nothing touches its tensor any more; the peers hear of it.
  virtual void abort(const Status& why) = 0;

  // All ranks are to stop at the same call of should_stop(). Any rank, at any time, as often as it likes; `cause` is
  // for people.
  virtual void request_stop(const std::string& cause) = 0;
  // Every rank calls it once per step: true from the same call on, everywhere. Does not wait for the other ranks, but
  // for a round trip to them right after a request; with `request`, which is one, always. kInterrupted: was no call.
  virtual Result<bool> should_stop(bool request) = 0;

  // Collective over all ranks, or over the set's members if it is theirs alone (others never hear of it; it may have
  // the ranks of another set); blocks until the set is made or removed everywhere. Ranks make the calls that they share
  // in the same order.
  virtual Result<int> add_process_set(const std::vector<int>& ranks, bool members_only, TimePoint deadline) = 0;
  virtual Status remove_process_set(int id, TimePoint deadline) = 0;
  // A set of members alone, in no order with this rank's other calls: none waits for another. Sets of the same ranks
  // are told apart by the order in which each member adds them. After kTimeout the call stays made, and the next one
  // for the same ranks goes on with it.
  virtual Result<int> add_process_set_apart(const std::vector<int>& ranks, TimePoint deadline) = 0;
  // Instead of remove_process_set: this rank submits nothing more to the set, which goes when all who would remove it
  // have said so. Does not wait.
  virtual Status drop_process_set(int id) = 0;
  [[nodiscard]] virtual Result<std::vector<int>> process_set_ranks(int id) const = 0;

  // Collective over all ranks. A file that rank 0 cannot open is an error on every rank; one that it cannot write any
  // more is a warning, and ends the timeline. Rank 0's call waits for the disk, no other thread does. stop and shutdown
  // return there when the file is complete, or with a warning when its disk is stuck.
  virtual Status start_timeline(const std::string& path) = 0;
  virtual Status stop_timeline() = 0;

  // How the program is asked where its threads are; see ProgramProbe. Any thread; none: it cannot tell.
  virtual void describe_by(ProgramProbe::Describe describe) = 0;
};

}  // namespace distrun::engine
