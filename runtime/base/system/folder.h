// Writes files in a directory where other users may create entries too.
#pragma once

#include <string>

#include "runtime/base/fd.h"

namespace distrun {

// Opens and checks the directory once. If its path is changed later, this object still refers to the same directory.
// Safe from any thread.
class Folder {
 public:
  // If the directory cannot be opened, the object is not valid and errno says why.
  explicit Folder(const std::string& path);
  [[nodiscard]] bool valid() const { return directory_.valid(); }

  struct Opened {
    Fd file{};
    int error = 0;         // errno if the file is not valid
    bool refused = false;  // the entry is not a plain file (see open_to_write)
  };
  // `name` has no slash. `how` has the flags of open(2) for writing. If another user may have created the entry, it
  // must be a plain file, or it is refused. A symbolic link could lead to any file of the user, and opening a pipe
  // would block.
  [[nodiscard]] Opened open_to_write(const std::string& name, int how) const;

 private:
  Fd directory_;
  bool trusted_ = false;
};

}  // namespace distrun
