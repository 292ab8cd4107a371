/* The interface between distrun and a backend plug-in: a table of C functions.
 *
 * A plug-in is a shared library named libdistrun_backend_NAME.so that exports distrun_backend_open(). distrun loads it
 * from the folder `plugins` beside its own library and from the setting `plugins` (DISTRUN_PLUGINS=file:file). Each
 * side may use any compiler, language and standard library. docs/howto/write-a-backend.md is the guide, and
 * examples/plugin_backend is a complete plug-in.
 *
 * Versions: every struct starts with struct_size, except distrun_backend_segment. New fields are only appended. Read a
 * field only if struct_size covers it. DISTRUN_BACKEND_VERSION changes only for any other kind of change.
 *
 * Threads, for each group:
 * - distrun never calls two of create_group, start, progress, wait_fd and destroy at the same time.
 * - A plug-in without DISTRUN_BACKEND_ASYNCHRONOUS, or with DISTRUN_BACKEND_THREAD_AFFINE, gets its own thread for each
 *   group. distrun calls all five functions on that thread, and start() may block.
 * - For other plug-ins, distrun may call each of the five on a different thread. They may not block, except
 *   create_group.
 * - distrun calls try_now on a thread that is not the group's own. At that time the group's own thread is in none of
 *   the five functions. It may still be returning from the start() that completed the last operation.
 * - If the table has progress() but no wait_fd(), distrun calls progress() repeatedly while operations are in flight.
 * - distrun may call abort on any thread, while another thread is inside any other function except destroy.
 * - The plug-in may call the functions of the host and of the store on any thread until destroy returns. The host's
 *   functions only record the call. They never call back into the plug-in.
 *
 * Functions of different groups may run at the same time. No C++ exception may leave a function of either side.
 */
#ifndef DISTRUN_BACKEND_H
#define DISTRUN_BACKEND_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DISTRUN_BACKEND_VERSION 1

/* Result codes: functions return one of these, and complete() takes one. The numbers equal distrun_code in distrun.h.
 * An error from start() or complete() ends the job, except INVALID_ARGUMENT and UNSUPPORTED: with these two, the
 * tensors fail on this rank only and the job continues. Use these two only for an error that every member finds in the
 * same way, from the operation and from values that the members have agreed on. Use another code for an error that one
 * member may find alone (memory, a device, a library). */
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

