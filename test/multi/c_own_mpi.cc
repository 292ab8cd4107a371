// A program that uses MPI itself. It is linked with the library through its header, and initialises and queries MPI
// before distrun.
#include <distrun/distrun.h>
#include <mpi.h>

#include <cstdio>
#include <cstdlib>

#include "test/multi/c_sum.h"

namespace {

void must(bool holds, const char* what) {
  if (holds) return;
  distrun_error error = DISTRUN_INIT(distrun_error);
  distrun_last_error(&error);
  std::fprintf(stderr, "c_own_mpi: %s: %s\n", what, error.message);
  std::_Exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  int level = 0;
  int rank = -1;
  int size = -1;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  distrun_session* session = nullptr;
  must(distrun_init(nullptr, &session) == DISTRUN_OK, "init");
  distrun_world world = DISTRUN_INIT(distrun_world);
  must(distrun_get_world(session, &world) == DISTRUN_OK, "the world");
  must(world.rank == rank && world.size == size && size == 2, "the world is not MPI's");
  auto value = static_cast<float>(rank + 1);
  const distrun_op op = sum_of("sum", &value);
  distrun_handle* handle = nullptr;
  must(distrun_enqueue(session, &op, 1, &handle) == DISTRUN_OK, "enqueue");
  must(distrun_wait(handle, -1.0) == DISTRUN_OK, "wait");
  distrun_release(handle);
  int sum = 0;
  MPI_Allreduce(&size, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  must(value == 3.0F && sum == 4, "the sum");
  must(distrun_shutdown(session) == DISTRUN_OK, "shutdown");
  distrun_close(session);
  MPI_Finalize();
  return 0;
}
