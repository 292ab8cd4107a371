// The mode of the user's terminal while a rank has a terminal (--tty). Keys go to the rank unchanged, also Ctrl-C and
// Ctrl-Z. Only Ctrl-\\ stays with distrun.
#pragma once

#include <termios.h>

#include <optional>

#include "launcher/protocol/messages.h"

namespace distrun::launcher {

class RawTerminal {
 public:
  RawTerminal() = default;
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;
  ~RawTerminal() { leave(); }

  // Does nothing unless standard input is a terminal and this process is in the foreground.
  void enter();
  void leave();
  // None without a terminal.
  [[nodiscard]] static std::optional<Window> window();

 private:
  std::optional<termios> before_;
};

}  // namespace distrun::launcher
