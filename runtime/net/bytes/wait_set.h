// One place to block. A rank's engine waits here for peers' messages, peers' deaths, the launcher, new submissions and
// deadlines. All methods but wake() are for the holder of the progress token.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/net/bytes/link_watches.h"

namespace distrun::net {

// Something that is polled in memory and whose peers must be told when its owner stops polling (shared-memory
// doorbells). arm(): from now on a peer that rings sends a real wake-up through a watched descriptor. It does not look
// for work itself: whatever was written before it is found by the look that follows (WaitSet::poll).
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

  // `events` are epoll's (EPOLLIN | EPOLLOUT), level-triggered. The callback runs inside poll(); it may add, modify
  // and remove descriptors, its own included.
  virtual Status add(int fd, std::uint32_t events, Callback on_ready) = 0;
  virtual Status modify(int fd, std::uint32_t events) = 0;
  virtual void remove(int fd) = 0;
  // A connection to another host, which nobody sends anything while its network is broken: its end is found while this
  // is polled, and so is that of one whose record is never made whole. Descriptors that lead nowhere else are ignored.
  // remove_link() before `fd` is closed.
  virtual void add_link(int fd, LinkWatch watch) = 0;
  virtual void remove_link(int fd) = 0;
  virtual void add_sleepable(Sleepable* sleepable) = 0;  // not owned; remove before it dies
  virtual void remove_sleepable(Sleepable* sleepable) = 0;

  // Runs the callbacks of what is ready. If nothing is, and `until` lies in the future: arms the sleepables, calls
  // `look_again`, and blocks unless that returned true, until something is ready, wake() is called, a signal arrives or
  // `until` passes; then disarms. Returns the number of callbacks run; kInterrupted when a signal ended the wait.
  //
  // `look_again` polls everything that peers write in memory (control plane, backends), exactly as the loop does while
  // it is awake, and returns true if anything moved. Without it a peer's write between the loop's last look and arm()
  // would be slept through; with it there is no such gap (doorbell.h has the proof), so the engine's loop is
  //     for (;;) {
  //       if (look()) continue;                       // memory: control plane, backends, submissions
  //       if (spinning is still worth it) continue;   // poll({}) now and then, for the descriptors
  //       wait_set.poll(next_deadline, look);         // arms, looks, blocks, disarms
  //     }
  // Flags that a sleeper looks at are read with seq_cst loads (plain loads on x86) and written with seq_cst stores.
  using LookAgain = std::function<bool()>;
  virtual Result<int> poll(TimePoint until, const LookAgain& look_again) = 0;
  Result<int> poll(TimePoint until) { return poll(until, nullptr); }  // where nothing is polled in memory

  // From any thread: ends a poll() that blocks, or makes the next one return at once. Async-signal-safe.
  virtual void wake() = 0;
};

}  // namespace distrun::net
