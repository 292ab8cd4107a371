// The head's standard input, on its way to ranks: one piece at a time, read only when all that get it have taken the
// last one.
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
  // `on_bytes` gets what was read and for which hosts; no bytes are the end.
  using OnBytes = std::function<void(const std::set<std::size_t>& hosts, std::vector<std::byte>)>;
  void watch(Poller& poller, const OnBytes& on_bytes);

  // These hosts have ranks that read.
  void open(std::set<std::size_t> hosts);
  // A host's ranks have room again, or read no more.
  void taken(std::size_t host, bool more);
  // Perhaps in the foreground again.
  void resume() {
    paused_.reset();
    pause_ = kFirstPause;
  }
  // A shell that brings a running job to the foreground sends no signal (bash): so after a read in the background this
  // looks now and then, ever more seldom. True if the terminal has become ours.
  bool look(TimePoint now);
  [[nodiscard]] std::optional<TimePoint> deadline() const;  // of the next look

 private:
  static constexpr Duration kFirstPause = std::chrono::milliseconds(500);
  static constexpr Duration kLongestPause = std::chrono::seconds(5);

  void read(const OnBytes& on_bytes);
  ssize_t read_some(std::vector<std::byte>& bytes) const;
  void pause(TimePoint now);
  // Of a terminal or FIFO: a description of our own, so that O_NONBLOCK does not reach whoever shares it with us. None
  // where it may not be opened anew (it is another user's, after su).
  Fd own_;
  bool socket_ = false;
  std::set<std::size_t> readers_;    // hosts
  std::set<std::size_t> busy_;       // those that have not taken the last piece
  std::optional<TimePoint> paused_;  // a background process may not read the terminal; until the next look
  Duration pause_ = kFirstPause;     // the next one
  bool ended_ = false;
};

}  // namespace distrun::launcher
