// For who submits from many threads and must not block there: one thread takes what has completed.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "distrun/distrun.h"
#include "distrun/error.hpp"
#include "distrun/operation.hpp"

namespace distrun {

// Destroyed before its session is closed; no other thread may be inside a call then, and tags not taken are lost.
class Watch {
 public:
  explicit Watch(distrun_session* session) { detail::check(distrun_watch_open(session, &watch_)); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch() { distrun_watch_close(watch_); }

  // Any thread. `tag` comes out of next() once, when the operations are done, failed or not; they stay the caller's.
  // After end(): DISTRUN_SHUT_DOWN, and nothing was added.
  void add(const Operation& operation, void* tag) {
    distrun_handle* const handle = operation.get();
    detail::check(distrun_watch_add(watch_, &handle, 1, tag));
  }
  void add(const std::vector<Operation>& operations, void* tag) {
    std::vector<distrun_handle*> handles;
    handles.reserve(operations.size());
    for (const Operation& operation : operations) handles.push_back(operation.get());
    detail::check(distrun_watch_add(watch_, handles.data(), handles.size(), tag));
  }
  // One thread at a time: the next tag, in the order of completion; none when end() was called and all have been taken.
  // DISTRUN_TIMEOUT after `seconds` (negative: no limit).
  [[nodiscard]] std::optional<void*> next(double seconds = -1.0) {
    void* tag = nullptr;
    const std::int32_t code = distrun_watch_next(watch_, seconds, &tag);
    if (code == DISTRUN_SHUT_DOWN) return std::nullopt;
    detail::check(code);
    return tag;
  }
  // Any thread: nothing more will be added.
  void end() { distrun_watch_end(watch_); }

 private:
  distrun_watch* watch_ = nullptr;
};

}  // namespace distrun
