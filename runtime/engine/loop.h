// The engine's turn. It takes the callers' submissions and the peers' messages, lets the leader decide, follows the
// log, lets the backends make progress, and completes handles. The parts decide; the loop passes facts from one part to
// another. Only the holder of the progress token may use this, except where noted.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/engine/callers/progress_token.h"
#include "runtime/engine/callers/requests.h"
#include "runtime/engine/callers/stop_point.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/follower.h"
#include "runtime/engine/launcher_link.h"
#include "runtime/engine/leader_link.h"
#include "runtime/engine/leaving.h"
#include "runtime/engine/liveness.h"
#include "runtime/engine/pacing.h"
#include "runtime/engine/run/outbox.h"
#include "runtime/engine/run/tensor_table.h"

namespace distrun::engine {

class EngineLoop {
 public:
  // Objects that the loop shares with callers. All outlive the loop.
  struct Shared {
    TensorTable& table;
    Requests& requests;
    ProgressToken& token;
    StopPoint& stop;
    ProgramProbe& probe;
  };
  EngineLoop(const EngineOptions& options, Shared shared);

  // Makes the global process set's backends and starts to listen to the launcher.
  Status open();

  // Runs turns until `satisfied` returns true, and blocks in the wait set when there is nothing to do. Returns kOk,
  // kTimeout or kInterrupted. On the engine's thread it also returns when a caller wants the token. An exception ends
  // the job, as any failure does. An exception after the job's end is passed on.
  Status drive(ProgressToken::Holder who, const std::function<bool()>& satisfied, TimePoint deadline);
  // Ends all remaining work: every handle in flight completes with `why`. The peers get no message; they see this
  // rank's connections end.
  void close(const Status& why);

  // --- any thread ---
  // Wakes the loop if it sleeps. Call this after adding work for it.
  void wake() { pacing_.wake(); }
  // True when nothing more will happen: all ranks have left, or the job failed and every handle is complete.
  [[nodiscard]] bool over() const { return leaving_.over(); }
  [[nodiscard]] const Status& outcome() const { return leaving_.outcome(); }  // valid once over() is true

 private:
  // --- turns ---
  Status turn_until(ProgressToken::Holder who, const std::function<bool()>& satisfied, TimePoint deadline);
  bool turn();
  bool keep_polling(ProgressToken::Holder who, TimePoint deadline);
  Status block(const std::function<bool()>& enough, TimePoint until);
  Result<int> poll(TimePoint until, const net::WaitSet::LookAgain& check_again = nullptr);
  void take_local();
  void take(Request& request, std::vector<Message>& messages);
  bool receive();
  void take_message(int from, std::uint64_t index, Message& message);
  void act_on(const LeaderLink::Effects& effects);
  // --- the log ---
  bool decide();
  bool follow_log();
  void follow(Entry& entry);
  void ship_events();
  void ask_to_stop(const std::string& cause);
  // --- timers and health ---
  [[nodiscard]] TimePoint next_timer() const;
  [[nodiscard]] std::optional<OldestWork> oldest_work() const;
  void see_clock(TimePoint now);
  void run_timers(TimePoint now);
  void check_all();
  bool check_health();
  // --- the end ---
  // `heard`: another rank reported the failure.
  void fail(const Status& why, bool report_to_others, bool by_other = false);
  void fail_here(ErrorInfo info);
  void fail_by_exception(Errc code, const std::string& what);
  void try_to_go();
  bool end_if_done();

  const EngineOptions& options_;
  Shared shared_;
  Outbox outbox_;
  LauncherLink launcher_;
  Follower follower_;
  std::unique_ptr<LeaderLink> leader_;
  Liveness liveness_;
  Leaving leaving_;
  Pacing pacing_;
  net::Received received_;  // scratch
  bool everywhere_ = true;  // ask all backends: the wait set is polled now, or was since the last idle turn
  std::optional<TimePoint> stopping_since_;  // since when the ranks agree on the call at which they stop
};

}  // namespace distrun::engine
