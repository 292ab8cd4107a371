// The last rank aborts through the C API, as a C program does. The other ranks wait for it and get the cause, also when
// they leave. With an argument, the abort names a place and a tensor.
#include <distrun/distrun.h>

#include <cstdint>
#include <cstdio>

#include "test/multi/c_sum.h"

int main(int argc, char**) {
  distrun_session* session = nullptr;
  distrun_world world = DISTRUN_INIT(distrun_world);
  if (distrun_init(nullptr, &session) != DISTRUN_OK || distrun_get_world(session, &world) != DISTRUN_OK) return 9;
  if (world.rank + 1 == world.size) {
    const char* cause = "the disk of this program is full";
    const std::int32_t code =
        argc > 1 ? distrun_abort_at(session, cause, "disk.c", 12, "needed") : distrun_abort(session, cause);
    return code == DISTRUN_OK ? 3 : 9;
  }
  float value = 1;
  const distrun_op op = sum_of("needed", &value);
  distrun_handle* handle = nullptr;
  distrun_error error = DISTRUN_INIT(distrun_error);
  if (distrun_enqueue(session, &op, 1, &handle) != DISTRUN_OK) {
    distrun_last_error(&error);
  } else if (distrun_wait(handle, 60.0) != DISTRUN_OK) {
    distrun_get_error(handle, &error);
  } else {
    return 9;
  }
  if (distrun_shutdown(session) != error.code) return 9;
  std::printf("told: %s of rank %d: %s\n", distrun_code_name(error.code), error.num_ranks == 1 ? error.ranks[0] : -1,
              error.cause);
  std::fflush(stdout);
  return 1;
}
