// The places where a virtual rank would block, and its channel to the launcher. Without threads or descriptors.
#pragma once

#include <sys/epoll.h>

#include <string>
#include <utility>
#include <vector>

#include "runtime/net/bytes/wait_set.h"
#include "runtime/net/store/job_channel.h"

namespace distrun::sim {

class SimJobChannel final : public net::JobChannel {
 public:
  void push(net::JobEvent event) { events_.push_back(std::move(event)); }
  [[nodiscard]] bool readable() const { return !events_.empty(); }

  [[nodiscard]] int fd() const override { return 0; }
  Result<std::vector<net::JobEvent>> receive() override { return std::exchange(events_, {}); }
  Status leave() override { return {}; }
  Status report_failure(const net::RankFailure&) override { return {}; }
  Status report_early_leave(int, const net::RankFailure&) override { return {}; }
  Status report_loss(const net::MissedPeers&, const net::RankFailure&) override { return {}; }
  Status report_stall(const net::MissedPeers&, const net::RankFailure&) override { return {}; }
  Status report_no_progress(const net::RankFailure&) override { return {}; }
  Status report_stop(const std::string&) override { return {}; }
  Status report_waits(const std::vector<net::RankWait>&) override { return {}; }
  Status report_state(const net::ProgramState&) override { return {}; }

 private:
  std::vector<net::JobEvent> events_;
};

// Never blocks. It notes a poll that would block, and the simulation continues with another rank.
class SimWaitSet final : public net::WaitSet {
 public:
  explicit SimWaitSet(const SimJobChannel& channel) : channel_(channel) {}

  void begin_step() {
    polls_ = 0;
    would_block_ = false;
  }
  [[nodiscard]] bool would_block() const { return would_block_; }
  [[nodiscard]] TimePoint until() const { return until_; }  // the timeout of the poll that would block

  Status add(int, std::uint32_t, Callback on_ready) override {
    on_ready_ = std::move(on_ready);
    return {};
  }
  Status modify(int, std::uint32_t) override { return {}; }
  void remove(int) override { on_ready_ = nullptr; }
  void add_link(int, net::LinkWatch) override {}
  void remove_link(int) override {}
  void add_sleepable(net::Sleepable*) override {}
  void remove_sleepable(net::Sleepable*) override {}
  void wake() override {}

  Result<int> poll(TimePoint until, const LookAgain& check_again) override {
    if (on_ready_ && channel_.readable()) {
      on_ready_(EPOLLIN);
      return 1;
    }
    DISTRUN_CHECK(++polls_ < kMostPolls, "a rank spins: its timer is due and stays so");
    if (until <= Clock::now() || (check_again && check_again())) return 0;
    would_block_ = true;
    until_ = until;
    return 0;
  }

 private:
  static constexpr int kMostPolls = 10000;  // in one step
  const SimJobChannel& channel_;
  Callback on_ready_;
  int polls_ = 0;
  bool would_block_ = false;
  TimePoint until_;
};

}  // namespace distrun::sim
