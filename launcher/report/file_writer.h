// Keeps files away from the head's loop: a disk may be slow, or stuck for good (a file server that is gone), and nobody
// can end a thread that waits for it, while agents that hear nothing end their ranks. So the files belong to a thread
// of their own, `distrun-files`, that sleeps while there is nothing to write. It shares nothing with anybody but what
// is in State, which it owns too, so it can be left behind. It has one batch at a time: what comes meanwhile stays with
// the owner of the FileWriter, who so sees how far behind the disk is. All functions are for that owner's thread.
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
  // A file that takes nothing (a full disk) is left alone for so long; what comes meanwhile is dropped, and a line in
  // the file then says how much that was.
  static constexpr Duration kRetry = std::chrono::seconds(10);

  struct Part {
    std::size_t file = 0;  // number, as given to create()
    std::string text{};
    bool empty_first = false;  // what the file has so far goes
    bool last = false;         // of finish()
  };
  // In bytes; what has no text is work too.
  static std::size_t size_of(const Part& part) { return std::max(part.text.size(), std::size_t{1}); }
  struct Fault {
    std::size_t file = 0;
    int error = 0;
    bool emptying = false;  // it is not empty; all else is as ever
  };

  // 0, or -1 and errno: what a file system that keeps text back (NFS) says of it when a descriptor is closed (a quota).
  using Settle = int (*)(int fd);
  static int settle(int fd);

  static Result<std::unique_ptr<FileWriter>> create(std::vector<Fd> files, Duration retry = kRetry,
                                                    Settle settle = &FileWriter::settle);
  ~FileWriter();  // waits for no disk; what the thread has in hand is still written if the process lives so long
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  // In each round of the loop: first look() whether the batch in hand has been written, then write() the next one if it
  // has, then watch(), by which the end of the one in hand wakes the loop.
  void look();
  void write(std::vector<Part> batch);
  // No more text will come. Nothing while a batch is in hand; then files settle, and where something was dropped, a
  // file gets its line that says so, however soon after the fault.
  void finish();
  void watch(Poller& poller);
  [[nodiscard]] bool busy() const { return busy_; }  // as of the last look

  // Bytes of the batch in hand, as of the last look.
  [[nodiscard]] std::size_t in_hand() const { return in_hand_; }
  // Grows with all that files take, or that is dropped, up to now.
  [[nodiscard]] std::size_t taken() const;
  // The first one, as of the last look.
  [[nodiscard]] const std::optional<Fault>& fault() const { return fault_; }

 private:
  struct State;
  explicit FileWriter(std::shared_ptr<State> state) : state_(std::move(state)) {}
  static void run(State& state);

  const std::shared_ptr<State> state_;  // with the thread
  std::size_t files_ = 0;
  bool finished_ = false;
  bool busy_ = false;
  std::size_t in_hand_ = 0;
  std::optional<Fault> fault_;
  std::jthread thread_;
};

}  // namespace distrun::launcher
