// --output-dir D: D/rank.<r>.out and .err with each rank's own bytes, and D/merged.log with the tagged lines of all.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/fd.h"
#include "runtime/base/status.h"

namespace distrun::launcher {

class LogFiles {
 public:
  // Makes the directory and opens all files. What they have of an earlier run stays until begin().
  static Result<LogFiles> create(const std::string& directory, int ranks);
  // Ranks are about to start: empties them. What was written to the merged one before comes now; in a job that does not
  // start it comes nowhere. Errors as of write().
  Status begin();

  // The first error is returned once (a full disk does not end the job); after it nothing is written any more.
  Status write(int rank, int stream, std::string_view bytes);
  Status write_merged(std::string_view text);
  [[nodiscard]] bool failed() const { return failed_; }

 private:
  Status put(const Fd& fd, std::string_view bytes);
  Status empty(const Fd& fd);
  std::string directory_;
  std::vector<Fd> files_;  // rank * 2 + stream
  Fd merged_;
  std::string held_;  // of the merged one, until begin()
  bool begun_ = false;
  bool failed_ = false;
};

}  // namespace distrun::launcher
