/* distrun backend plug-ins: the table of functions between distrun and a backend that lives outside of it.
 *
 * A plug-in is a shared library named libdistrun_backend_NAME.so that exports distrun_backend_open(). distrun loads it
 * from the folder `plugins` beside its own library and from the setting `plugins` (DISTRUN_PLUGINS=file:file). Any
 * compiler, language and standard library may be on either side. docs/add-a-backend.md is the guide, and
 * examples/plugin_backend is a complete plug-in.
 *
 * Versions: structs start with struct_size and fields are only ever appended, so read a field only if struct_size says
 * that it is there. DISTRUN_BACKEND_VERSION changes only when something else changes.
 *
 * Threads, for each group:
 * - create_group, start, progress, wait_fd and destroy are never called at the same time. They are all called on one
 *   thread that distrun makes for the group, and start() may block, where the plug-in does not say
 *   DISTRUN_BACKEND_ASYNCHRONOUS, or says DISTRUN_BACKEND_THREAD_AFFINE. Otherwise they may be called on different
 *   threads, one after the other, and may not block (create_group may).
 * - try_now is called on another thread than the group's own, while that one is in none of these functions, but perhaps
 *   on its way out of the start() that has completed the last operation.
 * - where there is progress() but no wait_fd(), distrun calls progress() again and again while operations are in
 *   flight.
 * - abort may be called on any thread, while another one is inside any other function but destroy.
 * - the plug-in may call the host's and the store's functions on any thread until destroy returns; the host's functions
 *   only take notes and never call back.
 * Functions of different groups may run at the same time. No C++ exception may leave a function of either side.
 */
#ifndef DISTRUN_BACKEND_H
#define DISTRUN_BACKEND_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DISTRUN_BACKEND_VERSION 1

/* What functions return and complete() takes: 0 or one of these; the numbers of distrun_code in distrun.h. What an
 * operation ends with, or start() returns, ends the job, but for INVALID_ARGUMENT and UNSUPPORTED: with these the
 * tensors fail on this rank alone and the job goes on. So they are for what all members find alike (from the operation
 * and what they have agreed on); for what one member finds (memory, a device, a library) take another. */
enum {
  DISTRUN_BACKEND_OK = 0,
  DISTRUN_BACKEND_INVALID_ARGUMENT = 1,
  DISTRUN_BACKEND_RANK_LOST = 4,
  DISTRUN_BACKEND_TIMEOUT = 6,
  DISTRUN_BACKEND_UNSUPPORTED = 8,
  DISTRUN_BACKEND_PROTOCOL = 9,
  DISTRUN_BACKEND_SYSTEM = 10,
  DISTRUN_BACKEND_ABORTED = 12,
  DISTRUN_BACKEND_OUT_OF_MEMORY = 14,
  DISTRUN_BACKEND_INTERNAL = 15
};

enum { /* dtype; averages and scales of floats round once per step, those of integers truncate toward zero */
       DISTRUN_BACKEND_UINT8 = 0,
       DISTRUN_BACKEND_INT8 = 1,
       DISTRUN_BACKEND_INT16 = 2,
       DISTRUN_BACKEND_INT32 = 3,
       DISTRUN_BACKEND_INT64 = 4,
       DISTRUN_BACKEND_FLOAT16 = 5,
       DISTRUN_BACKEND_BFLOAT16 = 6,
       DISTRUN_BACKEND_FLOAT32 = 7,
       DISTRUN_BACKEND_FLOAT64 = 8,
       DISTRUN_BACKEND_BOOL = 9 /* a byte, of which all but 0 are true; reductions give 0 or 1: sum and average mean or,
                                 * product means and; never scaled */
};

enum { /* reduce */
       DISTRUN_BACKEND_SUM = 0,
       DISTRUN_BACKEND_AVERAGE = 1, /* the sum, divided by the group's size */
       DISTRUN_BACKEND_MIN = 2,
       DISTRUN_BACKEND_MAX = 3,
       DISTRUN_BACKEND_PRODUCT = 4
};

