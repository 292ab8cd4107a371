// One place to block. A rank's engine waits here for peers' messages, peers' deaths, the launcher, new submissions and
// deadlines. All methods but wake() are for the holder of the progress token.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"

namespace distrun::net {

// Something that is polled in memory and needs to be told before its owner blocks (shared-memory doorbells).
class Sleepable {
 public:
  virtual ~Sleepable() = default;
  // Announce that this rank is about to sleep. Returns false if there is work already: then do not sleep.
  virtual bool arm() = 0;
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
  virtual void add_sleepable(Sleepable* sleepable) = 0;  // not owned; remove before it dies
  virtual void remove_sleepable(Sleepable* sleepable) = 0;

  // Runs the callbacks of what is ready; if nothing is, and `until` lies in the future, arms the sleepables and blocks
  // until something is ready, wake() is called, a signal arrives or `until` passes. Returns the number of callbacks
  // run; kInterrupted when a signal ended the wait.
  virtual Result<int> poll(TimePoint until) = 0;

  // From any thread: ends a poll() that blocks, or makes the next one return at once. Async-signal-safe.
  virtual void wake() = 0;
};

}  // namespace distrun::net
