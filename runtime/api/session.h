// One process's membership in a job. It owns everything (settings, world, sockets, memory, backends, engine), and is
// the only place that connects these parts. Methods may be called from any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/api/backends/provider.h"
#include "runtime/api/join/control.h"
#include "runtime/api/join/job_connection.h"
#include "runtime/api/stop_signals.h"
#include "runtime/backend/plugin/host_group.h"
#include "runtime/base/annotations.h"
#include "runtime/base/log.h"
#include "runtime/base/settings.h"
#include "runtime/engine/engine.h"
#include "runtime/net/bytes/wait_set.h"
#include "runtime/net/host/host_link.h"
#include "runtime/net/identity/mac_key.h"
#include "runtime/net/identity/world.h"

namespace distrun::api {

class Session {
 public:
  // Reads `environment` once. `overrides` are "name=value" settings that take precedence over it. Collective over the
  // job. `next_process_set`: see EngineOptions.
  static Result<std::unique_ptr<Session>> open(const Environment& environment,
                                               const std::vector<std::string>& overrides,
                                               std::atomic<int>* next_process_set);
  ~Session();

  [[nodiscard]] engine::Engine& engine() { return *engine_; }
  [[nodiscard]] const net::World& world() const { return world_; }
  [[nodiscard]] const Settings& settings() const { return settings_.settings; }
  // See distrun_query in distrun.h. Returns an empty text for an unknown question.
  [[nodiscard]] std::string describe(const std::string& what) const;

  // The job's key and store. Both may be used from any thread.
  [[nodiscard]] const JobConnection& job() const { return job_; }

  // Marks the work on `stream` that makes a tensor on `device` ready. Null: the job has no backend for the device, and
  // the operation reports that.
  Result<std::shared_ptr<void>> mark(Device device, void* stream) { return backends_->mark(device, stream); }

  // As Engine::should_stop. From the first call on, kStopSignals are requests to stop, unless the program handles them.
  Result<bool> should_stop(bool request);

  Status shutdown();
  void abort(const net::RankFailure& failure);

 private:
  Session() = default;

  Status find_world(const Environment& environment, TimePoint deadline);
  Status start(const Result<net::JobKey>& key, TimePoint deadline);
  Status join_job(TimePoint deadline);
  Status start_engine();
  Status watch_signals();
  // The address at which other ranks reach this one.
  [[nodiscard]] std::string own_address() const;

  // In the order of construction. They are destroyed in reverse, so nothing outlives the parts that it uses.
  SettingsReport settings_;
  net::World world_;
  std::unique_ptr<Log> log_;
  JobConnection job_;
  std::vector<std::string> hosts_;  // by world rank
  std::unique_ptr<net::WaitSet> wait_set_;
  std::unique_ptr<net::HostLink> host_link_;
  std::string host_link_error_;
  Control control_;
  std::unique_ptr<SetBackends> backends_;
  std::atomic<int>* next_process_set_ = nullptr;
  std::unique_ptr<StopSignals> stop_signals_;
  std::atomic<bool> watches_all_{false};
  mutable Mutex mutex_;
  std::optional<TimePoint> leave_by_
      DISTRUN_GUARDED_BY(mutex_);  // deadline of a shutdown(); kept after a signal, reset after a timeout
  Mutex leaving_mutex_;  // held while this rank leaves the channel: another thread's shutdown() waits for the result
  bool left_ DISTRUN_GUARDED_BY(leaving_mutex_) = false;
  std::optional<backend::plugin::InJob> in_job_
      DISTRUN_GUARDED_BY(leaving_mutex_);  // set until this rank has left; empty in a job of one rank, with no peers
  std::unique_ptr<engine::Engine> engine_;
};

}  // namespace distrun::api