/* dtype. Averages and scales of floats round once per step. Averages and scales of integers truncate toward zero. */
enum {
  DISTRUN_BACKEND_UINT8 = 0,
  DISTRUN_BACKEND_INT8 = 1,
  DISTRUN_BACKEND_INT16 = 2,
  DISTRUN_BACKEND_INT32 = 3,
  DISTRUN_BACKEND_INT64 = 4,
  DISTRUN_BACKEND_FLOAT16 = 5,
  DISTRUN_BACKEND_BFLOAT16 = 6,
  DISTRUN_BACKEND_FLOAT32 = 7,
  DISTRUN_BACKEND_FLOAT64 = 8,
  /* One byte; 0 is false and every other value is true. Reductions give 0 or 1: SUM and AVERAGE are a logical or,
   * PRODUCT is a logical and. Never scaled. */
  DISTRUN_BACKEND_BOOL = 9,
  DISTRUN_BACKEND_UINT16 = 10,
  DISTRUN_BACKEND_UINT32 = 11,
  DISTRUN_BACKEND_UINT64 = 12,
  /* Only in reductions with PRODUCT, on the CPU. distrun adds the parts as floats of half the size. */
  DISTRUN_BACKEND_COMPLEX64 = 13,
  DISTRUN_BACKEND_COMPLEX128 = 14,
  /* A plug-in does not get these: distrun moves the dtypes from UINT16 on as bytes (UINT8). */
  DISTRUN_BACKEND_FLOAT8_E4M3FN = 15,
  DISTRUN_BACKEND_FLOAT8_E5M2 = 16,
  DISTRUN_BACKEND_FLOAT8_E4M3FNUZ = 17,
  DISTRUN_BACKEND_FLOAT8_E5M2FNUZ = 18,
  DISTRUN_BACKEND_FLOAT8_E8M0FNU = 19,
  DISTRUN_BACKEND_FLOAT8_E4M3B11FNUZ = 20,
  DISTRUN_BACKEND_FLOAT8_E4M3 = 21,
  DISTRUN_BACKEND_FLOAT8_E3M4 = 22,
  DISTRUN_BACKEND_COMPLEX32 = 23
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

/* distrun_backend_capabilities.flags */
enum {
  /* Takes any number of segments and scales itself. Without this flag distrun packs and scales CPU tensors. For
   * tensors on devices every plug-in must do both. */
  DISTRUN_BACKEND_SCATTER_GATHER = 1,
  /* Writes no output before every member has contributed. */
  DISTRUN_BACKEND_REVOCABLE = 2,
  /* Cannot run operations of two groups at once, and does not order them by start() itself. distrun starts the next
   * operation after the previous one has ended. */
  DISTRUN_BACKEND_NEEDS_TOTAL_ORDER = 4,
  /* All calls of a group must come from one thread. */
  DISTRUN_BACKEND_THREAD_AFFINE = 8,
  /* start() returns without waiting for the operation. */
  DISTRUN_BACKEND_ASYNCHRONOUS = 16
};

/* ---- provided by distrun ---- */

typedef struct distrun_backend_host_group distrun_backend_host_group; /* distrun's side of a group; opaque */

typedef struct distrun_backend_host {
  uint32_t struct_size;
  uint32_t version; /* DISTRUN_BACKEND_VERSION of distrun */
  /* The plug-in calls this once per token, when the operation has ended and the plug-in no longer touches its memory.
   * `code` is 0 or an error. `message` is a sentence for users; distrun copies it. It may be NULL. */
  void (*complete)(distrun_backend_host_group* host_group, uint64_t token, int32_t code, const char* message);
  /* The plug-in calls this when it finds that a peer is gone. It need not complete the operations with that peer:
   * distrun finds the cause and calls abort. */
  void (*peer_lost)(distrun_backend_host_group* host_group, int32_t world_rank);
  /* Writes DISTRUN_BACKEND_MAC_SIZE bytes to `mac`: a keyed hash (MAC) of `data` that only members of this group can
   * make. Two members that a library has connected can authenticate each other with it: each makes a MAC over random
   * bytes from both. Returns a result code. */
  int32_t (*mac)(distrun_backend_host_group* host_group, const void* data, uint64_t size, void* mac);
  /* Returns 1 while other ranks may wait for this process: one of its sessions has not left the job by a shutdown. May
   * be called on any thread, also while the process exits. It is meant for libraries whose finalization at exit waits
   * for all processes (MPI_Finalize). */
  int32_t (*in_job)(void);
} distrun_backend_host;

/* Rendezvous: a key-value store that the members of the group share. Processes outside the group cannot see it. Values
 * have at most 1 MiB; use it for addresses, not for tensor data. distrun deletes the keys when all members have
 * destroyed the group. The functions return result codes. */
typedef struct distrun_backend_store {
  uint32_t struct_size;
  void* context; /* pass it as the first argument of the functions */
  int32_t (*set)(void* context, const char* key, const void* value, uint64_t size);
  /* Waits at most `seconds` for the key. Writes at most `capacity` bytes to `buffer`, and the full size of the value
   * to `size`. */
  int32_t (*get)(void* context, const char* key, double seconds, void* buffer, uint64_t capacity, uint64_t* size);
  /* Adds `delta` to an integer that starts at 0. `result` is the new sum. */
  int32_t (*add)(void* context, const char* key, int64_t delta, int64_t* result);
} distrun_backend_store;

/* Valid during the call that receives it; only `store` is valid longer. */
typedef struct distrun_backend_group_spec {
  uint32_t struct_size;
  int32_t index;          /* position of this process in `members` */
  const int32_t* members; /* world ranks, ascending */
  uint64_t num_members;
  const char* id;                     /* unique among the groups of the job, and the same on all members */
  const char* local_host;             /* the address at which other hosts reach this host */
  double seconds;                     /* create_group must return within this time */
  const distrun_backend_store* store; /* valid until destroy; NULL in a call of capabilities */
  /* The kind of device of the group's tensors. Ranks with tensors on two kinds of devices form two groups. In a call of
   * capabilities it is DISTRUN_BACKEND_ANY_DEVICE: the answer is for all kinds. */
  int32_t device_type;
  int32_t reserved; /* padding in older versions of this struct */
  /* 1: the settings name this backend, or the call only lists the available backends. 0: the backend is one of several
   * candidates. In that case, do not load a library if the program may already use another implementation of it. */
  int32_t asked_for;
} distrun_backend_group_spec;

typedef struct distrun_backend_segment {
  const void* input; /* may equal `output`; otherwise the two do not overlap */
  void* output;
  uint64_t count;          /* elements */
} distrun_backend_segment; /* this struct never gets more fields */

/* The struct and all memory that it points to are valid until the token is complete. */
typedef struct distrun_backend_operation {
  uint32_t struct_size;
  int32_t kind;
  int32_t dtype;
  int32_t reduce; /* allreduce, reducescatter */
  int32_t device_type;
  int32_t device_index;
  int32_t root; /* broadcast: index of the root in `members` */
  uint32_t reserved;
  /* allreduce: the segments are reduced as if they were concatenated.
   * broadcast: reads input at the root. Writes output at the other members, and at the root if it differs from input.
   * allgather: one segment. Input is this member's block; output gets all blocks in member order.
   * alltoall: one segment. Input has one block for each member, output gets one block from each, both in member order.
   * `count` is the length of input. Input and output never overlap.
   * reducescatter: one segment. Input has every member's part in member order, output gets this member's part. `count`
   * is the length of input. Input and output never overlap.
   * barrier: no segment.
   * Without SCATTER_GATHER there is exactly one segment, except for a barrier. */
  const distrun_backend_segment* segments;
  uint64_t num_segments;
  /* Elements for each member. allgather: length of the member's block. reducescatter: length of the member's part.
   * alltoall: elements that this member sends to that member. */
  const uint64_t* counts;
  /* allreduce, reducescatter: multiply each input by this first, and round to the dtype. 1 without SCATTER_GATHER. */
  double prescale;
  /* allreduce, reducescatter: multiply the result by this, after the division of an average. 1 without
   * SCATTER_GATHER. */
  double postscale;
  const uint64_t* recv_counts; /* alltoall: elements that this member receives from each member */
  /* Marks of distrun_backend_device. The tensors are ready when the device has passed all of them. */
  void* const* marks;
  uint64_t num_marks;
} distrun_backend_operation;

/* ---- provided by the plug-in ---- */

typedef struct distrun_backend_group distrun_backend_group; /* the plug-in's side of a group; opaque */

typedef struct distrun_backend_capabilities {
  uint32_t struct_size;
  int32_t available; /* 0: not available, `reason` says why */
  int32_t score;     /* 0 to 100, the highest is preferred; self has 100, shm 80, tcp 50 */
  uint32_t ops;      /* bits 1 << kind */
  uint32_t dtypes;   /* bits 1 << dtype */
  uint32_t devices;  /* bits 1 << device_type */
  uint32_t flags;
  char reason[256]; /* why it is not available, or in a few words its purpose; zero-terminated */
  /* Version of the plug-in's library in that library's numbers (NCCL 2.21.5: 22105). 0: unknown. */
  int32_t library_version;
} distrun_backend_capabilities;

/* Functions for tensors on devices with streams (CUDA). `device` is the number of the device. distrun may call them on
 * any thread, also before any group exists. Only stage() may wait for the device; distrun calls it while no operation
 * runs on the device. Errors are reported as in create_group. allocate() is ordered with start(): an operation that
 * starts later sees the memory and its content. */
typedef struct distrun_backend_device {
  uint32_t struct_size;
  uint32_t reserved;
  /* Records the current end of `stream` (the caller's stream, of the device's kind). An operation with this mark begins
   * when the device has reached that point. */
  int32_t (*mark)(int32_t device, void* stream, void** mark, char* error, uint64_t error_size);
  void (*unmark)(void* mark); /* called when no operation with this mark is in flight */
  /* Fills the memory with copies of `element` (1, 2, 4 or 8 bytes). NULL with element_size 0: any content. */
  int32_t (*allocate)(int32_t device, uint64_t size, const void* element, uint64_t element_size, void** memory,
                      char* error, uint64_t error_size);
  void (*release)(int32_t device, void* memory); /* called when no stream uses the memory any more */
  /* Allocates host memory that operations on the device may use as input or output. Either both of stage and unstage
   * are NULL, or none. */
  int32_t (*stage)(int32_t device, uint64_t size, void** memory, char* error, uint64_t error_size);
  void (*unstage)(int32_t device, void* memory); /* called when no operation uses it any more */
} distrun_backend_device;

typedef struct distrun_backend_table {
  uint32_t struct_size;
  uint32_t version; /* DISTRUN_BACKEND_VERSION that the plug-in was built with */
  const char* name; /* NAME in the name of the file */
  /* Reports what this process can do for the group. distrun calls it before it creates anything. It has no side
   * effects. `out` is zeroed, except struct_size. */
  void (*capabilities)(const distrun_backend_group_spec* spec, distrun_backend_capabilities* out);
  /* Collective over the members. On an error it writes a zero-terminated text of at most `error_size` bytes to `error`,
   * the zero included. */
  int32_t (*create_group)(const distrun_backend_group_spec* spec, distrun_backend_host_group* host_group,
                          distrun_backend_group** group, char* error, uint64_t error_size);
  /* All members start the same operations in the same order. If this returns an error, the operation was not started.
   */
  int32_t (*start)(distrun_backend_group* group, const distrun_backend_operation* operation, uint64_t token);
  /* Makes progress without blocking. Returns 1 if anything moved, otherwise 0. May be NULL. */
  int32_t (*progress)(distrun_backend_group* group);
  /* Returns a descriptor that is readable while progress() has something to do, or -1 if operations complete without
   * progress(). Called once. May be NULL. */
  int32_t (*wait_fd)(distrun_backend_group* group);
  /* Complete every operation in flight with this code and text, as soon as nothing touches its memory. Complete later
   * operations in the same way. A start() that blocks must return. */
  void (*abort)(distrun_backend_group* group, int32_t code, const char* cause);
  /* After this returns, the plug-in makes no more calls for the group. Operations that are still in flight are
   * dropped. */
  void (*destroy)(distrun_backend_group* group);
  const distrun_backend_device* device; /* NULL: CPU tensors only */
  /* For a group with its own thread: runs a short operation on the caller's thread, which saves two thread switches.
   * distrun calls it instead of start() while nothing is in flight. It may take a few milliseconds at most. SIGPIPE is
   * blocked during the call. May be NULL.
   * Returns 0 if the operation has ended; then do not call complete(). Returns DISTRUN_BACKEND_TIMEOUT if it has not:
   * distrun then calls start() with the same operation, and start() continues it. */
  int32_t (*try_now)(distrun_backend_group* group, const distrun_backend_operation* operation);
} distrun_backend_table;

/* The only exported function. Returns 0 and sets `table`, or returns an error with a text in `error`. The table and
 * `host` stay valid until the process ends. A plug-in returns DISTRUN_BACKEND_UNSUPPORTED for a version that it does
 * not know. distrun may call this more than once and on several threads, always with the same `host`: each session of
 * the process opens its plug-ins. distrun never unloads a library that it has opened. */
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
