#include "runtime/backend/nccl/lane.h"

#include <poll.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "runtime/base/thread.h"

namespace distrun::backend::nccl_plugin {
namespace {

// NCCL reports a broken connection only when it is queried.
constexpr int kWatchMilliseconds = 100;
// Interval while members connect. This takes long, and NCCL has nothing to wait on.
constexpr int kSoonMilliseconds = 1;

int milliseconds_of(Lane::Next next) {
  switch (next) {
    case Lane::Next::kNow:
      return 0;
    case Lane::Next::kSoon:
      return kSoonMilliseconds;
    case Lane::Next::kWatch:
      return kWatchMilliseconds;
    case Lane::Next::kWhenRung:
      return -1;
  }
  return 0;
}

}  // namespace

Lane::~Lane() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  wake();
  if (thread_.joinable()) thread_.join();
}

Status Lane::start_thread() {
  auto thread = named_thread("distrun-cuda" + std::to_string(gpu_->index()), [this] { run(); });
  if (!thread.ok()) return thread.status();
  thread_ = *std::move(thread);
  return {};
}

void Lane::run() {
  const Current scope = gpu_->current();
  for (;;) {
    const Next next = turn();
    {
      const MutexLock lock(mutex_);
      if (stop_) return;
    }
    pollfd bell = {.fd = gpu_->bell(), .events = POLLIN, .revents = 0};
    const int rung = ::poll(&bell, 1, milliseconds_of(next));
    if (rung > 0) gpu_->clear_bell();
    if (next == Next::kNow) std::this_thread::yield();
  }
}

void Lane::submit(LaneGroup& lane_group, const distrun_backend_operation& operation, std::uint64_t token) {
  lane_group.in_flight.fetch_add(1);
  {
    const MutexLock lock(mutex_);
    new_tasks_.push_back({.lane_group = &lane_group, .operation = &operation, .token = token});
  }
  wake();
}

std::future<void> Lane::leave(std::shared_ptr<LaneGroup> lane_group) {
  Leaving leaving{.lane_group = std::move(lane_group), .idle = {}};
  std::future<void> result = leaving.idle.get_future();
  leaving.idle_set = leaving.lane_group->in_flight.load() == 0;
  if (leaving.idle_set) leaving.idle.set_value();
  {
    const MutexLock lock(mutex_);
    new_leaving_.push_back(std::move(leaving));
  }
  wake();
  return result;
}

void Lane::give_up() {
  {
    const MutexLock lock(mutex_);
    give_up_ = true;
  }
  wake();
}

std::future<void> Lane::close_all(TimePoint deadline) {
  Closing closing{.closed = {}, .deadline = deadline};
  std::future<void> result = closing.closed.get_future();
  {
    const MutexLock lock(mutex_);
    new_closing_.push_back(std::move(closing));
  }
  wake();
  return result;
}

Lane::Next Lane::turn() {
  take_new();
  take_back_failed();
  const Next next = advance();
  bool moved = retire();
  watch();
  moved = let_go() || moved;
  if (moved || next == Next::kNow) return Next::kNow;
  if (next == Next::kSoon || !closing_.empty()) return Next::kSoon;
  return running_.empty() && leaving_.empty() ? Next::kWhenRung : Next::kWatch;
}

void Lane::take_new() {
  bool gives_up = false;
  {
    const MutexLock lock(mutex_);
    std::ranges::move(new_tasks_, std::back_inserter(waiting_));
    new_tasks_.clear();
    std::ranges::move(new_leaving_, std::back_inserter(leaving_));
    new_leaving_.clear();
    std::ranges::move(new_closing_, std::back_inserter(closing_));
    new_closing_.clear();
    gives_up = std::exchange(give_up_, false);
  }
  if (!gives_up) return;
  for (const Leaving& one : leaving_) fail(*one.lane_group, {Errc::kAborted, "the job was aborted"});
}

void Lane::take_back_failed() {
  for (const std::deque<Task>* tasks : {&waiting_, &running_}) {
    for (const Task& task : *tasks) {
      if (!task.lane_group->failure.ok()) continue;
      if (const Status why = task.lane_group->aborted.why(); !why.ok()) fail(*task.lane_group, why);
    }
  }
  for (const Leaving& one : leaving_) {
    if (has_tasks(*one.lane_group)) fail(*one.lane_group, {Errc::kAborted, "the group was closed"});
    // Its peers will not close their communicators with it.
    if (const Status why = one.lane_group->aborted.why(); !why.ok()) fail(*one.lane_group, why);
  }
}

