// Keeps the timeline's file away from the loop: a disk may be slow, or stuck for good (a file server that is gone), and
// nobody can end a thread that waits for it. So the file belongs to a thread of its own, `distrun-trace`, that sleeps
// while there is nothing to write. It shares nothing with anybody but the queue, which it owns too, so it can be left
// behind; the library stays loaded (runtime/api/CMakeLists.txt).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/engine/protocol/messages.h"

namespace distrun::engine {

class TimelineWriter {
 public:
  static constexpr std::size_t kMostQueued = std::size_t{64} << 20;  // bytes; what comes on top is dropped and counted

  // Opens the file, so on a caller's thread. As TimelineFile::create.
  static Result<std::shared_ptr<TimelineWriter>> create(const std::string& path, const std::vector<std::string>& hosts,
                                                        std::uint64_t limit);
  ~TimelineWriter();  // waits for nothing; what is queued is still written if the process lives so long
  TimelineWriter(const TimelineWriter&) = delete;
  TimelineWriter& operator=(const TimelineWriter&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

  // Any thread; never waits for the disk. Not ok: an earlier write failed and nothing more is written, which is told
  // once, here or by finish(); or, kShutDown, finish() has been called.
  Status write(int rank, std::vector<TimelineEvent> events, std::int64_t offset_ns);

  // Once, on a caller's thread: writes what is queued and closes the file. kTimeout: the disk has not taken it by then;
  // what it has not taken is given up.
  Status finish(TimePoint deadline);

 private:
  struct State;
  TimelineWriter(std::string path, std::shared_ptr<State> state) : path_(std::move(path)), state_(std::move(state)) {}
  static void run(State& state);

  const std::string path_;
  const std::shared_ptr<State> state_;  // with the thread
  std::jthread thread_;
};

using TimelineWriterPtr = std::shared_ptr<TimelineWriter>;

}  // namespace distrun::engine
