// The timeline: what happened to each tensor and when, for all ranks, in one file for chrome://tracing and Perfetto.
// Every rank records. The leader's writer (timeline_writer.h) has the file, and the other ranks send their events to
// the leader in batches. Only the token holder may use this, except the file.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/status.h"
#include "runtime/engine/protocol/messages.h"
#include "runtime/engine/run/executor.h"

namespace distrun::engine {

// One rank's events that have not been sent yet.
class TimelineRecorder final : public ExecutionObserver {
 public:
  static constexpr std::size_t kBatch = 1024;  // events in one message
  static constexpr Duration kTimeLimit = std::chrono::seconds(1);

  // Adds the phases NEGOTIATE (submitted to agreed), QUEUE (agreed to started) and the operation's own name (started to
  // completed).
  void ran(const Tensor& tensor, TimePoint agreed, TimePoint started, TimePoint ended) override;

  // When the events should be sent: at once if there are many. Empty while there are none.
  [[nodiscard]] std::optional<TimePoint> due() const;
  std::vector<TimelineEvent> take();  // at most kBatch events
  [[nodiscard]] bool empty() const { return events_.empty(); }

 private:
  void add(const Tensor& tensor, std::string phase, TimePoint from, TimePoint to);
  std::vector<TimelineEvent> events_;
  TimePoint first_;  // when the first event since the last take() was recorded
};

// The file. It is valid JSON after every call, even a failed one, so it can be opened while the job runs and after it
// was killed. Only one thread may use it. Every call may block on the disk.
class TimelineFile {
 public:
  // `limit`: the file's maximum size in bytes; 0: no limit.
  static Result<std::unique_ptr<TimelineFile>> create(const std::string& path, const std::vector<std::string>& hosts,
                                                      std::uint64_t limit);

  // `offset_ns`: the rank's clock minus this process's clock. Write nothing after an error: the disk is full, or the
  // limit is reached. In the second case the file says so at its end.
  Status write(int rank, const std::vector<TimelineEvent>& events, std::int64_t offset_ns);
  // A mark across all ranks, for people who read the timeline.
  Status mark(const std::string& name, const std::string& why, std::int64_t at_ns);

 private:
  TimelineFile(std::string path, Fd file, std::uint64_t limit, std::size_t ranks)
      : path_(std::move(path)), file_(std::move(file)), limit_(limit), lanes_(ranks) {}
  Status append(const std::string& objects);
  Status end_at_limit(std::int64_t at_ns);
  int lane(int rank, const std::string& tensor, std::string& objects);

  std::string path_;
  Fd file_;  // not a std::FILE: if a stuck disk blocked it, the exit of the process would wait for it
  std::uint64_t limit_;
  std::uint64_t size_ = 0;                         // without kEnd, which completes the file
  std::vector<std::map<std::string, int>> lanes_;  // by rank: the lane of each tensor
};

// The difference between a member's clock and the leader's, measured with pings. The shortest round trip gives the best
// value.
class ClockOffset {
 public:
  static constexpr int kRounds = 5;
  // After this time a measurement is outdated: clocks drift by some microseconds per second.
  static constexpr std::int64_t kGoodForNs = 60'000'000'000;
  explicit ClockOffset(std::int64_t offset_ns = 0) : offset_(offset_ns), found_(offset_ns) {}
  // All in nanoseconds. `sent` and `received` are on this clock, `there` is on the other. False: no more pings are
  // needed.
  bool measured(std::int64_t sent, std::int64_t there, std::int64_t received);
  [[nodiscard]] std::int64_t value() const { return offset_; }
  // True: the last measurement ended long ago, and another is due.
  [[nodiscard]] bool outdated(std::int64_t now) const { return rounds_ >= kRounds && now - last_ > kGoodForNs; }
  // Starts a new measurement. Until it ends, the old value is used.
  void measure_again() {
    *this = ClockOffset(offset_);
    known_ = true;
  }

 private:
  std::int64_t offset_;
  std::int64_t found_;  // from the answers so far; a delayed answer makes it inaccurate
  bool known_ = false;  // measured before, so the offset stays until all answers are there
  std::int64_t shortest_ = -1;
  std::int64_t last_ = 0;  // time of the last answer, on this clock
  int rounds_ = 0;
};

std::int64_t nanoseconds(TimePoint time);

}  // namespace distrun::engine
