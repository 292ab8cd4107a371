// The user's terminal while a rank has one of its own (--tty): keys go to the rank as they are, Ctrl-C and Ctrl-Z too;
// Ctrl-\\ stays ours.
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

  // Does nothing unless standard input is a terminal that is ours to change.
  void enter();
  void leave();
  // Nothing without a terminal.
  [[nodiscard]] static std::optional<Window> window();

 private:
  std::optional<termios> before_;
};

}  // namespace distrun::launcher
