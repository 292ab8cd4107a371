// Which agents have been silent for long, when the user is informed, and when they are given up. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/clock.h"

namespace distrun::launcher {

// The signs of life of one agent.
struct SignOfLife {
  bool expected = false;                    // the agent sends one every second
  TimePoint received_at;                    // when the last one came
  std::optional<TimePoint> reported_since;  // set if the user knows: the time since when it has been silent
  Duration silent_for{};                    // how long it was silent before it came back; not reported yet

  void expect(TimePoint now) { *this = {.expected = true, .received_at = now, .reported_since = {}}; }
};

class HostSilence {
 public:
  // The user is informed of an agent that has been silent for this time.
  static constexpr Duration kReportAfter = std::chrono::milliseconds(3500);
  // When one agent is reported, all that have missed two signs of life are reported with it.
  static constexpr Duration kMissed = std::chrono::seconds(2);
  // When the first agent reaches the limit, the others get this time, because hosts seldom fail at exactly the same
  // moment.
  static constexpr Duration kLookAgain = std::chrono::milliseconds(500);
  // The same for hosts that come back, because each connection retransmits on its own timer.
  static constexpr Duration kBackTogether = std::chrono::seconds(1);
  // If this process looks this much too late, it was stopped itself, or suspended with its machine, and received
  // nothing.
  static constexpr Duration kSuspended = std::chrono::seconds(2);

  // `limit` is the setting host_timeout.
  explicit HostSilence(Duration limit) : limit_(limit) {}
  [[nodiscard]] Duration limit() const { return limit_; }

  // Indices into the signs.
  struct Changes {
    std::vector<std::size_t> silent;  // report these to the user
    std::vector<std::size_t> back;
    Duration silent_for{};          // the longest silence among `back`
    std::vector<std::size_t> lost;  // give these up, all at once
  };
  // Call it in every round of a loop that wakes at deadline().
  Changes look(TimePoint now, std::span<SignOfLife* const> signs);
  // When look() has something to report, or must be called to see that this process runs.
  [[nodiscard]] std::optional<TimePoint> deadline(std::span<SignOfLife* const> signs) const;

  // The connection of this agent has ended. True: the user knows that it is silent, so the silence is the cause.
  [[nodiscard]] static bool explains(const SignOfLife& sign) { return sign.reported_since && silent(sign); }
  // Which agents are given up: `ended`, and all that have been silent for kReportAfter.
  [[nodiscard]] static std::vector<std::size_t> as_silent(TimePoint now, std::span<SignOfLife* const> signs,
                                                          const SignOfLife* ended = nullptr);

 private:
  [[nodiscard]] static bool silent(const SignOfLife& sign) { return sign.received_at <= *sign.reported_since; }
  void skip_suspension(TimePoint now, std::span<SignOfLife* const> signs);
  void find_back(TimePoint now, std::span<SignOfLife* const> signs, Changes& out);
  void find_silent(TimePoint now, std::span<SignOfLife* const> signs, Changes& out);
  void find_lost(TimePoint now, std::span<SignOfLife* const> signs, Changes& out);

  Duration limit_;
  std::optional<TimePoint> looked_;
  std::optional<TimePoint> back_by_;  // agents that have come back are reported by then
  std::optional<TimePoint> lost_at_;  // agents that are silent then are given up
};

}  // namespace distrun::launcher
