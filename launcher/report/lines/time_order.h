// Sorts the lines of several hosts by the time of writing. The clocks of hosts have about the same speed but different
// values. The shortest delay of a message gives the difference, up to the duration of that delay. Pure.
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

// Converts times of another host's clock to times of this host.
class HostClock {
 public:
  // `there`: microseconds on the steady clock of that host, from a message that arrived at `now`. The result never
  // decreases.
  TimePoint moment(std::uint64_t there, TimePoint now);

 private:
  // Clock speeds also differ by a few parts per million, which makes a second after some hours. So old messages do not
  // count.
  static constexpr Duration kMemory = std::chrono::seconds(30);
  std::optional<Duration> offset_;   // minimum of this period
  std::optional<Duration> earlier_;  // minimum of the period before
  TimePoint period_end_ = TimePoint::min();
  TimePoint last_ = TimePoint::min();
};

// The clocks of all hosts of a job.
class HostClocks {
 public:
  // `hosts`: by rank.
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

  // How much later a line from another host may arrive that was written earlier. Zero for a single host.
  explicit TimeOrder(Duration hold) : hold_(hold) {}

  void add(TimePoint written, Line line);
  // The lines that can be written now, in order.
  std::vector<Line> take(TimePoint now);
  std::vector<Line> take_all();
  [[nodiscard]] std::optional<TimePoint> deadline() const;

 private:
  Line pop();
  Duration hold_;
  std::multimap<TimePoint, Line> lines_;  // lines of the same time in the order of arrival
  std::size_t held_bytes_ = 0;
};

}  // namespace distrun::launcher