// Also fails every other group with work on the device, because the others make no progress while one communicator is
// aborted. After a task has failed, no task continues.
void Lane::fail(LaneGroup& lane_group, const Status& why) {
  if (!lane_group.failure.ok()) return;
  lane_group.failure = why;
  std::vector<Communicator*> gone = {&lane_group.communicator};
  for (const std::deque<Task>* tasks : {&waiting_, &running_}) {
    for (const Task& task : *tasks) {
      if (task.stage == Stage::kQueued || !task.lane_group->failure.ok()) continue;
      task.lane_group->failure = why;
      gone.push_back(&task.lane_group->communicator);
    }
  }
  abort_together(std::move(gone), *gpu_);
}

// Moves tasks from the queue to the stream, until one has to wait.
Lane::Next Lane::advance() {
  while (!waiting_.empty()) {
    if (const Next next = step(waiting_.front()); next != Next::kWhenRung) return next;
    if (waiting_.front().stage == Stage::kRunning) running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  return Next::kWhenRung;
}

// kWhenRung: the task has left the queue. It is on the stream, or it has ended.
Lane::Next Lane::step(Task& task) {
  LaneGroup& lane_group = *task.lane_group;
  if (task.stage == Stage::kQueued) {
    if (!lane_group.failure.ok()) {
      complete(task, lane_group.failure);
      return Next::kWhenRung;
    }
    if (lane_group.communicator.is_new() && !running_.empty()) return Next::kWatch;
    const auto connected = lane_group.communicator.connect();
    if (!connected.ok()) {
      fail(lane_group, connected.status());
      return Next::kNow;
    }
    return *connected ? launch(task) : Next::kSoon;
  }
  if (lane_group.failure.ok()) {
    const auto taken = lane_group.communicator.accepted();
    if (taken.ok() && !*taken) return Next::kNow;
    const Status status = taken.ok() ? task.calls->finish() : taken.status();
    if (!status.ok()) fail(lane_group, status);
  }
  to_running(task);
  return Next::kWhenRung;
}

Lane::Next Lane::launch(Task& task) {
  LaneGroup& lane_group = *task.lane_group;
  const auto members = static_cast<std::size_t>(lane_group.spec.members);
  task.calls = std::make_unique<NcclOperation>(*gpu_, lane_group.communicator.nccl(), *task.operation, members,
                                               static_cast<std::size_t>(lane_group.spec.index));
  task.stage = Stage::kTaken;
  if (const Status status = task.calls->start(lane_group.communicator.get()); !status.ok()) fail(lane_group, status);
  return step(task);
}

// Called for failed tasks too, because some of their work may be on the stream. If its end cannot be determined, the
// process has lost the device, and the device touches nothing.
void Lane::to_running(Task& task) {
  task.stage = Stage::kRunning;
  const auto end = gpu_->end_of_work();
  if (end.ok()) {
    task.end = *end;
  } else {
    fail(*task.lane_group, end.status());
  }
}

// Completes the tasks whose work on the stream has ended. Returns true if there was one.
bool Lane::retire() {
  bool any = false;
  while (!running_.empty()) {
    Task& task = running_.front();
    if (task.end != nullptr) {
      const auto reached = gpu_->reached(task.end);
      if (reached.ok() && !*reached) break;
      if (!reached.ok()) fail(*task.lane_group, reached.status());
      gpu_->give_back(task.end);
    }
    complete(task, task.lane_group->failure);
    running_.pop_front();
    any = true;
  }
  return any;
}

void Lane::watch() {
  for (const Task& task : running_) {
    if (!task.lane_group->failure.ok()) continue;
    const auto accepted = task.lane_group->communicator.accepted();
    if (!accepted.ok()) fail(*task.lane_group, accepted.status());
  }
}

bool Lane::let_go() {
  const std::size_t before = leaving_.size();
  const bool late =
      std::ranges::any_of(closing_, [now = Clock::now()](const Closing& one) { return now >= one.deadline; });
  std::vector<Communicator*> gone;
  for (const Leaving& one : leaving_) {
    if (late && !has_tasks(*one.lane_group)) gone.push_back(&one.lane_group->communicator);
  }
  abort_together(std::move(gone), *gpu_);
  std::erase_if(leaving_, [this](Leaving& one) {
    if (has_tasks(*one.lane_group)) return false;
    if (!std::exchange(one.idle_set, true)) one.idle.set_value();
    return one.lane_group->communicator.close(running_.empty());
  });
  if (leaving_.empty()) {
    for (Closing& one : closing_) one.closed.set_value();
    closing_.clear();
  }
  return leaving_.size() != before;
}

void Lane::complete(Task& task, const Status& status) {
  LaneGroup& lane_group = *task.lane_group;
  lane_group.host.complete(task.token, status);
  lane_group.in_flight.fetch_sub(1);
}

bool Lane::has_tasks(const LaneGroup& lane_group) const {
  const auto of_group = [&lane_group](const Task& task) { return task.lane_group == &lane_group; };
  return std::ranges::any_of(waiting_, of_group) || std::ranges::any_of(running_, of_group);
}

}  // namespace distrun::backend::nccl_plugin
