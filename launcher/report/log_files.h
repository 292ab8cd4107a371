// --output-dir D: D/rank.<r>.out and .err with each rank's own bytes, and D/merged.log with the tagged lines of all.
// For the head's loop, which the disk never blocks once the files are open.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/report/file_writer.h"
#include "runtime/base/status.h"

namespace distrun::launcher {

class LogFiles {
 public:
  // Makes the directory and opens all files. What they have of an earlier run stays until begin().
  static Result<LogFiles> create(const std::string& directory, int ranks);
  // Ranks are about to start: empties them. What was written to the merged one before comes now; in a job that does not
  // start it comes nowhere.
  void begin();

  void write(int rank, int stream, std::string text);
  void write_merged(std::string text);
  // In each round of the loop: FileWriter's.
  void look();
  void finish();
  void watch(Poller& poller);

  // Bytes that are still to be written, one for each file that is only to be emptied.
  [[nodiscard]] std::size_t backlog() const { return waiting_bytes_ + (writer_ ? writer_->in_hand() : 0); }
  // Grows with what the disk takes.
  [[nodiscard]] std::size_t taken() const { return writer_ ? writer_->taken() : 0; }
  // Something could not be written.
  [[nodiscard]] bool failed() const { return given_up() || writer_->fault().has_value(); }
  // The first thing that could not; later ones are not told.
  [[nodiscard]] Status fault() const;
  // The disk is waited for no longer, and nothing is written any more.
  void give_up();
  [[nodiscard]] bool given_up() const { return !writer_; }

 private:
  void put(FileWriter::Part part);
  [[nodiscard]] std::size_t merged() const { return names_.size() - 1; }
  std::vector<std::string> names_;  // number rank * 2 + stream; the merged one is the last
  std::unique_ptr<FileWriter> writer_;
  std::vector<FileWriter::Part> waiting_;
  std::size_t waiting_bytes_ = 0;
  std::string held_;  // of the merged one, until begin()
  bool begun_ = false;
};

}  // namespace distrun::launcher
