// The one place where a rank's engine blocks. It waits here for messages and deaths of peers, the launcher, new
// submissions and deadlines. Only the holder of the progress token calls these methods; wake() is safe from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/net/bytes/link_watches.h"

namespace distrun::net {

// A source of work that is polled in memory (doorbells in shared memory). Its peers must know when its owner stops
// polling. After arm(), a peer that rings sends a real wake-up through a watched descriptor. arm() does not look for
// work. The look that follows it finds whatever was written before (see WaitSet::poll).
class Sleepable {
 public:
  virtual ~Sleepable() = default;
  virtual void arm() = 0;
  virtual void disarm() = 0;
};

class WaitSet {
 public:
  using Callback = std::function<void(std::uint32_t epoll_events)>;

  static Result<std::unique_ptr<WaitSet>> create();
  virtual ~WaitSet() = default;

  // `events` are those of epoll (EPOLLIN | EPOLLOUT), level-triggered. The callback runs inside poll(). It may add,
  // modify and remove descriptors, including `fd` itself.
  virtual Status add(int fd, std::uint32_t events, Callback on_ready) = 0;
  virtual Status modify(int fd, std::uint32_t events) = 0;
  virtual void remove(int fd) = 0;
  // Watches a connection whose network may fail while no process sends on it. While the caller polls, the wait set
  // finds such an end, and also a record that is never completed. Within a host only the latter can happen. Call
  // remove_link() before you close `fd`.
  virtual void add_link(int fd, LinkWatch watch) = 0;
  virtual void remove_link(int fd) = 0;
  virtual void add_sleepable(Sleepable* sleepable) = 0;  // not owned; remove it before it is destroyed
  virtual void remove_sleepable(Sleepable* sleepable) = 0;

  // Runs the callbacks of all descriptors that are ready. If none is ready and `until` is in the future, it arms the
  // sleepables and calls `check_again`. If that returns false, it blocks until a descriptor is ready, wake() is called,
  // a signal arrives or `until` passes. Then it disarms the sleepables. Returns the number of callbacks that ran, or
  // kInterrupted if a signal ended the wait.
  //
  // `check_again` polls everything that peers write in memory (control plane, backends), exactly as the loop does while
  // it is awake. It returns true if anything moved. Without it, the loop would miss a write that a peer makes between
  // the loop's last look and arm(). With it there is no such gap (doorbell.h has the proof), so the engine's loop is
  //     for (;;) {
  //       if (look()) continue;                       // memory: control plane, backends, submissions
  //       if (spinning is still worth it) continue;   // poll({}) now and then, for the descriptors
  //       wait_set.poll(next_deadline, look);         // arms, looks, blocks, disarms
  //     }
  // Flags that a sleeper checks are read with seq_cst loads (plain loads on x86) and written with seq_cst stores.
  using LookAgain = std::function<bool()>;
  virtual Result<int> poll(TimePoint until, const LookAgain& check_again) = 0;
  Result<int> poll(TimePoint until) { return poll(until, nullptr); }  // if nothing is polled in memory

  // Ends a poll() that blocks, or makes the next one return at once. Safe from any thread and in a signal handler.
  virtual void wake() = 0;
};

}  // namespace distrun::net
