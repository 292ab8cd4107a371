#include "runtime/backend/plugin/worker.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <future>

#include "runtime/base/thread.h"

namespace distrun::backend::plugin {

Worker::~Worker() {
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  ring();
  thread_.join();
}

Status Worker::create(TimePoint deadline) {
  bell_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!bell_.valid()) return errno_status("eventfd for a plug-in's thread", errno);
  std::promise<Status> created;
  std::future<Status> result = created.get_future();
  auto thread = named_thread("distrun-plugin", [this, deadline, created = std::move(created)]() mutable {
    const Status status = group_.create(deadline);
    created.set_value(status);
    if (status.ok()) run();
  });
  if (!thread.ok()) return thread.status();
  thread_ = *std::move(thread);
  const Status status = result.get();
  if (!status.ok()) thread_.join();
  return status;
}

void Worker::start(const PluginOperation& operation, std::uint64_t token) {
  group_.host().expect(token);
  {
    const MutexLock lock(mutex_);
    commands_.push_back({.operation = &operation, .token = token});
  }
  ring();
}

void Worker::ring() {
  const eventfd_t one = 1;
  ::eventfd_write(bell_.get(), one);
}

void Worker::run() {
  const int plugin_fd = group_.wait_fd();
  while (run_commands()) wait_for_something(plugin_fd);
  group_.destroy();
}

// Returns false when the thread must end.
bool Worker::run_commands() {
  for (;;) {
    Command command;
    {
      const MutexLock lock(mutex_);
      if (stop_) return false;
      if (commands_.empty()) break;
      command = commands_.front();
      commands_.pop_front();
    }
    const Status status = group_.start(*command.operation, command.token);
    if (status.ok()) continue;
    group_.host().expect(command.token);
    group_.host().complete(command.token, status);
  }
  return true;
}

// Returns after progress, a command or the stop request.
void Worker::wait_for_something(int plugin_fd) {
  const bool busy = group_.has_progress() && group_.host().any_in_flight();
  if (busy && group_.progress()) return;
  const bool polls = busy && plugin_fd < 0;  // such a library makes progress only inside progress()
  pollfd watched[2] = {{.fd = bell_.get(), .events = POLLIN, .revents = 0},
                       {.fd = busy ? plugin_fd : -1, .events = POLLIN, .revents = 0}};
  const int ready = ::poll(watched, 2, polls ? 0 : -1);
  if (ready == 0) std::this_thread::yield();
  eventfd_t rung = 0;
  if ((watched[0].revents & POLLIN) != 0) ::eventfd_read(bell_.get(), &rung);
}

}  // namespace distrun::backend::plugin
