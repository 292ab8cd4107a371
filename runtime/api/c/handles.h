// The types of the C API's opaque pointers.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "distrun/distrun.h"
#include "runtime/api/session.h"
#include "runtime/api/watch.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/engine/engine.h"

struct distrun_session {
  std::unique_ptr<distrun::api::Session> session;
};

struct distrun_handle {
  distrun::engine::Engine* engine;  // of the session; distrun_close requires that handles are released first
  distrun::engine::HandlePtr operation;
  void* output;  // the caller's pointer, for distrun_get_result
};

struct distrun_watch {
  explicit distrun_watch(distrun::engine::Engine& engine) : watch(engine) {}
  distrun::api::CompletionWatch watch;
};

namespace distrun::api {

// Returns the operations of a caller's handles. kInvalidArgument: no handles, a NULL one, or handles of several
// sessions.
Status collect(distrun_handle* const* handles, std::uint64_t count, std::vector<engine::HandlePtr>& out);
TimePoint deadline_of(double timeout);  // seconds; negative: no limit

}  // namespace distrun::api
