// The C API for the operations of a front end. Operations are complete when the test says so. Operations that were
// given to the watch stay open until the test completes them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "bindings/bridge/core.h"
#include "test/support/little_memory.h"

namespace distrun::test {

struct FakeCore {
  bool complete = false;  // every operation
  int handles = 0;        // handles that are not released
  std::vector<bridge::PendingOperation*> watched;
};
inline FakeCore fake_core;

inline std::int32_t enqueue(distrun_session*, const distrun_op*, std::uint64_t count, distrun_handle** handles) {
  fake_core.handles += static_cast<int>(count);
  std::fill_n(handles, count, reinterpret_cast<distrun_handle*>(&fake_core));
  return DISTRUN_OK;
}

// An output with two members and one row of one float from each.
inline std::int32_t get_result(distrun_handle*, distrun_result* result) {
  static constexpr std::array<std::int64_t, 1> kShape = {2};
  static constexpr std::array<std::int64_t, 2> kRows = {1, 1};
  static constexpr std::array<float, 2> kData = {3, 4};
  result->data = kData.data();
  result->bytes = sizeof kData;
  result->shape = kShape.data();
  result->ndim = 1;
  result->first_dims = kRows.data();
  result->num_members = 2;
  return DISTRUN_OK;
}

inline std::int32_t watch_add(distrun_watch*, distrun_handle* const*, std::uint64_t, void* tag) {
  const PlentyOfMemory plenty;
  fake_core.watched.push_back(static_cast<bridge::PendingOperation*>(tag));
  return DISTRUN_OK;
}

inline void complete_watched() {
  for (std::size_t i = 0; i < fake_core.watched.size(); ++i) fake_core.watched[i]->complete();
  fake_core.watched.clear();
}

// Installs the fake until detach().
inline void attach_fake_core() {
  using bridge::core;
  core.distrun_enqueue = enqueue;
  core.distrun_get_result = get_result;
  core.distrun_watch_add = watch_add;
  core.distrun_wait_all = [](distrun_handle* const*, std::uint64_t, double, std::uint64_t*) -> std::int32_t {
    return fake_core.complete ? DISTRUN_OK : DISTRUN_TIMEOUT;
  };
  core.distrun_poll = [](distrun_handle*) -> std::int32_t { return fake_core.complete ? 1 : 0; };
  core.distrun_get_error = [](distrun_handle*, distrun_error*) -> std::int32_t { return DISTRUN_OK; };
  core.distrun_release = [](distrun_handle* handle) { fake_core.handles -= handle == nullptr ? 0 : 1; };
  core.distrun_watch_open = [](distrun_session*, distrun_watch** watch) -> std::int32_t {
    *watch = reinterpret_cast<distrun_watch*>(&fake_core);
    return DISTRUN_OK;
  };
  core.distrun_watch_next = [](distrun_watch*, double, void**) -> std::int32_t { return DISTRUN_SHUT_DOWN; };
  core.distrun_watch_end = core.distrun_watch_close = [](distrun_watch*) {};
  bridge::attachment().attach(reinterpret_cast<distrun_session*>(&fake_core));
}

}  // namespace distrun::test
