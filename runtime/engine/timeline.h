// The timeline: what happened to each tensor when, of all ranks, in one file that chrome://tracing and Perfetto open.
// Every rank records; the leader writes, and the others ship their events to it in batches. For the token holder.
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/engine/executor.h"
#include "runtime/engine/messages.h"

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

// The file. Valid JSON after every call, so that it can be opened while the job runs and after it was killed.
class TimelineFile {
 public:
  static Result<std::unique_ptr<TimelineFile>> create(const std::string& path, const std::vector<std::string>& hosts);

  [[nodiscard]] const std::string& path() const { return path_; }

  // `offset_ns`: the rank's clock minus ours.
  Status write(int rank, const std::vector<TimelineEvent>& events, std::int64_t offset_ns);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  using File = std::unique_ptr<std::FILE, Close>;
  TimelineFile(std::string path, File file) : path_(std::move(path)), file_(std::move(file)) {}
  Status append(const std::string& objects);
  int lane(int rank, const std::string& tensor, std::string& objects);

  std::string path_;
  File file_;
  bool empty_ = true;
  std::map<std::pair<int, std::string>, int> lanes_;  // by rank and tensor
};

// The difference between a member's clock and the leader's, from pings: the shortest round trip is the best measure.
class ClockOffset {
 public:
  static constexpr int kRounds = 5;
  // All in nanoseconds: sent and received on this clock, `there` on the other. False when enough is known.
  bool measured(std::int64_t sent, std::int64_t there, std::int64_t received);
  [[nodiscard]] std::int64_t value() const { return offset_; }

 private:
  std::int64_t offset_ = 0;
  std::int64_t shortest_ = -1;
  int rounds_ = 0;
};

std::int64_t nanoseconds(TimePoint time);
std::string json_string(const std::string& text);  // quoted; valid JSON whatever the bytes are

}  // namespace distrun::engine
