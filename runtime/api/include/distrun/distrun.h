/* distrun: the C API. Opaque handles, no exceptions, no framework types.
 *
 * Threads: every function may be called from any thread unless it says otherwise. No function calls back.
 * Structs start with struct_size; set it to sizeof the struct (DISTRUN_INIT does). Fields are only ever appended.
 * Every function that can fail returns a distrun_code; distrun_last_error() then has the text for this thread.
 * DISTRUN_INTERRUPTED of a call that waits is no failure: a signal handler ran meanwhile, or the process was stopped
 * and goes on (Ctrl-Z and fg, a batch system's suspend, a debugger), which needs no handler. Call again, as
 * examples/c_allreduce.c does.
 * After fork, the child may call nothing here: every call returns DISTRUN_NOT_INITIALIZED and says so.
 */
#ifndef DISTRUN_DISTRUN_H
#define DISTRUN_DISTRUN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DISTRUN_API_VERSION 1
#if defined(__GNUC__)
#define DISTRUN_API __attribute__((visibility("default")))
#else
#define DISTRUN_API
#endif

typedef struct distrun_session distrun_session; /* one membership in a job; made by init, freed by close */
typedef struct distrun_handle distrun_handle;   /* one operation; freed by release */
typedef struct distrun_watch distrun_watch;     /* tells one thread what has completed; freed by watch_close */

typedef enum distrun_code {
  DISTRUN_OK = 0,
  DISTRUN_INVALID_ARGUMENT = 1,
  DISTRUN_DUPLICATE_NAME = 2,
  DISTRUN_MISMATCH = 3,
  DISTRUN_RANK_LOST = 4,
  DISTRUN_RANK_LEFT = 5,
  DISTRUN_TIMEOUT = 6,
  DISTRUN_NOT_INITIALIZED = 7,
  DISTRUN_UNSUPPORTED = 8,
  DISTRUN_PROTOCOL = 9,
  DISTRUN_SYSTEM = 10,
  DISTRUN_INTERRUPTED = 11,
  DISTRUN_ABORTED = 12,
  DISTRUN_SHUT_DOWN = 13,
  DISTRUN_OUT_OF_MEMORY = 14,
  DISTRUN_INTERNAL = 15
} distrun_code;

typedef enum distrun_dtype {
  DISTRUN_UINT8 = 0,
  DISTRUN_INT8 = 1,
  DISTRUN_INT16 = 2,
  DISTRUN_INT32 = 3,
  DISTRUN_INT64 = 4,
  DISTRUN_FLOAT16 = 5,
  DISTRUN_BFLOAT16 = 6,
  DISTRUN_FLOAT32 = 7,
  DISTRUN_FLOAT64 = 8,
  DISTRUN_BOOL = 9
} distrun_dtype;

typedef enum distrun_reduce {
  DISTRUN_SUM = 0,
  DISTRUN_AVERAGE = 1,
  DISTRUN_MIN = 2,
  DISTRUN_MAX = 3,
  DISTRUN_PRODUCT = 4
} distrun_reduce;

typedef enum distrun_kind {
  DISTRUN_ALLREDUCE = 0,
  DISTRUN_ALLGATHER = 1,
  DISTRUN_BROADCAST = 2,
  DISTRUN_BARRIER = 3,
  DISTRUN_ALLTOALL = 4,
  DISTRUN_REDUCESCATTER = 5,
  DISTRUN_JOIN = 6
} distrun_kind;

typedef struct distrun_error {
  uint32_t struct_size;
  int32_t code;         /* distrun_code */
  const char* message;  /* never NULL; a whole sentence */
  const char* tensor;   /* never NULL, may be "" */
  const char* host;     /* never NULL, may be "" */
  const char* cause;    /* never NULL, may be "" */
  const int32_t* ranks; /* world ranks concerned */
  uint64_t num_ranks;
  int32_t usable; /* 0: the job cannot go on */
} distrun_error;

typedef struct distrun_options {
  uint32_t struct_size;
  uint32_t num_settings;
  const char* const* settings; /* "name=value", as in docs/settings.md; they win over the environment */
} distrun_options;

