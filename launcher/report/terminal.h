// Where the head writes: its own standard output or error, written without ever blocking the loop.
#pragma once

#include <string>

#include "launcher/spawn/poller.h"
#include "runtime/base/fd.h"

namespace distrun::launcher {

class Terminal {
 public:
  explicit Terminal(int fd);

  [[nodiscard]] bool is_tty() const { return tty_; }
  [[nodiscard]] bool closed() const { return closed_; }  // the reader is gone (`distrun ... | head`)
  // Why text could not be written and was dropped, while there is no reader that has gone: a full disk. 0: none was.
  [[nodiscard]] int lost() const { return lost_; }
  // How many bytes its reader has taken, or not got because it was gone or the disk full.
  [[nodiscard]] std::size_t taken() const { return taken_; }
  // True when both mean the same file, pipe or terminal: then one order must hold for both.
  [[nodiscard]] bool same_as(const Terminal& other) const;

  void watch(Poller& poller, std::string& text);
  // Writes what goes without waiting and erases it from `text`.
  void flush(std::string& text);
  // The reader is waited for no longer; it counts as gone.
  void give_up() { closed_ = given_up_ = true; }
  [[nodiscard]] bool given_up() const { return given_up_; }

 private:
  enum class Kind { kOther, kNonBlocking, kSocket, kCareful };
  int fd_;
  Fd own_;  // a description of our own, so that O_NONBLOCK does not reach whoever shares fd_ with us
  Kind kind_ = Kind::kOther;
  bool tty_ = false;
  bool closed_ = false;
  bool given_up_ = false;
  int lost_ = 0;
  std::size_t taken_ = 0;
};

}  // namespace distrun::launcher
