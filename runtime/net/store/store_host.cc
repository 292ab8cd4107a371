#include "runtime/net/store/store_host.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>

#include "runtime/base/thread.h"
#include "runtime/net/bytes/open_files.h"
#include "runtime/net/bytes/socket.h"

namespace distrun::net {

Result<std::unique_ptr<StoreHost>> StoreHost::start(const JobKey& key, const std::string& job_id, int size,
                                                    double host_timeout, const Log* log) {
  auto server = StoreServer::create(
      key, {.bind_address = "*:0", .job_id = job_id, .size = size, .host_timeout = host_timeout, .log = log});
  if (!server.ok()) return server.status();
  auto places =
      make_room(static_cast<std::size_t>(size),
                "rank 0, which keeps the store, needs a connection to each of " + std::to_string(size) + " ranks");
  if (!places.ok()) return places.status();
  // A rank that cannot connect to the store could not hear which descriptor rank 0 lacks later.
  (*server)->reserve(*std::move(places));
  const auto address = parse_address((*server)->address());
  if (!address.ok()) return address.status();
  std::unique_ptr<StoreHost> host(new StoreHost(*std::move(server), address->port));
  if (!host->stop_.valid()) return Status(Errc::kSystem, "starting the store: eventfd failed");
  auto thread = named_thread("distrun-store", [self = host.get()] { self->serve(); });
  if (!thread.ok()) return thread.status();
  host->thread_ = *std::move(thread);
  return host;
}

StoreHost::StoreHost(std::unique_ptr<StoreServer> server, std::uint16_t port)
    : port_(port), stop_(Fd(::eventfd(0, EFD_CLOEXEC))), server_(std::move(server)) {}

StoreHost::~StoreHost() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(stop_.get(), &one, sizeof(one));
}

void StoreHost::serve() {
  for (;;) {
    std::array<pollfd, 2> items{
        {{.fd = server_->fd(), .events = POLLIN, .revents = 0}, {.fd = stop_.get(), .events = POLLIN, .revents = 0}}};
    ::poll(items.data(), items.size(), -1);
    if (items[1].revents != 0) return;
    progress();
  }
}

void StoreHost::progress() {
  server_->progress(Clock::now());
  const MutexLock lock(mutex_);
  for (const StoreNotice& notice : server_->take_notices()) {
    if (const auto event = judge_.decide(notice)) {
      server_->publish(*event);
      published_ = true;
    }
  }
  changed_.notify_all();
}

void StoreHost::wait_until_empty(TimePoint deadline) {
  const MutexLock lock(mutex_);
  while (judge_.in_session() > 0 && Clock::now() < deadline) changed_.wait_until(mutex_, deadline);
}

void StoreHost::wait_until_published(TimePoint deadline) {
  const MutexLock lock(mutex_);
  while (!published_ && Clock::now() < deadline) changed_.wait_until(mutex_, deadline);
}

}  // namespace distrun::net
