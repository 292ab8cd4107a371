#include "runtime/engine/monitoring/timeline_writer.h"

#include <condition_variable>
#include <deque>
#include <exception>

#include "runtime/base/annotations.h"
#include "runtime/base/thread.h"
#include "runtime/engine/monitoring/timeline.h"

namespace distrun::engine {
namespace {

std::size_t bytes_of(const std::vector<TimelineEvent>& events) {
  std::size_t bytes = events.size() * sizeof(TimelineEvent);
  for (const TimelineEvent& event : events) bytes += event.tensor.size() + event.phase.size();
  return bytes;
}

}  // namespace

struct TimelineWriter::State {
  struct Batch {
    int rank = 0;
    std::vector<TimelineEvent> events;
    std::int64_t offset_ns = 0;
    std::size_t bytes = 0;
  };

  struct Dropped {
    std::size_t events = 0;
    std::int64_t at_ns = 0;  // time of the first of them
  };

  std::unique_ptr<TimelineFile> file;  // only the thread uses it
  Mutex mutex;
  std::condition_variable_any changed;
  std::deque<Batch> queue DISTRUN_GUARDED_BY(mutex);
  std::size_t bytes DISTRUN_GUARDED_BY(mutex) = 0;  // queued, or being written by the thread
  Dropped dropped DISTRUN_GUARDED_BY(mutex);        // not yet reported in the file
  Status failure DISTRUN_GUARDED_BY(mutex);         // not yet returned to a caller
  bool ending DISTRUN_GUARDED_BY(mutex) = false;    // no more events are queued
  bool finished DISTRUN_GUARDED_BY(mutex) = false;  // the owner has called finish()
  bool done DISTRUN_GUARDED_BY(mutex) = false;      // the thread has closed the file

  bool wait_and_take(Batch& batch, Dropped& lost);
  Status write(const Batch& batch, const Dropped& lost) const;
  void written(const Batch& batch, const Status& status);
  void close();
};

// False if the queue is empty and nothing more will come.
bool TimelineWriter::State::wait_and_take(Batch& batch, Dropped& lost) {
  batch = {};  // frees its memory without the mutex, which the engine's turn takes
  const MutexLock lock(mutex);
  // condition_variable::wait needs GLIBCXX_3.4.30, which is newer than the wheel may require.
  while (queue.empty() && dropped.events == 0 && !ending) changed.wait_until(mutex, TimePoint::max());
  if (queue.empty() && dropped.events == 0) return false;
  if (!queue.empty()) {
    batch = std::move(queue.front());
    queue.pop_front();
  }
  lost = std::exchange(dropped, {});
  return true;
}

// If memory runs out, the timeline ends and the job continues.
Status TimelineWriter::State::write(const Batch& batch, const Dropped& lost) const {
  try {
    DISTRUN_RETURN_IF_ERROR(file->write(batch.rank, batch.events, batch.offset_ns));
    if (lost.events == 0) return {};
    return file->mark(std::to_string(lost.events) + " EVENTS DROPPED", "they came faster than the disk can write them",
                      lost.at_ns);
  } catch (const std::exception& error) {
    return {Errc::kOutOfMemory, std::string("timeline: ") + error.what()};
  }
}

void TimelineWriter::State::written(const Batch& batch, const Status& status) {
  std::deque<Batch> given_up;  // freed without the mutex
  const MutexLock lock(mutex);
  bytes -= batch.bytes;
  if (status.ok()) return;
  failure = status;
  ending = true;
  given_up.swap(queue);
  dropped = {};
}

// Closing may block on the disk too.
void TimelineWriter::State::close() {
  file.reset();
  const MutexLock lock(mutex);
  done = true;
  changed.notify_all();
}

void TimelineWriter::run(State& state) {
  State::Batch batch;
  State::Dropped lost;
  while (state.wait_and_take(batch, lost)) state.written(batch, state.write(batch, lost));
  state.close();
}

Result<TimelineWriterPtr> TimelineWriter::create(const std::string& path, const std::vector<std::string>& hosts,
                                                 std::uint64_t limit) {
  auto file = TimelineFile::create(path, hosts, limit);
  if (!file.ok()) return file.status();
  auto state = std::make_shared<State>();
  state->file = *std::move(file);
  TimelineWriterPtr writer(new TimelineWriter(path, state));  // the constructor is private
  auto thread = named_thread("distrun-trace", [state] { run(*state); });
  if (!thread.ok()) return thread.status();
  writer->thread_ = *std::move(thread);
  return writer;
}

TimelineWriter::~TimelineWriter() {
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(state_->mutex);
    state_->ending = true;
    state_->changed.notify_all();
  }
  thread_.detach();
}

Status TimelineWriter::write(int rank, std::vector<TimelineEvent> events, std::int64_t offset_ns) {
  if (events.empty()) return {};
  const std::size_t bytes = bytes_of(events);
  const MutexLock lock(state_->mutex);
  if (state_->finished) return {Errc::kShutDown, "timeline: '" + path_ + "' is finished already"};
  if (!state_->failure.ok()) return std::exchange(state_->failure, {});
  if (state_->ending) return {};
  if (state_->bytes + bytes > kMostQueued) {
    if (state_->dropped.events == 0) state_->dropped.at_ns = events.front().start_ns - offset_ns;
    state_->dropped.events += events.size();
    return {};
  }
  state_->bytes += bytes;
  state_->queue.push_back({.rank = rank, .events = std::move(events), .offset_ns = offset_ns, .bytes = bytes});
  state_->changed.notify_all();
  return {};
}

Status TimelineWriter::finish(TimePoint deadline) {
  Status status;
  bool done = false;
  std::deque<State::Batch> given_up;  // freed without the mutex
  {
    const MutexLock lock(state_->mutex);
    state_->ending = state_->finished = true;
    state_->changed.notify_all();
    while (!state_->done) {
      if (state_->changed.wait_until(state_->mutex, deadline) == std::cv_status::timeout) break;
    }
    done = state_->done;
    status = std::exchange(state_->failure, {});
    if (!done) {
      given_up.swap(state_->queue);
      state_->dropped = {};
    }
  }
  if (done) {
    thread_.join();
    return status;
  }
  thread_.detach();
  return {Errc::kTimeout,
          "timeline: '" + path_ + "' is not complete: its disk did not write the rest in time. Is it reachable?"};
}

}  // namespace distrun::engine