enum { /* kind */
       DISTRUN_BACKEND_ALLREDUCE = 0,
       DISTRUN_BACKEND_ALLGATHER = 1,
       DISTRUN_BACKEND_BROADCAST = 2,
       DISTRUN_BACKEND_BARRIER = 3,
       DISTRUN_BACKEND_ALLTOALL = 4,
       DISTRUN_BACKEND_REDUCESCATTER = 5
};

#define DISTRUN_BACKEND_MAC_SIZE 32

enum { DISTRUN_BACKEND_ANY_DEVICE = -1, DISTRUN_BACKEND_CPU = 0, DISTRUN_BACKEND_CUDA = 1 }; /* device_type */

enum {                                     /* distrun_backend_capabilities.flags */
       DISTRUN_BACKEND_SCATTER_GATHER = 1, /* takes many segments and scales itself; otherwise distrun packs and scales.
                                            * On devices every plug-in does */
       DISTRUN_BACKEND_REVOCABLE = 2,      /* writes no output before every member has contributed */
       DISTRUN_BACKEND_NEEDS_TOTAL_ORDER = 4, /* cannot run operations of two groups at once, and does not keep them in
                                                 the order of start() itself: the next one starts when one has ended */
       DISTRUN_BACKEND_THREAD_AFFINE = 8,     /* one thread for all calls of a group */
       DISTRUN_BACKEND_ASYNCHRONOUS = 16      /* start() returns at once */
};

/* ---- what distrun gives ---- */

typedef struct distrun_backend_host_group distrun_backend_host_group; /* distrun's side of a group; opaque */

typedef struct distrun_backend_host {
  uint32_t struct_size;
  uint32_t version; /* DISTRUN_BACKEND_VERSION of distrun */
  /* The operation of `token` has ended, and nothing of the plug-in touches its memory any more. `code` is 0 or an
   * error, `message` (may be NULL) a sentence for people; it is copied. Once per token. */
  void (*complete)(distrun_backend_host_group* host_group, uint64_t token, int32_t code, const char* message);
  /* A peer is seen to be gone. Its operations need not be completed: distrun finds out the cause and calls abort. */
  void (*peer_lost)(distrun_backend_host_group* host_group, int32_t world_rank);
  /* Writes DISTRUN_BACKEND_MAC_SIZE bytes to `mac`: a keyed hash of `data` that only members of this group can make.
   * With it two members whose library connects them can prove to each other who they are, over what both have chosen at
   * random. Returns a code. */
  int32_t (*mac)(distrun_backend_host_group* host_group, const void* data, uint64_t size, void* mac);
  /* 1 while other ranks may wait for this process: it has a session that has not left the job by a shutdown. On any
   * thread, also while the process exits: for a library whose own end there waits for all processes (MPI_Finalize). */
  int32_t (*in_job)(void);
} distrun_backend_host;

/* Rendezvous: a table of bytes that all members of the group share and nobody else sees. Values up to 1 MiB; meant for
 * addresses, not for data. Its keys go when all members have destroyed the group. Returns are codes as above. */
typedef struct distrun_backend_store {
  uint32_t struct_size;
  void* context; /* first argument of the functions */
  int32_t (*set)(void* context, const char* key, const void* value, uint64_t size);
  /* Waits at most `seconds` for the key. Writes at most `capacity` bytes, and the value's whole size to `size`. */
  int32_t (*get)(void* context, const char* key, double seconds, void* buffer, uint64_t capacity, uint64_t* size);
  /* Adds to an integer that starts at 0; `result` is the sum. */
  int32_t (*add)(void* context, const char* key, int64_t delta, int64_t* result);
} distrun_backend_store;

