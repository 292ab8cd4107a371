// --output-dir D: D/rank.<r>.out and .err with the raw bytes of each rank, and D/merged.log with the tagged lines of
// all ranks. Runs in the loop of the head. After create() the disk never blocks that loop.
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
  // Makes the directory and opens all files. They keep the content of an earlier run until begin().
  static Result<LogFiles> create(const std::string& directory, int ranks);
  // Called when ranks are about to start. Empties the files, then writes the text held for the merged file. If the job
  // does not start, that text is dropped.
  void begin();

  void write(int rank, int stream, std::string text);
  void write_merged(std::string text);
  // Call these in each round of the loop, in the order that FileWriter gives.
  void look();
  void finish();
  void watch(Poller& poller);

  // Bytes still to be written. A file that is only to be emptied counts as one byte.
  [[nodiscard]] std::size_t backlog() const { return waiting_bytes_ + (writer_ ? writer_->in_hand() : 0); }
  // Grows with each byte that the disk takes.
  [[nodiscard]] std::size_t taken() const { return writer_ ? writer_->taken() : 0; }
  // Something could not be written.
  [[nodiscard]] bool failed() const { return given_up() || writer_->fault().has_value(); }
  // The first fault. Later ones are not reported.
  [[nodiscard]] Status fault() const;
  // Stops waiting for the disk. Nothing is written afterwards.
  void give_up();
  [[nodiscard]] bool given_up() const { return !writer_; }

 private:
  void put(FileWriter::Part part);
  [[nodiscard]] std::size_t merged() const { return names_.size() - 1; }
  std::vector<std::string> names_;  // index rank * 2 + stream; the last one is the merged file
  std::unique_ptr<FileWriter> writer_;
  std::vector<FileWriter::Part> waiting_;
  std::size_t waiting_bytes_ = 0;
  std::string held_;  // text for the merged file until begin()
  bool begun_ = false;
};

}  // namespace distrun::launcher
