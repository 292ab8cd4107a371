// Files of tests: what is in one, and one that goes with the test.
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
  char path_[64] = "/tmp/distrun-test-XXXXXX";  // a name that the tests beside know as no job's
};

}  // namespace distrun::test