typedef struct distrun_world {
  uint32_t struct_size;
  int32_t rank, size, local_rank, local_size, cross_rank, cross_size;
  const char* host;   /* valid until close */
  const char* job_id; /* valid until close */
  uint32_t num_gpus;
  const int32_t* gpus; /* this rank's own, numbered among those that it sees; none: not told; valid until close */
} distrun_world;

/* One operation to enqueue. `input` and `output` stay valid and untouched until the handle is complete.
 *
 * alltoall: dimension 0 is cut into one block of rows for each member, in member order: `splits` rows each, or equal
 * shares. Rows beyond the sum of the splits go to nobody. The result has the blocks of all members in member order.
 * Unequal splits need a process set of at most 1024 ranks.
 * reducescatter: the members' inputs have one shape and are reduced; each member gets its share of the rows of
 * dimension 0: equal ones, the first (rows % members) of them one row longer.
 * join: this rank has no more data. Until every member of the process set has joined, it takes part in what the others
 * submit: with the neutral element in an allreduce (an average still divides by the size of the set), with no rows in
 * an allgather, as a receiver in a broadcast. Operations that cannot go on without it (alltoall, reducescatter, a
 * broadcast from it, a prescaled min, max or product) fail on all ranks. Until the join is complete this rank can
 * submit nothing else to the set. The device of a join, if it is a GPU, is where this rank takes part in what is on
 * GPUs before it has had a tensor on one in the set. */
typedef struct distrun_op {
  uint32_t struct_size;
  int32_t kind;        /* distrun_kind */
  const char* name;    /* 1 to 1024 bytes, unique among the operations in flight of its process set; copied. join:
                        * ignored */
  int32_t dtype;       /* distrun_dtype */
  int32_t reduce;      /* distrun_reduce; allreduce, reducescatter */
  int32_t device_type; /* 0 cpu, 1 cuda */
  int32_t device_index;
  const int64_t* shape; /* copied */
  uint32_t ndim;        /* at most 64 */
  int32_t root;         /* broadcast: world rank */
  const void* input;
  void* output; /* allreduce, broadcast: same size as input, may equal it. reducescatter: this rank's share, apart from
                 * the input. allgather, alltoall: NULL, see distrun_result */
  double prescale; /* allreduce, reducescatter: set both, to 1.0 for none; 0 in both is refused */
  double postscale;
  int32_t process_set;   /* 0 is the global one */
  int32_t group;         /* at most 4096 operations of one call with the same group >= 0 run all or none; -1: none */
  void* stream;          /* cuda: the stream that makes `input` ready (NULL: the default one). Nothing waits for it: the
                          * operation starts on the device when what the stream has been given by now is done. Once the
                          * handle is complete every stream may use the output at once. All of a rank's tensors of one
                          * process set are on one GPU */
  const int64_t* splits; /* alltoall: rows for each member; copied */
  uint32_t num_splits;   /* 0: equal shares */
} distrun_op;

typedef struct distrun_result {
  uint32_t struct_size;
  uint32_t ndim;
  const int64_t* shape; /* allgather, alltoall: dimension 0 is the sum of first_dims. reducescatter: of the share */
  const void* data;     /* allgather, alltoall: owned by the handle, on the device of the input, valid until release,
                         * before which what reads it on a GPU has ended; else the op's output */
  uint64_t bytes;       /* of all of the output */
  const int64_t* first_dims; /* allgather: dimension 0 of each member, in member order. alltoall: rows received from
                              * each. join: one value, the world rank that joined last */
  uint32_t num_members;
} distrun_result;

/* struct_size filled in, the rest zero. */
#ifdef __cplusplus
extern "C++" { /* a template needs it, and the program may have this header in an extern "C" of its own */
template <class T>
inline T distrun_make() {
  T made = {};
  made.struct_size = sizeof(T);
  return made;
}
}
#define DISTRUN_INIT(type) distrun_make<type>()
#else
#define DISTRUN_INIT(type) ((type){.struct_size = sizeof(type)})
#endif

DISTRUN_API uint32_t distrun_api_version(void); /* DISTRUN_API_VERSION of the library */
DISTRUN_API const char* distrun_version(void);  /* "0.1.0" */
DISTRUN_API const char* distrun_code_name(int32_t code);

/* Fills `error` with the last failure of this thread; valid until the next failing call on this thread. */
DISTRUN_API void distrun_last_error(distrun_error* error);

