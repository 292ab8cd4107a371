// Which agents have been silent for long, when the user hears of it, and when they are given up. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/clock.h"

namespace distrun::launcher {

// What is known of one agent's signs of life.
struct SignOfLife {
  bool expected = false;          // it gives one every second
  TimePoint heard;                // when the last one came
  std::optional<TimePoint> told;  // the user knows that it has been silent since then
  Duration away{};                // for how long it had been silent when it came back, and the user does not know yet

  void expect(TimePoint now) { *this = {.expected = true, .heard = now, .told = {}}; }
};

class HostSilence {
 public:
  // The user hears of an agent that has been silent for so long.
  static constexpr Duration kTold = std::chrono::milliseconds(3500);
  // One from which two signs of life have not come went silent together with the others.
  static constexpr Duration kMissed = std::chrono::seconds(2);
  // Once the first is to be given up, the others get so long: several hosts seldom go at the same moment.
  static constexpr Duration kLookAgain = std::chrono::milliseconds(500);
  // The same for those that come back. A connection asks again by its own clock.
  static constexpr Duration kBackTogether = std::chrono::seconds(1);
  // Who has not looked for so long was stopped itself, or suspended with its machine, and heard nothing in that time.
  static constexpr Duration kStoodStill = std::chrono::seconds(2);

  // `limit`: the setting host_timeout.
  explicit HostSilence(Duration limit) : limit_(limit) {}
  [[nodiscard]] Duration limit() const { return limit_; }

  // Indices into the signs.
  struct Changes {
    std::vector<std::size_t> silent;  // the user is to hear of these
    std::vector<std::size_t> back;
    Duration away{};                // the longest silence of those
    std::vector<std::size_t> lost;  // these are given up, all at once
  };
  // In every round of a loop that wakes by deadline().
  Changes look(TimePoint now, std::span<SignOfLife* const> signs);
  // When look() has something to say by itself, or is to see that this process runs.
  [[nodiscard]] std::optional<TimePoint> deadline(std::span<SignOfLife* const> signs) const;

  // The connection of this one has ended. True: the user knows that it has been silent, so the silence is the cause.
  [[nodiscard]] static bool explains(const SignOfLife& sign) { return sign.told && silent(sign); }
  // This one is given up, and all that are as silent.
  [[nodiscard]] static std::vector<std::size_t> as_silent(TimePoint now, std::span<SignOfLife* const> signs,
                                                          const SignOfLife* ended = nullptr);

 private:
  [[nodiscard]] static bool silent(const SignOfLife& sign) { return sign.heard <= *sign.told; }
  void stood_still(TimePoint now, std::span<SignOfLife* const> signs);
  void find_back(TimePoint now, std::span<SignOfLife* const> signs, Changes& out);
  void find_silent(TimePoint now, std::span<SignOfLife* const> signs, Changes& out);
  void find_lost(TimePoint now, std::span<SignOfLife* const> signs, Changes& out);

  Duration limit_;
  std::optional<TimePoint> looked_;
  std::optional<TimePoint> back_by_;  // those that have come back are named by then
  std::optional<TimePoint> lost_at_;  // those that are silent then are given up
};

}  // namespace distrun::launcher
