// Where the head writes: its own standard output or error, written without ever blocking the loop.
#pragma once

#include <memory>
#include <string>

#include "launcher/report/file_writer.h"
#include "launcher/spawn/poller.h"
#include "runtime/base/fd.h"
#include "runtime/base/status.h"

namespace distrun::launcher {

class Terminal {
 public:
  explicit Terminal(int fd);
  // Before the first text: what is written by a thread gets it.
  Status open();

  [[nodiscard]] bool is_tty() const { return tty_; }
  [[nodiscard]] bool is_file() const { return kind_ == Kind::kFile; }  // or a device: nobody reads at its other end
  [[nodiscard]] bool closed() const { return closed_; }                // the reader is gone (`distrun ... | head`)
  // Why text could not be written and was dropped, while there is no reader that has gone: a full disk. 0: none was.
  [[nodiscard]] int lost() const { return writer_ && writer_->fault() ? writer_->fault()->error : lost_; }
  // How many bytes its reader has taken, or not got because it was gone or the disk full.
  [[nodiscard]] std::size_t taken() const { return writer_ ? writer_->taken() : taken_; }
  // Text that watch() has erased, but that is still in the thread's hand.
  [[nodiscard]] std::size_t in_hand() const { return writer_ ? writer_->in_hand() : 0; }
  // True when both mean the same file, pipe or terminal: then one order must hold for both.
  [[nodiscard]] bool same_as(const Terminal& other) const;

  // In each round of the loop: look() first, and finish() where no more text will come. FileWriter's.
  void look();
  void finish() {
    if (writer_) writer_->finish();
  }
  void watch(Poller& poller, std::string& text);
  // The reader is waited for no longer; it counts as gone.
  void give_up();
  [[nodiscard]] bool given_up() const { return given_up_; }

 private:
  // kShared: a pipe or terminal that we may not open anew (it is another user's, after su). Others use its description
  // too, so it stays as it is, and a write may block although poll() said that there is room: a terminal has some as
  // soon as a few bytes fit.
  enum class Kind { kFile, kNonBlocking, kSocket, kShared };
  [[nodiscard]] bool means_gone(int error) const;
  // Writes what goes without waiting and erases it from `text`.
  void flush(std::string& text);
  int fd_;
  Fd own_;  // a description of our own, so that O_NONBLOCK does not reach whoever shares fd_ with us
  std::unique_ptr<FileWriter> writer_;  // of kFile and kShared
  Kind kind_ = Kind::kFile;
  bool tty_ = false;
  bool closed_ = false;
  bool given_up_ = false;
  int lost_ = 0;
  std::size_t taken_ = 0;
};

}  // namespace distrun::launcher