/* Joins the job that the environment describes (docs/settings.md), or makes a world of one. Collective; waits for all
 * ranks at most start_timeout; DISTRUN_TIMEOUT names those that have not come, and has ended the job. `options` may be
 * NULL. A second session in one process is refused while one is open; distrun_current() gives that one. `*session` is
 * NULL after a failure; that refusal, like one in a forked child, leaves it as it was. */
DISTRUN_API int32_t distrun_init(const distrun_options* options, distrun_session** session);
/* For a library: the session that the program has opened, by distrun_init, distrun.hpp or Python's init(); NULL where
 * none is open (one is from the end of distrun_init to distrun_close), and in a forked child. Any thread may ask. It is
 * borrowed: who opened it shuts it down and closes it, and nobody may be inside a call then, so use it within calls
 * that the program makes, ask anew in each, and release handles before they return. Name operations so that they meet
 * none of the program's ("mylib/..."), and let every rank make the calls on process sets in the program's order. */
DISTRUN_API distrun_session* distrun_current(void);
/* Leaves: waits until all ranks have left (at most shutdown_timeout) while operations in flight complete; then nothing
 * can be submitted. After shutdown_timeout a warning names the ranks that have not left; then it returns DISTRUN_OK all
 * the same, except on rank 0, which the others need until they have left and which waits for them without a limit
 * (docs/errors.md). DISTRUN_TIMEOUT when an operation of this rank's is in flight by then, or rank 0 does not
 * confirm that this rank leaves. DISTRUN_INTERRUPTED: it has not left yet, call again. May be called again in any case.
 * In a job that has failed, or does before all have left, it is that failure: DISTRUN_RANK_LOST, DISTRUN_RANK_LEFT and
 * DISTRUN_ABORTED are no fault of a rank that has done its work, which may end as after DISTRUN_OK. */
DISTRUN_API int32_t distrun_shutdown(distrun_session* session);
/* Tells every rank that this one ends because of `cause` (an uncaught exception); does not wait, but where rank 0
 * itself stands in for a launcher (mpirun, srun): up to 2 s until the others have heard of it. */
DISTRUN_API int32_t distrun_abort(distrun_session* session, const char* cause);
/* The same, with facts for `distrun --report`: the line of the program that failed, and the tensor of the operation
 * that failed. NULL or "": not known, or none. */
DISTRUN_API int32_t distrun_abort_at(distrun_session* session, const char* cause, const char* file, int32_t line,
                                     const char* tensor);
/* Every rank calls it once per step. `stop` becomes 1 on all ranks from the same call (the same number of calls,
 * counted on each rank) on, once a rank got SIGTERM, SIGUSR1 or SIGUSR2, passed request = 1, or the launcher was asked
 * (--preempt-signal); else 0. Costs no message until then and does not wait for other ranks, but for one round trip
 * right after a request. From the first call on these signals no longer end the process, unless the program handles
 * them itself; a second one does. DISTRUN_INTERRUPTED: it was no call, call again. */
DISTRUN_API int32_t distrun_should_stop(distrun_session* session, int32_t request, int32_t* stop);
/* Frees the session, after shutdown or without it (then this rank's death is seen by the others). Release handles
 * first; no other thread may be inside a call. */
DISTRUN_API void distrun_close(distrun_session* session);

DISTRUN_API int32_t distrun_get_world(distrun_session* session, distrun_world* world);
/* Text answers, for people: "settings", "backends" (one line each: name, ok or the reason), "control", "why" (the
 * chosen backend per device with reasons). Returns the length needed without the final zero; writes at most `size`
 * bytes. `session` may be NULL for "backends" and "settings". 0 for any other question; -1 on an error, as in a forked
 * child.
 * "why.json" and "backends.json" have the same facts as JSON. "why.json" is a list with an object for each process set
 * and kind of device: "process_set", "device", "backend", "chosen" {"code", "reason", "score"} and "losers", a list of
 * {"backend", "code", "reason"} with "rank" and "host" where one member is the reason, and "score" where all can use
 * it. "backends.json" is {"backends": [{"backend", "usable", "reason"}], "warnings": [text]}; nccl has a
 * "library_version" too. Fields may be added. */
DISTRUN_API int64_t distrun_query(distrun_session* session, const char* what, char* buffer, uint64_t size);

