#include "runtime/net/bytes/open_files.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include <cerrno>

namespace distrun::net {

Result<std::vector<Fd>> make_room(std::size_t count, const std::string& need) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return errno_status("getrlimit failed", errno);
  limit.rlim_cur = limit.rlim_max - limit.rlim_cur > count ? limit.rlim_cur + count : limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  std::vector<Fd> places;
  for (std::size_t i = 0; i < count; ++i) {
    places.emplace_back(i == 0 ? ::eventfd(0, EFD_CLOEXEC) : ::fcntl(places.front().get(), F_DUPFD_CLOEXEC, 0));
    if (places.back().valid()) continue;
    return Status(Errc::kSystem, need + ", but it can open only " + std::to_string(i) +
                                     " more files. Raise the limit `ulimit -Hn`, which is " +
                                     std::to_string(limit.rlim_max));
  }
  return places;
}

}  // namespace distrun::net
