// Files of tests: reading one, and one that is removed with the test.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace distrun::test {

inline std::string slurp(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class TemporaryFile {
 public:
  TemporaryFile() { ::close(::mkstemp(path_)); }
  ~TemporaryFile() { ::unlink(path_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  [[nodiscard]] std::string path() const { return path_; }
  [[nodiscard]] std::string text() const { return slurp(path_); }

 private:
  char path_[64] = "/tmp/distrun-test-XXXXXX";  // this prefix does not look like a job's files to tests that run at the
                                                // same time
};

}  // namespace distrun::test