#define DISTRUN_MAC_SIZE 32
/* Writes DISTRUN_MAC_SIZE bytes to `mac`: a hash of `data` that only this job's ranks can make, another one for each
 * `purpose`. For what must not have been changed on its way, as tensors may be between hosts (SECURITY.md): the sender
 * sends it along, the receiver makes it of what has come and compares. Zeros in a world of one. */
DISTRUN_API int32_t distrun_mac(distrun_session* session, const char* purpose, const void* data, uint64_t size,
                                void* mac);

/* Hands over `count` operations (an array with stride ops[0].struct_size, which counts for all of them): all or none.
 * `handles` receives one handle each. Does not block on other ranks. At most 1,048,576 in one call, as of handles in
 * the calls that take several. */
DISTRUN_API int32_t distrun_enqueue(distrun_session* session, const distrun_op* ops, uint64_t count,
                                    distrun_handle** handles);
/* Waits for completion, at most `timeout` seconds (negative: no limit). DISTRUN_TIMEOUT and DISTRUN_INTERRUPTED leave
 * the handle as it was, wait again, as long as distrun_poll() says 0; so do DISTRUN_OUT_OF_MEMORY and DISTRUN_INTERNAL
 * where waiting itself failed. While distrun_poll() says 0 the operation runs on and its memory is in use, whatever
 * this has returned. Otherwise the operation's own result, which is DISTRUN_TIMEOUT too where stall_shutdown_time has
 * ended the job. */
DISTRUN_API int32_t distrun_wait(distrun_handle* handle, double timeout);
/* All handles; the first that failed is reported and its index stored (`failed` may be NULL). The index is `count`
 * where none failed, or the wait itself did: that tells an operation's DISTRUN_TIMEOUT from the wait's. NULL handles
 * are passed over here and in distrun_wait_any; nothing but NULL ones is DISTRUN_INVALID_ARGUMENT. */
DISTRUN_API int32_t distrun_wait_all(distrun_handle* const* handles, uint64_t count, double timeout, uint64_t* failed);
/* Any handle: the index of the first completed one is stored; returns that operation's result. The index is `count`
 * where the wait itself failed. To be given another one next, release it and make it NULL. */
DISTRUN_API int32_t distrun_wait_any(distrun_handle* const* handles, uint64_t count, double timeout, uint64_t* index);
/* 1 if complete, 0 if not; 1 in a forked child, where distrun_wait() says why. */
DISTRUN_API int32_t distrun_poll(distrun_handle* handle);
/* Of a completed handle. Both stay valid until release. */
DISTRUN_API int32_t distrun_get_error(distrun_handle* handle, distrun_error* error);
DISTRUN_API int32_t distrun_get_result(distrun_handle* handle, distrun_result* result);
/* Frees the handle. One that is in flight is freed when it completes; its memory must stay valid until then. A
 * completed one whose result lies in the memory of the host may be released after distrun_close too. */
DISTRUN_API void distrun_release(distrun_handle* handle);

/* A watch: for who submits from many threads and must not block there (the kernels of a framework with threads of its
 * own). Any thread adds what it has submitted, one thread takes what has completed, in the order of completion. */
DISTRUN_API int32_t distrun_watch_open(distrun_session* session, distrun_watch** watch);
/* `tag` will come out of next() once, when all of the handles are complete, failed or not. The handles stay the
 * caller's. DISTRUN_SHUT_DOWN after end(): then nothing was added. */
DISTRUN_API int32_t distrun_watch_add(distrun_watch* watch, distrun_handle* const* handles, uint64_t count, void* tag);
/* One thread at a time. Waits for the next tag at most `timeout` seconds (negative: no limit; DISTRUN_TIMEOUT), and
 * moves the operations itself meanwhile, so that a completion costs no change of threads. DISTRUN_SHUT_DOWN: end() was
 * called and every tag has been taken. */
DISTRUN_API int32_t distrun_watch_next(distrun_watch* watch, double timeout, void** tag);
/* Any thread: nothing more will be added. */
DISTRUN_API void distrun_watch_end(distrun_watch* watch);
/* Frees the watch, before its session is closed; no other thread may be inside a call. Tags not taken are lost. */
DISTRUN_API void distrun_watch_close(distrun_watch* watch);

