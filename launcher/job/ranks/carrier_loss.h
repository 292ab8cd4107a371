// With --mpi: which part of MPI's launcher ended first, if several ends are seen together. When one of its parts is
// gone, it ends the ranks. So the ends of ranks and of their wrappers wait some time for a cause. Pure.
#pragma once

#include <sys/wait.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/protocol/messages.h"
#include "launcher/report/failure_report.h"
#include "runtime/base/clock.h"

namespace distrun::launcher {

class CarrierLoss {
 public:
  // How long each end waits for another one that may be its cause. The wait status of MPI's launcher may arrive later
  // than the news that one of its daemons is gone.
  static constexpr Duration kOfDaemon = std::chrono::seconds(1);
  static constexpr Duration kOfWrapper = std::chrono::seconds(1);
  static constexpr Duration kOfRank = std::chrono::seconds(2);
  // MPI's launcher tells the daemons of all hosts to end within this time. A daemon that ends by itself first ends its
  // own ranks; MPI's launcher ends the others when it misses it. With Open MPI 4.1 that took a second.
  static constexpr Duration kTogether = std::chrono::milliseconds(300);
  // Open MPI sends SIGCONT a second before it ends a wrapper.
  static constexpr Duration kContinuedBefore = std::chrono::seconds(3);

  // The agent with this index, its rank and its host.
  struct Where {
    int agent = -1;  // -1: not an agent's part
    int rank = -1;
    std::string host;
  };
  // The part whose end ends the job.
  struct Loss {
    Where where;
    std::string text;
  };

  // `own_host` is the host of MPI's launcher.
  explicit CarrierLoss(std::string own_host) : own_host_(std::move(own_host)) {}

  void launcher_ended(const CarrierEnd& end, TimePoint now) {
    launcher_ = end;
    wait(WIFSIGNALED(end.wait_status) ? now : now + kOfDaemon);
  }
  // An agent has sent this news.
  void add_news(const CarrierNews& news, const Where& where, TimePoint now) {
    switch (news.kind) {
      case CarrierNews::kAskedToEnd:
        asked_.push_back({.part = {.where = where, .name = news.name, .pid = news.pid}, .at = now});
        // The daemon may have killed that wrapper. This is known when MPI's launcher ends the other hosts.
        if (wrapper_ && wrapper_->where.host == where.host && !daemon_ && !launcher_) by_.reset();
        return wait(now + kOfRank);
      case CarrierNews::kDaemonEnded:
        // A daemon that ends in good order first tells its agents.
        if (asked_by(where.host, news.pid)) return;
        if (!daemon_) daemon_ = Part{.where = where, .name = news.name, .pid = news.pid};
        return wait(now + kOfDaemon);
      case CarrierNews::kGuardEnded:
        return wrapper_lost(where, news.pid, now);
      case CarrierNews::kContinued:
        continued_.push_back({.part = {.where = where, .name = news.name, .pid = news.pid}, .at = now});
        return;
    }
  }
  // The wrapper, or its connection, has ended without a message.
  void wrapper_lost(const Where& where, int pid, TimePoint now) {
    // MPI's launcher first tells a wrapper to end, and then kills it. KILL may be faster than the wrapper's message,
    // but another agent of the host has sent one.
    if (asked_on(where.host)) return wait(now + kOfRank);
    // No agent of this host could send the message.
    if (const Part* const daemon = ended_by(where.agent, now)) {
      asked_.push_back({.part = *daemon, .at = now});
      return wait(now + kOfRank);
    }
    if (!wrapper_) wrapper_ = Part{.where = where, .name = "distrun's wrapper", .pid = pid};
    wait(now + kOfWrapper);
  }
  // True if this end of a rank is kept until its cause is known.
  bool keeps(const RankExited& event, TimePoint now) {
    if (event.signal == 0 && event.exit_code == 0) return false;
    if (!by_ && !event.by_agent) return false;
    wait(now + kOfRank);
    kept_.push_back(event);
    return true;
  }

