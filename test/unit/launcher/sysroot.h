// A directory tree for tests that read /proc and /sys, removed at the end.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace distrun::launcher::test {

class Sysroot {
 public:
  Sysroot() {
    std::string name = (std::filesystem::temp_directory_path() / "distrun-test-sysroot-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~Sysroot() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Sysroot(const Sysroot&) = delete;
  Sysroot& operator=(const Sysroot&) = delete;

  [[nodiscard]] std::string path() const { return path_ + "/"; }
  void write(const std::string& file, const std::string& text) const {
    const std::filesystem::path full = path_ + "/" + file;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  [[nodiscard]] std::string read(const std::string& file) const {
    std::ifstream in(path_ + "/" + file);
    return {std::istreambuf_iterator<char>(in), {}};
  }

 private:
  std::string path_;
};

}  // namespace distrun::launcher::test
