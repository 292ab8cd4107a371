#include "runtime/net/bytes/wait_set.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/base/system/fork_guard.h"
#include "runtime/net/bytes/socket.h"

namespace distrun::net {
namespace {

constexpr int kBatch = 64;

int epoll_milliseconds(TimePoint until) { return until == TimePoint::max() ? -1 : poll_timeout_ms(until); }

class EpollWaitSet : public WaitSet {
 public:
  EpollWaitSet(Fd epoll, Fd event) : epoll_(std::move(epoll)), event_(std::move(event)) {}

  Status watch_event() { return control(EPOLL_CTL_ADD, event_.get(), EPOLLIN); }

  Status add(int fd, std::uint32_t events, Callback on_ready) override {
    DISTRUN_RETURN_IF_ERROR(control(EPOLL_CTL_ADD, fd, events));
    callbacks_[fd] = std::make_shared<Callback>(std::move(on_ready));
    return {};
  }

  Status modify(int fd, std::uint32_t events) override { return control(EPOLL_CTL_MOD, fd, events); }

  void remove(int fd) override {
    if (callbacks_.erase(fd) > 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  }

  void add_link(int fd, LinkWatch watch) override { links_.add(fd, std::move(watch)); }
  void remove_link(int fd) override { links_.remove(fd); }

  void add_sleepable(Sleepable* sleepable) override { sleepables_.push_back(sleepable); }
  void remove_sleepable(Sleepable* sleepable) override { std::erase(sleepables_, sleepable); }

  Result<int> poll(TimePoint until, const LookAgain& check_again) override {
    Result<Round> round = wait(0);
    if (!round.ok()) return round.status();
    links_.used();
    look_at_links(*round);
    if (round->any() || until <= Clock::now()) return round->callbacks;
    for (Sleepable* sleepable : sleepables_) sleepable->arm();
    const bool found_work = check_again && check_again();
    if (!found_work) round = block(until);
    for (Sleepable* sleepable : sleepables_) sleepable->disarm();
    if (!round.ok()) return round.status();
    return round->callbacks;
  }

  void wake() override {
    const std::uint64_t one = 1;
    // This fails only if the counter is full, and then the wait set is awake anyway.
    [[maybe_unused]] const ssize_t written = ::write(event_.get(), &one, sizeof(one));
  }

 private:
  struct Round {
    int callbacks = 0;
    bool woken = false;
    [[nodiscard]] bool any() const { return woken || callbacks > 0; }
  };

  Status control(int operation, int fd, std::uint32_t events) {
    epoll_event event = {};
    event.events = events;
    event.data.fd = fd;
    if (::epoll_ctl(epoll_.get(), operation, fd, &event) == 0) return {};
    return errno_status("watching descriptor " + std::to_string(fd), errno);
  }

  // At most once a second, and not at all if there is nothing to watch.
  void look_at_links(Round& round) {
    if (links_.due() == TimePoint::max()) return;
    if (const TimePoint now = Clock::now(); links_.due() <= now) round.callbacks += links_.look(now);
  }

  Result<Round> block(TimePoint until) {
    for (;;) {
      const TimePoint next = std::min(until, links_.due());
      Result<Round> round = wait(epoll_milliseconds(next));
      if (!round.ok() || round->any()) return round;
      look_at_links(*round);
      if (round->any() || Clock::now() >= until) return round;
    }
  }

  Result<Round> wait(int milliseconds) {
    std::array<epoll_event, kBatch> events;
    const int count = ::epoll_wait(epoll_.get(), events.data(), kBatch, milliseconds);
    if (count < 0 && errno == EINTR) return Status(Errc::kInterrupted, "a signal arrived during the wait");
    if (count < 0) return errno_status("epoll_wait", errno);
    Round round;
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      if (event.data.fd == event_.get()) {
        std::uint64_t ignored = 0;
        [[maybe_unused]] const ssize_t drained = ::read(event_.get(), &ignored, sizeof(ignored));
        round.woken = true;
        continue;
      }
      // An earlier callback of this round may have removed this descriptor. A running callback may remove its own.
      const auto found = callbacks_.find(event.data.fd);
      if (found == callbacks_.end()) continue;
      const std::shared_ptr<Callback> callback = found->second;
      (*callback)(event.events);
      ++round.callbacks;
    }
    return round;
  }

  GuardedFd epoll_;
  GuardedFd event_;
  std::unordered_map<int, std::shared_ptr<Callback>> callbacks_;
  std::vector<Sleepable*> sleepables_;
  LinkWatches links_;
};

}  // namespace

Result<std::unique_ptr<WaitSet>> WaitSet::create() {
  Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return errno_status("epoll_create1", errno);
  Fd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event.valid()) return errno_status("eventfd", errno);
  auto wait_set = std::make_unique<EpollWaitSet>(std::move(epoll), std::move(event));
  DISTRUN_RETURN_IF_ERROR(wait_set->watch_event());
  return std::unique_ptr<WaitSet>(std::move(wait_set));
}

}  // namespace distrun::net
