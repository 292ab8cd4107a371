// One rank of the job. It has the real engine loop with its tensor table, member, response cache, executor and (on rank
// 0) coordinator. Events drive it instead of a thread. The callers' part (engine.cc) is done here without blocking.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/engine/loop.h"
#include "test/sim/places.h"

namespace distrun::sim {

class VirtualRank {
 public:
  // The constructor fills the places in `options`.
  VirtualRank(engine::EngineOptions options, std::unique_ptr<net::ControlPlane> plane);

  Status open() { return loop_.open(); }
  // Runs until the loop would block. Returns when it wants to be woken; max(): only by events.
  TimePoint step();

  // --- the program's side; each call must be followed by a step ---
  Result<std::vector<engine::HandlePtr>> submit(std::span<const engine::Submission> submissions) {
    return table_.submit(submissions, Clock::now());
  }
  std::shared_ptr<engine::CallTicket> call(engine::Call call);
  void leave();
  std::shared_ptr<engine::CallTicket> go();
  void abort(const Status& why) { requests_.put({.kind = engine::Request::Kind::kAbort, .why = why}); }
  void hear(net::JobEvent event) { channel_.push(std::move(event)); }
  // Does what the destructor of the session does.
  void close();

  [[nodiscard]] bool over() const { return loop_.over(); }
  [[nodiscard]] const Status& outcome() const { return loop_.outcome(); }

 private:
  SimJobChannel channel_;
  SimWaitSet wait_set_;
  std::unique_ptr<net::ControlPlane> plane_;
  const engine::EngineOptions options_;
  engine::TensorTable table_;
  engine::Requests requests_;
  engine::ProgressToken token_;
  engine::StopPoint stop_;
  engine::ProgramProbe probe_;  // never used, because a simulation has a deadlock_time of 0
  engine::EngineLoop loop_;
};

}  // namespace distrun::sim
