// The timeline: what happened to each tensor when, of all ranks, in one file that chrome://tracing and Perfetto open.
// Every rank records; the leader's writer (timeline_writer.h) has the file, and the others ship their events to it in
// batches. For the token holder, but for the file.
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

// One rank's events that have not been shipped yet.
class TimelineRecorder final : public ExecutionObserver {
 public:
  static constexpr std::size_t kBatch = 1024;  // events of one message
  static constexpr Duration kPatience = std::chrono::seconds(1);

  // Phases NEGOTIATE (submitted to agreed), QUEUE (to started) and the operation's own name (to completed).
  void ran(const Tensor& tensor, TimePoint agreed, TimePoint started, TimePoint ended) override;

  // When the events should be shipped: at once if there are many; never while there are none.
  [[nodiscard]] std::optional<TimePoint> due() const;
  std::vector<TimelineEvent> take();  // at most kBatch
  [[nodiscard]] bool empty() const { return events_.empty(); }

 private:
  void add(const Tensor& tensor, std::string phase, TimePoint from, TimePoint to);
  std::vector<TimelineEvent> events_;
  TimePoint first_;  // recorded since the last take()
};

// The file. Valid JSON after every call, also one that failed, so that it can be opened while the job runs and after it
// was killed. For one thread, which may have to wait for a disk in every call.
class TimelineFile {
 public:
  // `limit`: bytes that it may have, 0 for no limit.
  static Result<std::unique_ptr<TimelineFile>> create(const std::string& path, const std::vector<std::string>& hosts,
                                                      std::uint64_t limit);

  // `offset_ns`: the rank's clock minus ours. The last call is the one that fails: the disk is full, or the limit is
  // reached, which the file says at its end.
  Status write(int rank, const std::vector<TimelineEvent>& events, std::int64_t offset_ns);
  // A mark over all ranks, for whoever looks at the timeline.
  Status mark(const std::string& name, const std::string& why, std::int64_t at_ns);

 private:
  TimelineFile(std::string path, Fd file, std::uint64_t limit, std::size_t ranks)
      : path_(std::move(path)), file_(std::move(file)), limit_(limit), lanes_(ranks) {}
  Status append(const std::string& objects);
  Status end_at_limit(std::int64_t at_ns);
  int lane(int rank, const std::string& tensor, std::string& objects);

  std::string path_;
  Fd file_;  // no std::FILE: the exit of the process would wait for one that a stuck disk holds
  std::uint64_t limit_;
  std::uint64_t size_ = 0;                         // without what completes it
  std::vector<std::map<std::string, int>> lanes_;  // by rank: of each tensor
};

// The difference between a member's clock and the leader's, from pings: the shortest round trip is the best measure.
class ClockOffset {
 public:
  static constexpr int kRounds = 5;
  // Clocks drift apart by some microseconds in each second.
  static constexpr std::int64_t kGoodForNs = 60'000'000'000;
  explicit ClockOffset(std::int64_t offset_ns = 0) : offset_(offset_ns), found_(offset_ns) {}
  // All in nanoseconds: sent and received on this clock, `there` on the other. False when enough is known.
  bool measured(std::int64_t sent, std::int64_t there, std::int64_t received);
  [[nodiscard]] std::int64_t value() const { return offset_; }
  // The last measurement is over, and so long ago that another is due.
  [[nodiscard]] bool outdated(std::int64_t now) const { return rounds_ >= kRounds && now - last_ > kGoodForNs; }
  // From here on it is measured anew; until then the old value is the best there is.
  void measure_again() {
    *this = ClockOffset(offset_);
    known_ = true;
  }

 private:
  std::int64_t offset_;
  std::int64_t found_;  // by the answers so far; an answer that was late on its way is far off
  bool known_ = false;  // once already, so the offset stays until all answers are there
  std::int64_t shortest_ = -1;
  std::int64_t last_ = 0;  // answer, on this clock
  int rounds_ = 0;
};

std::int64_t nanoseconds(TimePoint time);

}  // namespace distrun::engine
