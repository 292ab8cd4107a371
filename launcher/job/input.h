// Passes the head's standard input on to ranks. Input that no rank has read stays where it is: the shell or loop that
// started distrun reads it next. So the head copies a piece of a file, pipe or socket without taking it, and takes what
// the ranks report as read. It copies the next piece when a rank has read all earlier ones.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "launcher/protocol/messages.h"
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
  void open(const std::set<std::size_t>& hosts);
  // The report of a host. Takes from standard input what its ranks have read.
  void taken(std::size_t host, const InputTaken& report);
  // This host is gone.
  void lost(std::size_t host) { readers_.erase(host); }
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

  // Input that can be copied without taking it. kStream (a terminal, a device) cannot.
  enum class Source { kStream, kFile, kPipe, kSocket };

  [[nodiscard]] bool wanted() const;
  void read(const OnBytes& on_bytes);
  ssize_t copy_some(std::vector<std::byte>& bytes) const;
  ssize_t copy_of_pipe(std::vector<std::byte>& bytes) const;
  void take(std::uint64_t bytes) const;
  void take_from_pipe(std::uint64_t bytes) const;
  void pause(TimePoint now);

  Source source_ = Source::kStream;
  // A terminal: a new open file description, so that O_NONBLOCK does not affect the processes that share standard
  // input. Invalid if it cannot be opened again (it belongs to another user, after su).
  Fd own_;
  // A pipe as standard input: tee and splice need another pipe. It is empty between two calls.
  Fd copy_out_;
  Fd copy_in_;
  std::map<std::size_t, std::uint64_t> readers_;  // by host: what its rank farthest behind has read
  std::uint64_t sent_ = 0;                        // bytes that were passed on
  std::uint64_t most_ = 0;                        // what the rank farthest ahead has read
  std::optional<TimePoint> paused_;  // set in the background, where the terminal may not be read: the next check
  Duration pause_ = kFirstPause;     // until the check after that
  bool ended_ = false;
};

}  // namespace distrun::launcher