  [[nodiscard]] std::optional<TimePoint> deadline() const { return by_; }
  // The part that ended first. None: this is not known yet, or no part did, and take() returns the ends that were kept.
  std::optional<Loss> decide(TimePoint now) {
    if (!by_ || now < *by_) return std::nullopt;
    by_.reset();
    const bool killed = launcher_ && WIFSIGNALED(launcher_->wait_status);
    if (!killed && daemon_) return loss_of(*daemon_);
    const Part* const ended = ended_alone();
    const bool by_daemon = ended != nullptr && wrapper_ && ended->where.host == wrapper_->where.host;
    if (!killed && wrapper_ && !by_daemon) return loss_of(*wrapper_);
    if (!killed && ended != nullptr && !kept_own_end()) {
      return Loss{
          .where = ended->where,
          .text = (ended->name.empty() ? "the daemon of MPI's launcher" : process_name(ended->name, ended->pid)) +
                  " on host " + ended->where.host +
                  " ended its ranks before MPI's launcher ended the others: was it killed?"};
    }
    // A rank that fails by itself (MPI_Abort) makes MPI's launcher end with a code.
    if (!launcher_ || (!killed && kept_own_end())) return std::nullopt;
    return Loss{.where = {.host = own_host_}, .text = carrier_text(*launcher_) + " on host " + own_host_};
  }
  // Returns the kept ends, the first cause first, when the wait is over.
  std::vector<RankExited> take() {
    if (by_) return {};
    std::stable_partition(kept_.begin(), kept_.end(), [](const RankExited& event) { return !event.by_agent; });
    return std::exchange(kept_, {});
  }

 private:
  struct Part {
    Where where;
    std::string name;
    int pid = 0;
  };

  struct AgentEvent {
    Part part;  // the daemon of the agent's host
    TimePoint at;
  };

  [[nodiscard]] bool asked_on(const std::string& host) const {
    return std::any_of(asked_.begin(), asked_.end(),
                       [&host](const AgentEvent& asked) { return asked.part.where.host == host; });
  }
  // True if this daemon has told an agent to end.
  [[nodiscard]] bool asked_by(const std::string& host, int pid) const {
    return std::any_of(asked_.begin(), asked_.end(), [&host, pid](const AgentEvent& asked) {
      return asked.part.where.host == host && asked.part.pid == pid;
    });
  }
  // The daemon that sent SIGCONT to this agent a short time ago. Null: none did.
  [[nodiscard]] const Part* ended_by(int agent, TimePoint now) const {
    const auto found = std::find_if(continued_.rbegin(), continued_.rend(),
                                    [agent](const AgentEvent& one) { return one.part.where.agent == agent; });
    return found == continued_.rend() || now - found->at > kContinuedBefore ? nullptr : &found->part;
  }
  // The daemon whose ranks were told to end before those of any other host. Null: there is none.
  [[nodiscard]] const Part* ended_alone() const {
    if (asked_.empty() || asked_.front().part.where.host == own_host_) return nullptr;
    const AgentEvent& first = asked_.front();
    const auto other = std::find_if(asked_.begin(), asked_.end(), [&first](const AgentEvent& asked) {
      return asked.part.where.host != first.part.where.host;
    });
    return other == asked_.end() || other->at - first.at < kTogether ? nullptr : &first.part;
  }
  // The earliest time wins: evidence with a shorter wait is better evidence.
  void wait(TimePoint until) { by_ = by_ ? std::min(*by_, until) : until; }
  [[nodiscard]] bool kept_own_end() const {
    return std::any_of(kept_.begin(), kept_.end(), [](const RankExited& event) { return !event.by_agent; });
  }
  static Loss loss_of(const Part& part) {
    return {.where = part.where,
            .text = process_name(part.name, part.pid) + " on host " + part.where.host + " has ended while rank " +
                    std::to_string(part.where.rank) + " ran below it: was it killed?"};
  }

  std::string own_host_;
  std::optional<CarrierEnd> launcher_;
  std::optional<Part> daemon_;
  std::optional<Part> wrapper_;
  std::vector<AgentEvent> asked_;      // agents that were told to end, in this order
  std::vector<AgentEvent> continued_;  // agents that got SIGCONT, in this order
  std::vector<RankExited> kept_;
  std::optional<TimePoint> by_;
};

}  // namespace distrun::launcher
