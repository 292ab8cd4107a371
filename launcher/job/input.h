// The head's standard input, on its way to ranks: one piece at a time, read only when all that get it have taken the
// last one.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "launcher/spawn/poller.h"
#include "runtime/base/clock.h"

namespace distrun::launcher {

class Input {
 public:
  // `on_bytes` gets what was read and for which hosts; no bytes are the end.
  using OnBytes = std::function<void(const std::set<std::size_t>& hosts, std::vector<std::byte>)>;
  void watch(Poller& poller, const OnBytes& on_bytes);

  // These hosts have ranks that read.
  void open(std::set<std::size_t> hosts) { readers_ = std::move(hosts); }
  // A host's ranks have room again, or read no more.
  void taken(std::size_t host, bool more);
  void resume() { paused_.reset(); }  // perhaps in the foreground again
  // A shell that brings a running job to the foreground sends no signal (bash): so after a read in the background this
  // looks now and then. True if the terminal has become ours.
  bool look(TimePoint now);
  [[nodiscard]] std::optional<TimePoint> deadline() const;  // of the next look

 private:
  void read(const OnBytes& on_bytes);
  std::set<std::size_t> readers_;    // hosts
  std::set<std::size_t> busy_;       // those that have not taken the last piece
  std::optional<TimePoint> paused_;  // a background process may not read the terminal; until the next look
  bool ended_ = false;
};

}  // namespace distrun::launcher
