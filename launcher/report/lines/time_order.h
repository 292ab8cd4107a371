// The lines of several hosts in the order in which they were written. Hosts' clocks agree in little more than their
// speed; a moment on another host is known but for the shortest time that a message from there has taken. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/report/lines/line_assembler.h"
#include "runtime/base/clock.h"

namespace distrun::launcher {

// What moments of another host's clock are here.
class HostClock {
 public:
  // `there`: microseconds of that host's steady clock, in a message that has come `now`. Never earlier than before.
  TimePoint moment(std::uint64_t there, TimePoint now);

 private:
  // Speeds differ by some parts in a million too, which is a second after some hours: old messages do not count.
  static constexpr Duration kMemory = std::chrono::seconds(30);
  std::optional<Duration> offset_;   // the least of this period
  std::optional<Duration> earlier_;  // and of the one before
  TimePoint period_end_ = TimePoint::min();
  TimePoint last_ = TimePoint::min();
};

// The clocks of all hosts of a job.
class HostClocks {
 public:
  // `hosts`: of each rank.
  explicit HostClocks(const std::vector<std::string>& hosts);
  TimePoint moment(int rank, std::uint64_t there, TimePoint now) {
    return clocks_[host_of_[static_cast<std::size_t>(rank)]].moment(there, now);
  }

 private:
  std::vector<std::size_t> host_of_;  // by rank
  std::vector<HostClock> clocks_;     // by host
};

class TimeOrder {
 public:
  struct Line {
    int stream = 0;
    std::string tag;
    Piece piece;
  };
  static constexpr std::size_t kMostHeld = std::size_t{1} << 20;

  // For how long a line from another host may still come that was written earlier; nothing for a single host.
  explicit TimeOrder(Duration hold) : hold_(hold) {}

  void add(TimePoint written, Line line);
  // What can be written now, in order.
  std::vector<Line> take(TimePoint now);
  std::vector<Line> take_all();
  [[nodiscard]] std::optional<TimePoint> deadline() const;

 private:
  Line pop();
  Duration hold_;
  std::multimap<TimePoint, Line> lines_;  // of one moment in the order of arrival
  std::size_t held_bytes_ = 0;
};

}  // namespace distrun::launcher
