// The connections of one process to other hosts, as a wait set looks at them once a second while something is under way
// on them: do the bytes that were sent arrive, and is a record that has begun made whole? A job that is idle is not
// woken. For the holder of the progress token.
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
  // The number of the record, or message, of which a part has come and the rest has not; 0: there is none. Empty: the
  // connection has no records.
  std::function<std::uint64_t()> begun;
  // Once, with the end in words. It may add and remove watches.
  std::function<void(LinkEnd, const std::string&)> ended;
};

// The number of a record that has begun, and since when this process waits for the rest. Pure.
class BegunRecord {
 public:
  // `record`: 0: there is none. True: the rest has not come within the limit.
  bool overdue(std::uint64_t record, TimePoint now, Duration limit);
  [[nodiscard]] bool waits() const { return record_ != 0; }
  // When to look again at one that has begun.
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

  // Something may have been sent or received since.
  void used() { quiet_ = false; }
  // When look() is due; max(): not before used().
  [[nodiscard]] TimePoint due() const { return quiet_ || links_.empty() ? TimePoint::max() : looked_ + kInterval; }
  // How many connections have been found at their end.
  int look(TimePoint now);

 private:
  struct Link {
    LinkWatch watch;
    AckWatch acks{};
    BegunRecord begun{};
    // A connection to the same host, which it accepts, or refuses, if it can be reached.
    Fd question{};
    bool reached = false;
  };
  static LinkEnd judge(int fd, Link& link, TimePoint now, bool& quiet);
  static bool answers(int fd, Link& link);

  std::map<int, Link> links_;  // by descriptor
  TimePoint looked_ = TimePoint{};
  bool quiet_ = true;
};

}  // namespace distrun::net
