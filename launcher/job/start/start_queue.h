// Decides when each agent is started: a limited number at a time, again after a temporary failure (an ssh server that
// refuses connections), until a time limit. Pure.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "runtime/base/clock.h"

namespace distrun::launcher {

class StartQueue {
 public:
  struct Limits {
    int at_a_time = 32;
    int attempts = 3;
    Duration answer = std::chrono::seconds(60);  // from the start of an agent to its first answer
    bool keep_trying = false;                    // attempts have no limit until `answer` has passed since the first one
    Duration by_another = std::chrono::seconds(20);  // from the order to another host to the arrival of the agent
    Duration pause = std::chrono::seconds(1);        // before the second attempt; doubles up to 8 times, with jitter
  };
  // `random`: in [0, 1), for the jitter, so that many hosts do not retry at the same moment.
  StartQueue(std::size_t hosts, const Limits& limits, std::function<double()> random = random_fraction);
  static double random_fraction();

  // Hosts whose agent must be started now. They are then treated as started.
  std::vector<std::size_t> due(TimePoint now);
  void answered(std::size_t host);

  // Another host starts this one, so it is not due. It becomes due again if the other host could not start it.
  void hand_over(std::size_t host);
  [[nodiscard]] bool handed_over(std::size_t host) const { return hosts_.at(host).state == State::kHandedOver; }
  // The other host has its order. late() returns hosts that should have arrived since.
  void ordered(std::size_t host, TimePoint now);
  void arrived(std::size_t host, TimePoint now);
  // False if it has arrived, or was not handed over.
  bool take_back(std::size_t host);
  [[nodiscard]] std::vector<std::size_t> late(TimePoint now) const;

  // The agent ended, or could not be started, before it answered. True if it will be due again.
  bool failed(std::size_t host, bool may_pass, TimePoint now);
  [[nodiscard]] int attempts(std::size_t host) const { return hosts_.at(host).attempts; }
  // Hosts that were started too long ago and have not answered. Each is returned once, and is not started again.
  std::vector<std::size_t> overdue(TimePoint now);

  [[nodiscard]] bool pending() const { return open_ > 0; }  // some host has neither answered nor failed for good
  [[nodiscard]] TimePoint deadline() const;

 private:
  enum class State { kWaiting, kHandedOver, kStarted, kClosed };
  struct Host {
    State state = State::kWaiting;
    int attempts = 0;
    TimePoint first = TimePoint::max();  // the first attempt from here
    TimePoint when = TimePoint::min();   // due, late or overdue
  };
  void close(Host& host);
  [[nodiscard]] TimePoint limit(const Host& host) const;

  Limits limits_;
  std::function<double()> random_;
  std::vector<Host> hosts_;
  std::size_t open_;
  int running_ = 0;
};

}  // namespace distrun::launcher
