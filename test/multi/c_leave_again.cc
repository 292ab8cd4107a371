// Rank 0 leaves with an operation in flight and gets an error after shutdown_timeout. Each later call waits again for
// the full shutdown_timeout. Argument: a file that tells rank 1 to submit the operation.
#include <distrun/distrun.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <thread>

namespace {

constexpr double kLimit = 0.3;  // shutdown_timeout in seconds, from the launcher's command line

int say(const char* what) {
  std::fprintf(stderr, "%s\n", what);
  return 1;
}

int leave(distrun_session* session, const char* file) {
  for (int call = 0; call < 3; ++call) {
    const auto start = std::chrono::steady_clock::now();
    if (distrun_shutdown(session) != DISTRUN_TIMEOUT) return say("shutdown() did not miss the operation");
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (took.count() < 0.9 * kLimit) return say("shutdown() did not wait for shutdown_timeout");
  }
  std::ofstream(file).put('!');
  int32_t code = DISTRUN_TIMEOUT;
  while (code == DISTRUN_TIMEOUT) code = distrun_shutdown(session);
  return code == DISTRUN_OK ? 0 : say("shutdown() failed");
}

}  // namespace

int main(int argc, char** argv) {
  distrun_session* session = nullptr;
  if (argc != 2 || distrun_init(nullptr, &session) != DISTRUN_OK) return say("no session");
  distrun_world world = DISTRUN_INIT(distrun_world);
  if (distrun_get_world(session, &world) != DISTRUN_OK) return say("no world");
  const bool leaves = world.rank == 0;
  if (!leaves) {
    while (::access(argv[1], F_OK) != 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  distrun_op op = DISTRUN_INIT(distrun_op);
  op.kind = DISTRUN_BARRIER;
  op.name = "in flight";
  op.group = -1;
  distrun_handle* handle = nullptr;
  if (distrun_enqueue(session, &op, 1, &handle) != DISTRUN_OK) return say("no operation");
  if (leaves && leave(session, argv[1]) != 0) return 1;
  int32_t left = leaves ? DISTRUN_OK : DISTRUN_TIMEOUT;
  while (left == DISTRUN_TIMEOUT) left = distrun_shutdown(session);
  if (left != DISTRUN_OK) return say("rank 1 could not leave");
  distrun_release(handle);
  distrun_close(session);
  return 0;
}