/* Valid during the call that it is given to, but for the store. */
typedef struct distrun_backend_group_spec {
  uint32_t struct_size;
  int32_t index;          /* of this process among the members */
  const int32_t* members; /* world ranks, ascending */
  uint64_t num_members;
  const char* id;                     /* unique among the job's groups and the same on all members */
  const char* local_host;             /* this host's address as the others reach it */
  double seconds;                     /* create_group returns within this time */
  const distrun_backend_store* store; /* valid until destroy; NULL in capabilities */
  int32_t device_type;                /* of its tensors: ranks that have tensors on two kinds of devices are two groups.
                                       * DISTRUN_BACKEND_ANY_DEVICE in capabilities, which answers for all */
  int32_t reserved;                   /* where older ones ended in padding */
  int32_t asked_for;                  /* 1: the settings name this backend, or somebody asks what there is. 0: it is one
                                       * among all; then it loads no library that the program may have of another kind */
} distrun_backend_group_spec;

typedef struct distrun_backend_segment {
  const void* input; /* may equal output; otherwise they do not overlap */
  void* output;
  uint64_t count;          /* elements */
} distrun_backend_segment; /* never grows */

/* Valid, with all memory that it points to, until the token is complete. */
typedef struct distrun_backend_operation {
  uint32_t struct_size;
  int32_t kind;
  int32_t dtype;
  int32_t reduce; /* allreduce, reducescatter */
  int32_t device_type;
  int32_t device_index;
  int32_t root; /* broadcast: member index */
  uint32_t reserved;
  /* allreduce: reduced as if concatenated. broadcast: input is read at the root, output written at the others, and at
   * the root where it is not the input. allgather: one segment; input is this member's block, output gets all blocks in
   * member order. alltoall: one segment; input holds a block for each member, output gets one from each, in member
   * order; `count` is the input's. reducescatter: one segment; input holds every member's part in member order, output
   * gets this member's own; `count` is the input's. Exactly one segment without SCATTER_GATHER; none for a barrier. In
   * alltoall and reducescatter input and output never overlap. */
  const distrun_backend_segment* segments;
  uint64_t num_segments;
  const uint64_t* counts; /* elements per member: allgather: of its block; reducescatter: of its part; alltoall: sent
                           * to it by this member */
  double prescale;        /* allreduce, reducescatter: multiplies each input first, rounded to the dtype; 1 without
                           * SCATTER_GATHER */
  double postscale;       /* the same for the result, after an average's division */
  const uint64_t* recv_counts; /* alltoall: elements received from each member */
  void* const* marks; /* of distrun_backend_device: the tensors are ready when the device has passed them all */
  uint64_t num_marks;
} distrun_backend_operation;

/* ---- what the plug-in gives ---- */

typedef struct distrun_backend_group distrun_backend_group; /* the plug-in's side of a group; opaque */

typedef struct distrun_backend_capabilities {
  uint32_t struct_size;
  int32_t available; /* 0: `reason` says why not */
  int32_t score;     /* 0 to 100, higher is preferred: self 100, shm 80, tcp 50 */
  uint32_t ops;      /* bit 1 << kind */
  uint32_t dtypes;   /* bit 1 << dtype */
  uint32_t devices;  /* bit 1 << device_type */
  uint32_t flags;
  char reason[256];        /* why not, or in a few words what it is good for */
  int32_t library_version; /* of the plug-in's library, in its own numbers (NCCL 2.21.5: 22105); 0: not known */
} distrun_backend_capabilities;

/* For tensors on devices whose work is put on streams (CUDA), by number of the device. Every function may be called on
 * any thread, also with no group made; none waits for the device, but stage(), which is called while no operation is on
 * it. Errors as in create_group. Memory of allocate() and what fill() does to it are in the order of start(): an
 * operation that is started later sees them. */
