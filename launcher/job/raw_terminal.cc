#include "launcher/job/raw_terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

namespace distrun::launcher {

void RawTerminal::enter() {
  termios mode{};
  // In the background, a change of the mode would stop this process.
  if (before_ || ::tcgetattr(0, &mode) != 0 || ::tcgetpgrp(0) != ::getpgrp()) return;
  before_ = mode;
  mode.c_iflag &= ~static_cast<tcflag_t>(BRKINT | ICRNL | IGNCR | INLCR | ISTRIP | IXON | PARMRK);
  // Output processing stays on, because lines of other ranks end with a plain line feed.
  mode.c_lflag &= ~static_cast<tcflag_t>(ECHO | ECHONL | ICANON | IEXTEN);
  mode.c_cc[VINTR] = _POSIX_VDISABLE;
  mode.c_cc[VSUSP] = _POSIX_VDISABLE;
  mode.c_cc[VMIN] = 1;
  mode.c_cc[VTIME] = 0;
  ::tcsetattr(0, TCSADRAIN, &mode);
}

void RawTerminal::leave() {
  if (before_ && ::tcgetpgrp(0) == ::getpgrp()) ::tcsetattr(0, TCSADRAIN, &*before_);
  before_.reset();
}

std::optional<Window> RawTerminal::window() {
  winsize size{};
  if (::ioctl(0, TIOCGWINSZ, &size) != 0) return std::nullopt;
  return Window{.rows = size.ws_row, .columns = size.ws_col};
}

}  // namespace distrun::launcher
