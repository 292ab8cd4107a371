// The head's standard input, on its way to ranks: one piece at a time, read only when all that get it have taken the
// last one.
#pragma once

#include <cstddef>
#include <functional>
#include <set>
#include <vector>

#include "launcher/spawn/poller.h"

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
  void resume() { paused_ = false; }  // perhaps in the foreground again

 private:
  void read(const OnBytes& on_bytes);
  std::set<std::size_t> readers_;  // hosts
  std::set<std::size_t> busy_;     // those that have not taken the last piece
  bool paused_ = false;            // a background process may not read the terminal
  bool ended_ = false;
};

}  // namespace distrun::launcher
