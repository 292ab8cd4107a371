// Watches the connections of one process to other hosts. While data is in flight, a wait set calls look() once a
// second. It checks whether sent bytes are acknowledged, and whether a record that has begun is completed. An idle job
// is not woken. Only the holder of the progress token uses this.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/link_end.h"
#include "runtime/net/bytes/ack_watch.h"

namespace distrun::net {

struct LinkWatch {
  Duration limit;  // the setting host_timeout
  // Returns the number of the record, or message, that has arrived in part; 0 if there is none. Empty if the connection
  // has no records.
  std::function<std::uint64_t()> begun;
  // Called once, with the end and its description. It may add and remove watches.
  std::function<void(LinkEnd, const std::string&)> ended;
};

// The number of a record that has arrived in part, and how long this process has waited for the rest. Pure.
class BegunRecord {
 public:
  // `record` is 0 if there is none. Returns true if the rest has not arrived within the limit.
  bool overdue(std::uint64_t record, TimePoint now, Duration limit);
  [[nodiscard]] bool waits() const { return record_ != 0; }
  // When to call overdue() again for a record that has begun.
  [[nodiscard]] TimePoint due() const;

 private:
  std::uint64_t record_ = 0;
  TimePoint since_;
  TimePoint looked_;
};

// "10.0.0.7 has acknowledged nothing of what 10.0.0.1 has sent to it for 5 s"
std::string text_of_end(int fd, LinkEnd end, Duration limit);

class LinkWatches {
 public:
  static constexpr Duration kInterval = std::chrono::seconds(1);

  void add(int fd, LinkWatch watch) { links_[fd] = {.watch = std::move(watch)}; }
  void remove(int fd) { links_.erase(fd); }

  // Tells the watches that data may have been sent or received. They look again at the next interval.
  void used() { quiet_ = false; }
  // When look() is due. Returns max() if it is not due before the next used().
  [[nodiscard]] TimePoint due() const { return quiet_ || links_.empty() ? TimePoint::max() : looked_ + kInterval; }
  // Checks all connections. Returns the number of connections that have ended.
  int look(TimePoint now);

 private:
  struct Link {
    LinkWatch watch;
    AckWatch acks{};
    BegunRecord begun{};
    // Further connection attempts to the same host, one each second. If the host can be reached, it accepts or refuses
    // them.
    Fd question{};
    int answered = 0;
    int lost = 0;  // without an answer, or answered only after a packet was sent again
  };
  static LinkEnd judge(int fd, Link& link, TimePoint now, bool& quiet);
  static SmallPackets small_packets(const Link& link);
  static void ask(int fd, Link& link);

  std::map<int, Link> links_;  // by descriptor
  TimePoint looked_ = TimePoint{};
  bool quiet_ = true;
};

}  // namespace distrun::net
