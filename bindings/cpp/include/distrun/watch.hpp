// For programs that submit from many threads and must not block there. One thread takes the completed operations.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "distrun/distrun.h"
#include "distrun/error.hpp"
#include "distrun/operation.hpp"

namespace distrun {

// Destroy it before its session is closed. No other thread may be inside a call then, and tags not yet taken are lost.
class Watch {
 public:
  explicit Watch(distrun_session* session) { detail::check(distrun_watch_open(session, &watch_)); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch() { distrun_watch_close(watch_); }

  // Any thread may call this. next() returns `tag` once when all the operations are done, failed or not. The caller
  // keeps the operations. Throws DISTRUN_SHUT_DOWN after end(), and then adds nothing.
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
  // One thread at a time may call this. Returns the next tag in the order of completion, or nothing after end() when
  // all tags have been taken. Throws DISTRUN_TIMEOUT after `seconds` (negative: no limit).
  [[nodiscard]] std::optional<void*> next(double seconds = -1.0) {
    void* tag = nullptr;
    const std::int32_t code = distrun_watch_next(watch_, seconds, &tag);
    if (code == DISTRUN_SHUT_DOWN) return std::nullopt;
    detail::check(code);
    return tag;
  }
  // Any thread may call this. Nothing may be added afterwards.
  void end() { distrun_watch_end(watch_); }

 private:
  distrun_watch* watch_ = nullptr;
};

}  // namespace distrun
