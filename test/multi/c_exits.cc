// The ways in which a C program ends when MPI moves the tensors. distrun has initialised MPI, and finalises it in
// exit().
//   gone      the last rank returns 4 from main with its session open; the others wait for it, get the error and end
//             with 4 too: which of them mpirun names is chance
//   unclosed  all ranks shut down and do not close
//   handler   all ranks leave in a handler of exit() that runs after distrun's
//   child     a child made by fork ends by exit(), in mid-job
#include <distrun/distrun.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "test/multi/c_sum.h"

namespace {

constexpr int kGone = 4;
constexpr int kRanks = 3;  // the same as in CMakeLists.txt
distrun_session* session = nullptr;

void must(int32_t code) {
  if (code == DISTRUN_OK) return;
  distrun_error error = DISTRUN_INIT(distrun_error);
  distrun_last_error(&error);
  std::fprintf(stderr, "c_exits: %s\n", error.message);
  std::_Exit(code == DISTRUN_RANK_LOST ? kGone : 9);
}

void add_up() {
  float value = 1;
  const distrun_op op = sum_of("sum", &value);
  distrun_handle* handle = nullptr;
  must(distrun_enqueue(session, &op, 1, &handle));
  must(distrun_wait(handle, -1.0));
  distrun_release(handle);
}

void leave() {
  add_up();
  must(distrun_shutdown(session));
  distrun_close(session);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc == 2 ? argv[1] : "";
  if (mode == "handler") std::atexit(leave);
  must(distrun_init(nullptr, &session));
  distrun_world world = DISTRUN_INIT(distrun_world);
  must(distrun_get_world(session, &world));
  if (world.size != kRanks) return 7;  // ranks that are separate worlds of size 1 would end in the same ways
  add_up();
  if (mode == "handler") return 0;
  if (mode == "unclosed") {
    must(distrun_shutdown(session));
    return 0;
  }
  if (mode == "gone" && world.rank + 1 == world.size) return kGone;
  if (mode == "child") {
    const pid_t child = ::fork();
    if (child == 0) std::exit(0);
    int status = -1;
    if (::waitpid(child, &status, 0) != child || status != 0) return 8;
  }
  leave();
  return 0;
}
