/* A plug-in in plain C for groups of one rank. Its calls may block, so it gets its own thread. It also supports trying
 * an operation at once. It writes the call that ran the operation, TRIED or STARTED, into the first element of int32
 * tensors. Trying raises SIGPIPE, like a library that writes to a lost peer. It fails if the second element is not 0.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/backend/plugin/include/distrun/distrun_backend.h"

struct distrun_backend_group {
  distrun_backend_host_group* host_group;
};

static const distrun_backend_host* host;

static void capabilities(const distrun_backend_group_spec* spec, distrun_backend_capabilities* out) {
  out->available = spec->num_members == 1;
  strcpy(out->reason, "says who did it");
  out->ops = 1U << DISTRUN_BACKEND_ALLREDUCE;
  out->dtypes = 1U << DISTRUN_BACKEND_INT32;
  out->devices = 1U << DISTRUN_BACKEND_CPU;
}

static int32_t create_group(const distrun_backend_group_spec* spec, distrun_backend_host_group* host_group,
                            distrun_backend_group** group, char* error, uint64_t error_size) {
  (void)spec, (void)error, (void)error_size;
  *group = calloc(1, sizeof(**group));
  if (*group == NULL) return DISTRUN_BACKEND_OUT_OF_MEMORY;
  (*group)->host_group = host_group;
  return DISTRUN_BACKEND_OK;
}

static int32_t start(distrun_backend_group* group, const distrun_backend_operation* operation, uint64_t token) {
  *(int32_t*)operation->segments->output = STARTED;
  host->complete(group->host_group, token, 0, NULL);
  return DISTRUN_BACKEND_OK;
}

static int32_t try_now(distrun_backend_group* group, const distrun_backend_operation* operation) {
  (void)group;
  pthread_kill(pthread_self(), SIGPIPE);
  if (((const int32_t*)operation->segments->input)[1] != 0) return DISTRUN_BACKEND_TIMEOUT;
  *(int32_t*)operation->segments->output = TRIED;
  return DISTRUN_BACKEND_OK;
}

static void abort_group(distrun_backend_group* group, int32_t code, const char* cause) {
  (void)group, (void)code, (void)cause;
}

static void destroy(distrun_backend_group* group) { free(group); }

int32_t distrun_backend_open(uint32_t version, const distrun_backend_host* given, const distrun_backend_table** table,
                             char* error, uint64_t error_size) {
  static const distrun_backend_table kTable = {sizeof(kTable), PLUGIN_VERSION, PLUGIN_NAME, capabilities,
                                               create_group,   start,          NULL,        NULL,
                                               abort_group,    destroy,        NULL,        try_now};
  (void)error, (void)error_size;
  if (version != DISTRUN_BACKEND_VERSION) return DISTRUN_BACKEND_UNSUPPORTED;
  __atomic_store_n(&host, given, __ATOMIC_RELEASE); /* may run on several threads */
  *table = &kTable;
  return DISTRUN_BACKEND_OK;
}
