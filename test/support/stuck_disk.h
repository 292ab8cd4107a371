// A named pipe that behaves like a stuck disk: it takes a few bytes and no more until a test reads them.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>
#include <thread>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/status.h"

namespace distrun::test {

class StuckDisk {
 public:
  StuckDisk() {
    const bool made = ::mkdtemp(folder_) != nullptr && ::mkfifo(path().c_str(), 0600) == 0;
    DISTRUN_CHECK(made, "a pipe with a name");
    reader_.reset(::open(path().c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    size_ = ::fcntl(reader_.get(), F_SETPIPE_SZ, 4096);
    DISTRUN_CHECK(size_ >= 4096, "a small pipe");
  }
  // A writer that still writes gets an error, and so ends.
  ~StuckDisk() {
    ::unlink(path().c_str());
    ::rmdir(folder_);
  }
  StuckDisk(const StuckDisk&) = delete;
  StuckDisk& operator=(const StuckDisk&) = delete;

  [[nodiscard]] std::string path() const { return std::string(folder_) + "/t.json"; }

  // Waits until a writer has filled the pipe and is blocked.
  void wait_until_full() const {
    const TimePoint until = deadline_after(30);
    int held = 0;
    while (held < size_ && Clock::now() < until) {
      DISTRUN_CHECK(::ioctl(reader_.get(), FIONREAD, &held) == 0, "FIONREAD of a pipe");
      std::this_thread::yield();
    }
    DISTRUN_CHECK(held == size_, "a full pipe");
  }

  // Reads everything until the writer closes the pipe.
  std::string read_all() {
    std::string text;
    std::array<char, 65536> part;
    for (;;) {
      pollfd watched{.fd = reader_.get(), .events = POLLIN, .revents = 0};
      ::poll(&watched, 1, -1);
      const ssize_t got = ::read(reader_.get(), part.data(), part.size());
      if (got <= 0) return text;
      text.append(part.data(), static_cast<std::size_t>(got));
    }
  }

 private:
  char folder_[64] = "/tmp/distrun-test-XXXXXX";
  Fd reader_;
  int size_ = 0;
};

}  // namespace distrun::test
