// The C API: watches.
#include <cstdint>
#include <memory>
#include <vector>

#include "distrun/distrun.h"
#include "runtime/api/c/error.h"
#include "runtime/api/c/handles.h"

using distrun::Errc;
using distrun::Status;
using distrun::api::guarded;
using distrun::engine::HandlePtr;

extern "C" {

int32_t distrun_watch_open(distrun_session* session, distrun_watch** watch) {
  return guarded([&]() -> Status {
    if (session == nullptr) return {Errc::kNotInitialized, "distrun is not initialized. Call init first"};
    if (watch == nullptr) return {Errc::kInvalidArgument, "watch is NULL"};
    *watch = std::make_unique<distrun_watch>(session->session->engine()).release();
    return {};
  });
}

int32_t distrun_watch_add(distrun_watch* watch, distrun_handle* const* handles, uint64_t count, void* tag) {
  return guarded([&]() -> Status {
    if (watch == nullptr) return {Errc::kInvalidArgument, "the watch is NULL"};
    std::vector<HandlePtr> operations;
    DISTRUN_RETURN_IF_ERROR(distrun::api::collect(handles, count, operations));
    return watch->watch.add(std::move(operations), tag);
  });
}

int32_t distrun_watch_next(distrun_watch* watch, double timeout, void** tag) {
  return guarded([&]() -> Status {
    if (watch == nullptr || tag == nullptr) return {Errc::kInvalidArgument, "watch and tag must not be NULL"};
    return watch->watch.next(distrun::api::deadline_of(timeout), tag);
  });
}

void distrun_watch_end(distrun_watch* watch) {
  if (watch != nullptr && !distrun::in_forked_child()) watch->watch.end();
}

void distrun_watch_close(distrun_watch* watch) {
  if (distrun::in_forked_child()) return;
  const std::unique_ptr<distrun_watch> owned(watch);
}

}  // extern "C"
