// --output-dir: the raw bytes of each rank in its own files, and the tagged lines of all ranks in one file, in the
// order of writing. Without a folder nothing is written.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/report/destination_watch.h"
#include "launcher/report/lines/line_sink.h"
#include "launcher/report/lines/time_order.h"
#include "launcher/report/log_files.h"

namespace distrun::launcher {

class JobLogs {
 public:
  // `hosts`: by rank.
  static Result<JobLogs> create(const std::string& folder, const std::vector<std::string>& hosts);

  [[nodiscard]] bool on() const { return files_.has_value(); }
  // Called when ranks are about to start. Empties the files of an earlier run.
  void begin();
  void write(int rank, int stream, std::string_view text);
  // Adds a line to the file of all ranks.
  void add(TimePoint written, TimeOrder::Line line);
  // True if lines of this stream wait for the end of another stream's long line.
  [[nodiscard]] bool holds(int stream) const { return sink_.holds(stream); }
  [[nodiscard]] bool failed() const { return files_ && files_->failed(); }
  [[nodiscard]] DestinationState state() const;
  void give_up() { files_->give_up(); }

  // Call both in each round of the loop, look() first.
  void look();
  void tick(TimePoint now);
  // Call this when no more lines will come.
  void flush(TimePoint now);
  // Call this when the files have got all text.
  void finish();
  void watch(Poller& poller);
  [[nodiscard]] std::optional<TimePoint> deadline() const { return earlier(sink_.deadline(), order_.deadline()); }

 private:
  JobLogs(std::optional<LogFiles> files, Duration hold) : files_(std::move(files)), order_(hold) {}
  void put(std::vector<TimeOrder::Line> lines, TimePoint now);
  std::optional<LogFiles> files_;
  TimeOrder order_;
  LineSink sink_{false};
};

}  // namespace distrun::launcher
