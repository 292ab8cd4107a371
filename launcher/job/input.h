// Passes the head's standard input on to ranks, one piece at a time. It reads the next piece only when all receiving
// hosts have taken the last one.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "launcher/spawn/poller.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"

namespace distrun::launcher {

class Input {
 public:
  // `on_bytes` gets the bytes and the hosts that receive them. No bytes: the input has ended.
  using OnBytes = std::function<void(const std::set<std::size_t>& hosts, std::vector<std::byte>)>;
  void watch(Poller& poller, const OnBytes& on_bytes);

  // Starts with these hosts, which have ranks that read input.
  void open(std::set<std::size_t> hosts);
  // The ranks of a host have room again, or (`more` is false) read no more.
  void taken(std::size_t host, bool more);
  // Called when this process may be in the foreground again.
  void resume() {
    paused_.reset();
    pause_ = kFirstPause;
  }
  // A shell that brings a running job to the foreground sends no signal (bash). So after a failed read in the
  // background this checks from time to time, less and less often. True if this process is in the foreground again.
  bool look(TimePoint now);
  [[nodiscard]] std::optional<TimePoint> deadline() const;  // when look() is due

 private:
  static constexpr Duration kFirstPause = std::chrono::milliseconds(500);
  static constexpr Duration kLongestPause = std::chrono::seconds(5);

  void read(const OnBytes& on_bytes);
  ssize_t read_some(std::vector<std::byte>& bytes) const;
  void pause(TimePoint now);
  // For a terminal or FIFO: a new open file description, so that O_NONBLOCK does not affect the processes that share
  // standard input. Invalid if it cannot be opened again (it belongs to another user, after su).
  Fd own_;
  bool socket_ = false;
  std::set<std::size_t> readers_;    // hosts
  std::set<std::size_t> busy_;       // hosts that have not taken the last piece
  std::optional<TimePoint> paused_;  // set in the background, where the terminal may not be read: the next check
  Duration pause_ = kFirstPause;     // until the check after that
  bool ended_ = false;
};

}  // namespace distrun::launcher
