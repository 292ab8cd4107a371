// What the C API's opaque pointers point to.
#pragma once

#include <memory>

#include "distrun/distrun.h"
#include "runtime/api/session.h"
#include "runtime/engine/engine.h"

struct distrun_session {
  std::unique_ptr<distrun::api::Session> session;
};

struct distrun_handle {
  distrun::engine::Engine* engine;  // of the session, which outlives its handles (distrun_close says so)
  distrun::engine::HandlePtr operation;
  void* output;  // the caller's, for distrun_get_result
};