/* The job's store: keys and values that all ranks share, over the authenticated connections to the launcher. For few
 * and small things, as ranks that find each other: keys are texts below 1 KiB, values at most 1 MiB, all together 256
 * MiB. A key stays until it is swapped away or the session ends. DISTRUN_UNSUPPORTED in a world of one.
 *
 * `get` waits until the key is there, at most `timeout` seconds (negative: no limit), and ends early where a rank is
 * gone. `add` makes a key that is not there 0 first; its value is the sum in decimal digits. `swap` gives the key the
 * value `wanted` (NULL: it goes) if it has the value `expected` (NULL: it is not there). `get` and `swap` write at most
 * `capacity` bytes of the value and store its size; swap's is the value from before, -1 for none. `count`: how many
 * keys begin with `prefix`. */
DISTRUN_API int32_t distrun_store_set(distrun_session* session, const char* key, const void* value, uint64_t size);
DISTRUN_API int32_t distrun_store_get(distrun_session* session, const char* key, double timeout, void* buffer,
                                      uint64_t capacity, int64_t* size);
DISTRUN_API int32_t distrun_store_add(distrun_session* session, const char* key, int64_t delta, int64_t* sum);
DISTRUN_API int32_t distrun_store_swap(distrun_session* session, const char* key, const void* expected,
                                       uint64_t expected_size, const void* wanted, uint64_t wanted_size, void* buffer,
                                       uint64_t capacity, int64_t* size);
DISTRUN_API int32_t distrun_store_count(distrun_session* session, const char* prefix, int64_t* count);

/* Process sets. Collective over all ranks of the job; ranks are world ranks. The global set is 0 and always there.
 * Adding and removing has no time limit, so that ranks may come minutes apart: after stall_warning_time a warning names
 * those that are missing, and stall_shutdown_time, where it is set, ends the job. */
DISTRUN_API int32_t distrun_process_set_add(distrun_session* session, const int32_t* ranks, uint64_t count,
                                            int32_t* process_set);
/* The same, called by the members alone: the others do not take part and never hear of the set; it may have the ranks
 * of another one. Its members alone call distrun_process_set_remove for it. Ranks make the calls that they share, of
 * both kinds, in the same order; where they do not, each gets DISTRUN_MISMATCH. */
DISTRUN_API int32_t distrun_process_set_add_by_members(distrun_session* session, const int32_t* ranks, uint64_t count,
                                                       int32_t* process_set);
DISTRUN_API int32_t distrun_process_set_remove(distrun_session* session, int32_t process_set);
/* Like add_by_members, but in no order with this rank's other calls: none waits for another, so ranks that share such
 * calls may make them in any order. Waits at most `timeout` seconds (negative: no limit). After DISTRUN_TIMEOUT the
 * call stays made, and this rank's next one for the same ranks, from any thread, goes on with it and makes no other:
 * call again until it is DISTRUN_OK. Given up for good it is in flight until the other members have made it too, and
 * counts as an operation in distrun_shutdown. Sets of the same ranks are told apart by the order in which each member
 * adds them. */
DISTRUN_API int32_t distrun_process_set_add_apart(distrun_session* session, const int32_t* ranks, uint64_t count,
                                                  double timeout, int32_t* process_set);
/* Instead of remove: this rank submits nothing more to the set, which goes when all who would remove it have called
 * this, at any time. Does not wait for them. */
DISTRUN_API int32_t distrun_process_set_drop(distrun_session* session, int32_t process_set);
/* Writes at most `capacity` ranks of the set, ascending, and the number of its members. */
DISTRUN_API int32_t distrun_process_set_ranks(distrun_session* session, int32_t process_set, int32_t* ranks,
                                              uint64_t capacity, uint64_t* count);

/* Chrome trace of all ranks in one file. Collective: every rank calls with the same path. If rank 0 cannot open it,
 * every rank gets the error. The file can be opened at any time, and is complete when stop or shutdown returns on rank
 * 0; these wait a few seconds for a disk that is stuck, then warn. */
DISTRUN_API int32_t distrun_timeline_start(distrun_session* session, const char* path);
DISTRUN_API int32_t distrun_timeline_stop(distrun_session* session);

#ifdef __cplusplus
}
#endif
#endif /* DISTRUN_DISTRUN_H */
