// The head's own standard output or error. Writing never blocks the loop.
#pragma once

#include <cstddef>
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
  // Call this before the first text. It starts the thread, if writing needs one.
  Status open();

  [[nodiscard]] bool is_tty() const { return tty_; }
  [[nodiscard]] std::size_t height() const;                            // in lines; 0 if it is not known
  [[nodiscard]] bool is_file() const { return kind_ == Kind::kFile; }  // or a device: it has no reader
  [[nodiscard]] bool closed() const { return closed_; }                // the reader has gone (`distrun ... | head`)
  // The errno for which text was dropped, such as that of a full disk. A reader that has gone does not count. 0: none.
  [[nodiscard]] int lost() const { return writer_ && writer_->fault() ? writer_->fault()->error : lost_; }
  // Bytes that were taken, or dropped because the reader had gone or the disk was full.
  [[nodiscard]] std::size_t taken() const { return writer_ ? writer_->taken() : taken_; }
  // Text that watch() has erased but the thread has not written yet.
  [[nodiscard]] std::size_t in_hand() const { return writer_ ? writer_->in_hand() : 0; }
  // True if both are the same file, pipe or terminal. They then need one common order.
  [[nodiscard]] bool same_as(const Terminal& other) const;

  // Call look() first in each round of the loop, and finish() when no more text will come. See FileWriter.
  void look();
  void finish() {
    if (writer_) writer_->finish();
  }
  void watch(Poller& poller, std::string& text);
  // Stops waiting for the reader, which then counts as gone.
  void give_up();
  [[nodiscard]] bool given_up() const { return given_up_; }

 private:
  // kShared: a pipe or terminal that cannot be opened again because another user owns it (after su). Other processes
  // share its open file description, so its flags must stay as they are. A write may then block although poll()
  // reported room: for a terminal, room for a few bytes is enough.
  enum class Kind { kFile, kNonBlocking, kSocket, kShared };
  [[nodiscard]] bool means_gone(int error) const;
  // Writes what goes without waiting and erases it from `text`.
  void flush(std::string& text);
  int fd_;
  // Our own open file description. O_NONBLOCK on it does not affect processes that share fd_.
  Fd own_;
  std::unique_ptr<FileWriter> writer_;  // for kFile and kShared
  Kind kind_ = Kind::kFile;
  bool tty_ = false;
  bool closed_ = false;
  bool given_up_ = false;
  int lost_ = 0;
  std::size_t taken_ = 0;
};

}  // namespace distrun::launcher
