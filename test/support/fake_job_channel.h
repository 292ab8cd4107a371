// The launcher's side of one rank's job channel, in this process.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "runtime/base/annotations.h"
#include "runtime/base/fd.h"
#include "runtime/net/store/job_channel.h"

namespace distrun::test {

class FakeJobChannel final : public net::JobChannel {
 public:
  FakeJobChannel() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  // Sends an event of the launcher to the rank. Thread-safe.
  void push(net::JobEvent event) {
    const MutexLock lock(mutex_);
    events_.push_back(std::move(event));
    ring();
  }
  // The launcher's connection ends.
  void hang_up() {
    const MutexLock lock(mutex_);
    gone_ = true;
    ring();
  }

  [[nodiscard]] int fd() const override { return event_.get(); }
  Result<std::vector<net::JobEvent>> receive() override {
    const MutexLock lock(mutex_);
    std::uint64_t ignored = 0;
    [[maybe_unused]] const ssize_t drained = ::read(event_.get(), &ignored, sizeof ignored);
    if (gone_) return Status(Errc::kSystem, "end of file");
    return std::exchange(events_, {});
  }
  Status leave() override { return {}; }
  Status report_failure(const net::RankFailure& failure) override {
    const MutexLock lock(mutex_);
    failures_.push_back(failure);
    return {};
  }
  Status report_early_leave(int, const net::RankFailure& failure) override {
    const MutexLock lock(mutex_);
    of_others_.push_back(failure);
    return {};
  }
  Status report_stall(const net::MissedPeers& missed, const net::RankFailure& failure) override {
    const MutexLock lock(mutex_);
    stalled_.insert(stalled_.end(), missed.ranks.begin(), missed.ranks.end());
    reported_deadlock_ = missed.deadlock;
    of_others_.push_back(failure);
    return {};
  }
  Status report_loss(const net::MissedPeers& missed, const net::RankFailure& failure) override {
    const MutexLock lock(mutex_);
    lost_.insert(lost_.end(), missed.ranks.begin(), missed.ranks.end());
    losses_.emplace_back(missed, failure);
    return {};
  }
  Status report_no_progress(const net::RankFailure& failure) override {
    const MutexLock lock(mutex_);
    stuck_.push_back(failure);
    return {};
  }
  Status report_stop(const std::string& cause) override {
    const MutexLock lock(mutex_);
    stops_.push_back(cause);
    return {};
  }
  Status report_waits(const std::vector<net::RankWait>& waits) override {
    const MutexLock lock(mutex_);
    waits_.push_back(waits);
    return {};
  }
  Status report_state(const net::ProgramState& state) override {
    const MutexLock lock(mutex_);
    states_.push_back(state);
    return {};
  }
  // Each report of this rank about what it waits for.
  [[nodiscard]] std::vector<std::vector<net::RankWait>> waits() const {
    const MutexLock lock(mutex_);
    return waits_;
  }
  // This rank's answers to kStacksAsked.
  [[nodiscard]] std::vector<net::ProgramState> states() const {
    const MutexLock lock(mutex_);
    return states_;
  }
  [[nodiscard]] std::vector<std::string> stops() const {
    const MutexLock lock(mutex_);
    return stops_;
  }
  // The ranks whose loss ended the session, as this rank reported.
  [[nodiscard]] std::vector<int> lost() const {
    const MutexLock lock(mutex_);
    return lost_;
  }
  [[nodiscard]] std::vector<std::pair<net::MissedPeers, net::RankFailure>> losses() const {
    const MutexLock lock(mutex_);
    return losses_;
  }
  // This rank's reports of operations that make no progress.
  [[nodiscard]] std::vector<net::RankFailure> stuck() const {
    const MutexLock lock(mutex_);
    return stuck_;
  }
  // This rank's reports about its own failures.
  [[nodiscard]] std::vector<net::RankFailure> failures() const {
    const MutexLock lock(mutex_);
    return failures_;
  }
  // This rank's reports about other ranks that stall or left.
  [[nodiscard]] std::vector<net::RankFailure> failures_of_others() const {
    const MutexLock lock(mutex_);
    return of_others_;
  }
  // The ranks that this rank reported as stalled.
  [[nodiscard]] std::vector<int> stalled() const {
    const MutexLock lock(mutex_);
    return stalled_;
  }
  // True if the last such report was a deadlock.
  [[nodiscard]] bool reported_deadlock() const {
    const MutexLock lock(mutex_);
    return reported_deadlock_;
  }

 private:
  void ring() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(event_.get(), &one, sizeof one);
  }
  Fd event_;
  mutable Mutex mutex_;
  std::vector<int> stalled_ DISTRUN_GUARDED_BY(mutex_);
  bool reported_deadlock_ DISTRUN_GUARDED_BY(mutex_) = false;
  std::vector<int> lost_ DISTRUN_GUARDED_BY(mutex_);
  std::vector<std::pair<net::MissedPeers, net::RankFailure>> losses_ DISTRUN_GUARDED_BY(mutex_);
  std::vector<net::RankFailure> stuck_ DISTRUN_GUARDED_BY(mutex_);
  std::vector<net::RankFailure> failures_ DISTRUN_GUARDED_BY(mutex_);
  std::vector<net::RankFailure> of_others_ DISTRUN_GUARDED_BY(mutex_);
  std::vector<std::vector<net::RankWait>> waits_ DISTRUN_GUARDED_BY(mutex_);
  std::vector<net::ProgramState> states_ DISTRUN_GUARDED_BY(mutex_);
  std::vector<std::string> stops_ DISTRUN_GUARDED_BY(mutex_);
  std::vector<net::JobEvent> events_ DISTRUN_GUARDED_BY(mutex_);
  bool gone_ DISTRUN_GUARDED_BY(mutex_) = false;
};

}  // namespace distrun::test
