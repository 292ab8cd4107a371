/* Every rank contributes its rank number; all print the sum.
 *   cc c_allreduce.c $(distrun --cflags --libs) -o c_allreduce && distrun -np 4 ./c_allreduce */
#include <distrun/distrun.h>
#include <stdio.h>
#include <stdlib.h>

static void check(int32_t code) {
  distrun_error error = DISTRUN_INIT(distrun_error);
  if (code == DISTRUN_OK) return;
  distrun_last_error(&error);
  fprintf(stderr, "c_allreduce: %s\n", error.message);
  exit(1);
}

int main(void) {
  distrun_session* session = NULL;
  distrun_handle* handle = NULL;
  distrun_world world = DISTRUN_INIT(distrun_world);
  distrun_op op = DISTRUN_INIT(distrun_op);
  const int64_t shape[1] = {1};
  float value = 0.0F;
  int32_t code = DISTRUN_OK;

  check(distrun_init(NULL, &session));
  check(distrun_get_world(session, &world));

  value = (float)world.rank;
  op.kind = DISTRUN_ALLREDUCE;
  op.name = "ranks";
  op.dtype = DISTRUN_FLOAT32;
  op.reduce = DISTRUN_SUM;
  op.shape = shape;
  op.ndim = 1;
  op.input = op.output = &value;
  op.prescale = op.postscale = 1.0;
  op.group = -1;
  check(distrun_enqueue(session, &op, 1, &handle));
  do { /* a profiler's signals interrupt a wait, as does continuing after Ctrl-Z */
    code = distrun_wait(handle, -1.0);
  } while (code == DISTRUN_INTERRUPTED);
  check(code);
  distrun_release(handle);

  printf("rank %d of %d: the sum of all ranks is %g\n", world.rank, world.size, (double)value);
  do {
    code = distrun_shutdown(session);
  } while (code == DISTRUN_INTERRUPTED);
  check(code);
  distrun_close(session);
  return 0;
}
