// Writes files outside the loop of the head. A disk may be slow, or blocked forever (a file server that is gone), and a
// thread that waits for it cannot be stopped. If the loop waited, the agents would get no answers and end their ranks.
// So a separate thread, `distrun-files`, writes the files. It sleeps while there is nothing to write. It shares only
// State with other threads and is one of its owners, so it can be detached. It has one batch at a time. Later text
// stays with the owner of the FileWriter, who can thus see how far behind the disk is. Only the owner's thread may call
// these functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "launcher/spawn/poller.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/status.h"

namespace distrun::launcher {

class FileWriter {
 public:
  // After a failed write (a full disk) the file is left alone for this time. Text for it is dropped, and a line in the
  // file then says how many bytes are missing.
  static constexpr Duration kRetry = std::chrono::seconds(10);

  struct Part {
    std::size_t file = 0;  // number, as given to create()
    std::string text{};
    bool empty_first = false;  // first remove the earlier content of the file
    bool last = false;         // set by finish()
  };
  // In bytes. A part without text counts as one byte.
  static std::size_t size_of(const Part& part) { return std::max(part.text.size(), std::size_t{1}); }
  struct Fault {
    std::size_t file = 0;
    int error = 0;
    bool emptying = false;  // only the emptying failed; later writes work as usual
  };

  // Returns 0, or -1 and errno. File systems that delay writes (NFS) report some errors, such as a quota, only when a
  // descriptor is closed.
  using Flush = int (*)(int fd);
  static int flush(int fd);

  static Result<std::unique_ptr<FileWriter>> create(std::vector<Fd> files, Duration retry = kRetry,
                                                    Flush flush = &FileWriter::flush);
  // Does not wait for a disk. The thread still writes the batch it has, if the process lives long enough.
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  // In each round of the loop, call look() to see whether the current batch is written, then write() for the next batch
  // if it is, then watch(). After watch() the end of the current batch wakes the loop.
  void look();
  void write(std::vector<Part> batch);
  // No more text will come. Does nothing while a batch is being written. Then flushes the files, and writes the line
  // about dropped text at once.
  void finish();
  void watch(Poller& poller);
  [[nodiscard]] bool busy() const { return busy_; }  // as of the last look()

  // Bytes of the current batch, as of the last look().
  [[nodiscard]] std::size_t in_hand() const { return in_hand_; }
  // Total number of bytes that the files have taken or that were dropped. It is always current.
  [[nodiscard]] std::size_t taken() const;
  // The first fault, as of the last look().
  [[nodiscard]] const std::optional<Fault>& fault() const { return fault_; }

 private:
  struct State;
  explicit FileWriter(std::shared_ptr<State> state) : state_(std::move(state)) {}
  static void run(State& state);

  const std::shared_ptr<State> state_;  // shared with the thread
  std::size_t files_ = 0;
  bool finished_ = false;
  bool busy_ = false;
  std::size_t in_hand_ = 0;
  std::optional<Fault> fault_;
  std::jthread thread_;
};

}  // namespace distrun::launcher
