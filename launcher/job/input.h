// The head's standard input, on its way to rank 0: one piece at a time, read only when rank 0 has taken the last one.
#pragma once

#include <functional>
#include <vector>

#include "launcher/spawn/poller.h"

namespace distrun::launcher {

class Input {
 public:
  // `on_bytes` gets what was read; an empty vector is the end.
  using OnBytes = std::function<void(std::vector<std::byte>)>;
  void watch(Poller& poller, const OnBytes& on_bytes);

  void allow() { allowed_ = true; }   // rank 0 has room
  void resume() { paused_ = false; }  // perhaps in the foreground again

 private:
  void read(const OnBytes& on_bytes);
  bool allowed_ = false;
  bool paused_ = false;  // a background process may not read the terminal
  bool ended_ = false;
};

}  // namespace distrun::launcher
