/* A plug-in in plain C for groups of one rank. Unlike the demo in examples/plugin_backend it is asynchronous, so
 * distrun calls it on distrun's own thread and watches its descriptor. It is built several times: PLUGIN_NAME and
 * PLUGIN_VERSION make the broken ones. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "runtime/backend/plugin/include/distrun/distrun_backend.h"

enum { kCapacity = 1024 };

struct distrun_backend_group {
  distrun_backend_host_group* host_group;
  int bell;
  uint64_t queue[kCapacity]; /* tokens that progress() will complete */
  int queued;
  pthread_mutex_t mutex; /* guards the two below: any thread may call abort */
  int32_t code;
  char cause[256];
};

static const distrun_backend_host* host;

static void capabilities(const distrun_backend_group_spec* spec, distrun_backend_capabilities* out) {
  out->available = spec->num_members == 1;
  strcpy(out->reason, out->available ? "returns what it gets" : "serves one rank only");
  out->library_version = 10203;
  out->score = 1000; /* above the maximum: distrun bounds it */
  out->ops = 15;
  out->dtypes = ~0U;
  out->devices = 1U << DISTRUN_BACKEND_CPU | 1U << DISTRUN_BACKEND_CUDA;
  out->flags = DISTRUN_BACKEND_ASYNCHRONOUS | DISTRUN_BACKEND_NEEDS_TOTAL_ORDER;
}

static int32_t create_group(const distrun_backend_group_spec* spec, distrun_backend_host_group* host_group,
                            distrun_backend_group** group, char* error, uint64_t error_size) {
  if (spec->num_members != 1) {
    strncpy(error, "echo serves one rank only", error_size);
    return DISTRUN_BACKEND_UNSUPPORTED;
  }
  int64_t sum = 0;
  const distrun_backend_store* store = spec->store;
  if (store->add(store->context, "device", 1 + spec->device_type, &sum) != DISTRUN_BACKEND_OK ||
      store->add(store->context, "made", 1, &sum) != DISTRUN_BACKEND_OK || sum != 1) {
    strncpy(error, "this group has been made before", error_size);
    return DISTRUN_BACKEND_PROTOCOL;
  }
  struct distrun_backend_group* made = calloc(1, sizeof(*made));
  if (made == NULL) return DISTRUN_BACKEND_OUT_OF_MEMORY;
  made->host_group = host_group;
  made->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  pthread_mutex_init(&made->mutex, NULL);
  *group = made;
  return DISTRUN_BACKEND_OK;
}

static size_t bytes_of(int32_t dtype) {
  static const size_t kBytes[] = {1, 1, 2, 4, 8, 2, 2, 4, 8, 1, 2, 4, 8, 8, 16, 1, 1, 1, 1, 1, 1, 1, 1, 4};
  return kBytes[dtype];
}

static int32_t start(distrun_backend_group* group, const distrun_backend_operation* operation, uint64_t token) {
  if (group->queued == kCapacity) return DISTRUN_BACKEND_OUT_OF_MEMORY;
  for (uint64_t i = 0; i < operation->num_segments; ++i) {
    const distrun_backend_segment* segment = &operation->segments[i];
    if (segment->count > 0) memmove(segment->output, segment->input, segment->count * bytes_of(operation->dtype));
    unsigned char* truths = segment->output;
    const int reduces =
        operation->kind == DISTRUN_BACKEND_ALLREDUCE || operation->kind == DISTRUN_BACKEND_REDUCESCATTER;
    for (uint64_t j = 0; reduces && operation->dtype == DISTRUN_BACKEND_BOOL && j < segment->count; ++j) {
      truths[j] = truths[j] != 0;
    }
  }
  group->queue[group->queued++] = token;
  eventfd_write(group->bell, 1);
  return DISTRUN_BACKEND_OK;
}

static int32_t progress(distrun_backend_group* group) {
  eventfd_t rung;
  if (eventfd_read(group->bell, &rung) != 0) return 0;
  pthread_mutex_lock(&group->mutex);
  for (int i = 0; i < group->queued; ++i) {
    host->complete(group->host_group, group->queue[i], group->code, group->cause);
    host->complete(group->host_group, group->queue[i], 0, NULL);              /* a second time: ignored */
    host->complete(group->host_group, group->queue[i] + 1000000U, 0, "none"); /* nobody's: ignored */
  }
  pthread_mutex_unlock(&group->mutex);
  group->queued = 0;
  return 1;
}

static int32_t wait_fd(distrun_backend_group* group) { return group->bell; }

static void abort_group(distrun_backend_group* group, int32_t code, const char* cause) {
  pthread_mutex_lock(&group->mutex);
  group->code = code;
  strncpy(group->cause, cause, sizeof(group->cause) - 1);
  pthread_mutex_unlock(&group->mutex);
  eventfd_write(group->bell, 1);
}

static void destroy(distrun_backend_group* group) {
  close(group->bell);
  pthread_mutex_destroy(&group->mutex);
  free(group);
}

int32_t distrun_backend_open(uint32_t version, const distrun_backend_host* given, const distrun_backend_table** table,
                             char* error, uint64_t error_size) {
  static const distrun_backend_table kTable = {sizeof(kTable), PLUGIN_VERSION, PLUGIN_NAME, capabilities, create_group,
                                               start,          progress,       wait_fd,     abort_group,  destroy};
  if (version != DISTRUN_BACKEND_VERSION || error_size == 0) return DISTRUN_BACKEND_UNSUPPORTED;
  error[0] = '\0';
  if (strcmp(PLUGIN_NAME, "moody") == 0) {
    strncpy(error, "not today", error_size);
    return DISTRUN_BACKEND_UNSUPPORTED;
  }
  __atomic_store_n(&host, given, __ATOMIC_RELEASE); /* may run on several threads */
  *table = &kTable;
  return DISTRUN_BACKEND_OK;
}
