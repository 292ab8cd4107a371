// Keeps the timeline's file away from the loop. A disk may be slow, or stuck for good (a file server that is gone), and
// a thread that waits for it cannot be ended. So a separate thread, `distrun-trace`, has the file, and sleeps while
// there is nothing to write. It shares only the queue, which it also owns, so it can be abandoned. The library stays
// loaded (runtime/api/CMakeLists.txt).
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
  // bytes; events beyond this are dropped and counted
  static constexpr std::size_t kMostQueued = std::size_t{64} << 20;

  // Opens the file, so call it on a caller's thread. Arguments as for TimelineFile::create.
  static Result<std::shared_ptr<TimelineWriter>> create(const std::string& path, const std::vector<std::string>& hosts,
                                                        std::uint64_t limit);
  ~TimelineWriter();  // does not wait; queued events are still written if the process lives long enough
  TimelineWriter(const TimelineWriter&) = delete;
  TimelineWriter& operator=(const TimelineWriter&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

  // Any thread. Never waits for the disk. Not ok: an earlier write failed, and nothing more is written. This error is
  // returned once, here or by finish(). kShutDown: finish() has been called.
  Status write(int rank, std::vector<TimelineEvent> events, std::int64_t offset_ns);

  // Call this once, on a caller's thread. Writes the queued events and closes the file. kTimeout: the disk has not
  // taken all of them by the deadline; the rest is dropped.
  Status finish(TimePoint deadline);

 private:
  struct State;
  TimelineWriter(std::string path, std::shared_ptr<State> state) : path_(std::move(path)), state_(std::move(state)) {}
  static void run(State& state);

  const std::string path_;
  const std::shared_ptr<State> state_;  // shared with the thread
  std::jthread thread_;
};

using TimelineWriterPtr = std::shared_ptr<TimelineWriter>;

}  // namespace distrun::engine