typedef struct distrun_backend_device {
  uint32_t struct_size;
  uint32_t reserved;
  /* Notes how far `stream` (the caller's, of the device's kind) has been filled: an operation with this mark begins
   * when the device has come there. */
  int32_t (*mark)(int32_t device, void* stream, void** mark, char* error, uint64_t error_size);
  void (*unmark)(void* mark); /* when no operation that has it is in flight */
  /* `element` (1, 2, 4 or 8 bytes), repeated, becomes the content; NULL with element_size 0: any. */
  int32_t (*allocate)(int32_t device, uint64_t size, const void* element, uint64_t element_size, void** memory,
                      char* error, uint64_t error_size);
  void (*release)(int32_t device, void* memory); /* no stream uses it any more */
  /* Memory of the host that operations on the device may have as input or output. May be NULL, both or none. */
  int32_t (*stage)(int32_t device, uint64_t size, void** memory, char* error, uint64_t error_size);
  void (*unstage)(int32_t device, void* memory); /* no operation uses it any more */
} distrun_backend_device;

typedef struct distrun_backend_table {
  uint32_t struct_size;
  uint32_t version; /* DISTRUN_BACKEND_VERSION that the plug-in was built with */
  const char* name; /* NAME of the file's name */
  /* What this process can do for the group. Touches nothing; is asked before anything is made. `out` comes zeroed. */
  void (*capabilities)(const distrun_backend_group_spec* spec, distrun_backend_capabilities* out);
  /* Collective over the members. An error text of at most `error_size` bytes, zero included, goes to `error`. */
  int32_t (*create_group)(const distrun_backend_group_spec* spec, distrun_backend_host_group* host_group,
                          distrun_backend_group** group, char* error, uint64_t error_size);
  /* All members start the same operations in the same order. An error means that the operation was not started. */
  int32_t (*start)(distrun_backend_group* group, const distrun_backend_operation* operation, uint64_t token);
  /* Moves what can be moved without blocking; 1 if anything did, else 0. May be NULL. */
  int32_t (*progress)(distrun_backend_group* group);
  /* Readable while progress() has something to do; -1 if operations complete without it. Called once. May be NULL. */
  int32_t (*wait_fd)(distrun_backend_group* group);
  /* Every operation in flight is to be completed with this code and text as soon as nothing touches its memory, and
   * later ones too. A start() that blocks must return. */
  void (*abort)(distrun_backend_group* group, int32_t code, const char* cause);
  /* After this returns the plug-in calls nothing for the group any more. Operations still in flight are dropped. */
  void (*destroy)(distrun_backend_group* group);
  const distrun_backend_device* device; /* NULL: tensors on the cpu only */
  /* Instead of start(), where a group has a thread of its own and nothing is in flight: the whole operation on the
   * caller's thread, which saves two changes of threads, if it takes no longer than a few milliseconds. 0: it has
   * ended (complete() is not called). DISTRUN_BACKEND_TIMEOUT: start() is called with the same operation, and goes on
   * with what was begun here. SIGPIPE is held back meanwhile. May be NULL. */
  int32_t (*try_now)(distrun_backend_group* group, const distrun_backend_operation* operation);
} distrun_backend_table;

/* The one exported function. Returns 0 and the table, which stays valid for the process's life; or an error with
 * its text. A plug-in refuses (DISTRUN_BACKEND_UNSUPPORTED) a version that it does not know. `host` stays valid too.
 * May be called more than once and on several threads, always with the same host: each session of the process opens its
 * plug-ins, and a library that was opened is never unloaded. */
typedef int32_t distrun_backend_open_function(uint32_t version, const distrun_backend_host* host,
                                              const distrun_backend_table** table, char* error, uint64_t error_size);

#if defined(__GNUC__)
#define DISTRUN_BACKEND_EXPORT __attribute__((visibility("default")))
#else
#define DISTRUN_BACKEND_EXPORT
#endif
DISTRUN_BACKEND_EXPORT distrun_backend_open_function distrun_backend_open;

#ifdef __cplusplus
}
#endif
#endif /* DISTRUN_BACKEND_H */
