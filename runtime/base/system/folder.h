// Files that are written by name in a folder where others may make names too.
#pragma once

#include <string>

#include "runtime/base/fd.h"

namespace distrun {

// Looked up and judged once: who changes the names that led to it afterwards leads nobody elsewhere. Any thread.
class Folder {
 public:
  // Not valid, with errno, where there is none.
  explicit Folder(const std::string& path);
  [[nodiscard]] bool valid() const { return directory_.valid(); }

  struct Opened {
    Fd file{};
    int error = 0;         // errno where the file is not valid
    bool refused = false;  // as below
  };
  // `name` has no slash; `how`: open's flags for writing. Where somebody else may have made the name, a link would lead
  // to any file of the user's and a pipe would block, so both are refused, and what else is no plain file.
  [[nodiscard]] Opened open_to_write(const std::string& name, int how) const;

 private:
  Fd directory_;
  bool trusted_ = false;
};

}  // namespace distrun
